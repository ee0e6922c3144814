package nodeops

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

// lacks skips a test that this kernel does not support, or fails it if HOLDFAST_REQUIRE says that it must run.
func lacks(t testing.TB, feature string, why error) {
	t.Helper()
	hostfs.Skip(t, feature, fmt.Sprintf("needs %s: %v", feature, why))
}

// onProjects runs a test on each file system with project quotas.
func onProjects(t *testing.T, test func(t *testing.T, dir string, q *ProjectQuota)) {
	for _, fstype := range []string{"xfs", "ext4"} {
		t.Run(fstype, func(t *testing.T) {
			dir := newProjectFS(t, fstype)
			test(t, dir, openProjects(t, dir))
		})
	}
}

func newProjectFS(t testing.TB, fstype string) (mountpoint string) {
	t.Helper()
	var options []string
	if fstype == "ext4" {
		options = []string{"-O", "project,quota", "-E", "quotatype=prjquota"}
	}
	image := newImage(t, fstype, 512*mib, options...)
	mountpoint = t.TempDir()
	t.Cleanup(func() { unmountAll(t, mountpoint) })
	if _, err := run(t.Context(), "mount", "-o", "loop,prjquota", image, mountpoint); err != nil {
		lacks(t, "prjquota", err)
	}
	q, err := OpenProjectQuota(mountpoint)
	if err != nil {
		lacks(t, "prjquota", err)
	}
	q.Close()
	return mountpoint
}

func openProjects(t testing.TB, dir string) *ProjectQuota {
	t.Helper()
	q := check.Got(OpenProjectQuota(dir))(t)
	t.Cleanup(func() { q.Close() })
	return q
}

// limited makes a directory with an id and a limit of its own.
func limited(t testing.TB, q *ProjectQuota, dir string, l Limits) (id uint32) {
	t.Helper()
	id = check.Got(q.Reserve(l, func(id uint32) error {
		return errors.Join(os.Mkdir(dir, 0o755), SetProject(dir, id))
	}))(t)
	return id
}

// asContainer runs a script as root without CAP_SYS_RESOURCE, as containers have it.
func asContainer(t testing.TB, script string, args ...string) error {
	t.Helper()
	argv := append([]string{"--bounding-set=-sys_resource", "sh", "-e", "-c", script, "sh"}, args...)
	_, err := run(t.Context(), "setpriv", argv...)
	return err
}

func full(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "No space left") || strings.Contains(err.Error(), "quota exceeded"))
}

// waysIn are scripts that write 64 MiB to the directory $1.
var waysIn = map[string]string{
	"plain writes": `dd if=/dev/zero of=$1/f bs=1M count=64 conv=fsync`,
	"many files":   `for i in $(seq 64); do dd if=/dev/zero of=$1/$i bs=1M count=1 conv=fsync; done`,
	"holes":        `truncate -s 1G $1/f; for i in $(seq 64); do dd if=/dev/zero of=$1/f bs=1M count=1 seek=$((i * 8)) conv=notrunc,fsync; done`,
	"fallocate":    `fallocate -l 64M $1/f`,
	"hard links":   `touch $1/f; ln -f $1/f $1/link; dd if=/dev/zero of=$1/link bs=1M count=64 conv=fsync`,
	"two at once":  `dd if=/dev/zero of=$1/a bs=1M count=32 conv=fsync & dd if=/dev/zero of=$1/b bs=1M count=32 conv=fsync; wait $!`,
}

func TestProject_LimitHolds(t *testing.T) {
	onProjects(t, func(t *testing.T, dir string, q *ProjectQuota) {
		for way, script := range waysIn {
			t.Run(way, func(t *testing.T) {
				volume := filepath.Join(dir, strings.ReplaceAll(way, " ", "-"))
				id := limited(t, q, volume, Limits{Bytes: 16 * mib})
				if err := asContainer(t, script, volume); !full(err) {
					t.Errorf("got %v, want that it is full", err)
				}
				if used, _, err := q.Usage(id); err != nil || used > 16*mib || used < 8*mib && way != "fallocate" {
					t.Errorf("%d bytes are used, %v, of %d", used, err, 16*mib)
				}
				if usage, err := Statfs(t.Context(), volume); err != nil || usage.Total != 16*mib {
					t.Errorf("statfs reports %+v, %v, want a total of %d", usage, err, 16*mib)
				}
			})
		}
	})
}

func TestProject_NothingMovesIntoItFromAnother(t *testing.T) {
	onProjects(t, func(t *testing.T, dir string, q *ProjectQuota) {
		a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
		limited(t, q, a, Limits{Bytes: 16 * mib})
		limited(t, q, b, Limits{Bytes: 16 * mib})
		file := write(t, filepath.Join(b, "file"), "content")
		if err := os.Rename(file, filepath.Join(a, "file")); !errors.Is(err, unix.EXDEV) {
			t.Errorf("rename: got %v, want %v", err, unix.EXDEV)
		}
		if err := os.Link(file, filepath.Join(a, "file")); !errors.Is(err, unix.EXDEV) {
			t.Errorf("link: got %v, want %v", err, unix.EXDEV)
		}
	})
}

func TestProject_LimitOfInodesHolds(t *testing.T) {
	onProjects(t, func(t *testing.T, dir string, q *ProjectQuota) {
		volume := filepath.Join(dir, "volume")
		id := limited(t, q, volume, Limits{Bytes: 16 * mib, Inodes: 100})
		if err := asContainer(t, `for i in $(seq 200); do : > $1/$i; done`, volume); err == nil {
			t.Error("200 files fit, want 100")
		}
		if _, inodes, err := q.Usage(id); err != nil || inodes != 100 {
			t.Errorf("%d inodes are used, %v, want 100", inodes, err)
		}
		check.OK(t, q.SetLimits(id, Limits{Bytes: 16 * mib}))
		if err := asContainer(t, `for i in $(seq 200); do : > $1/$i; done`, volume); err != nil {
			t.Errorf("without a limit of inodes: %v", err)
		}
	})
}

func TestProject_CapSysResourceExceedsItOnExt4ButNotOnXFS(t *testing.T) {
	onProjects(t, func(t *testing.T, dir string, q *ProjectQuota) {
		if !maySysResource(t) {
			lacks(t, "ext4-growth", unix.EPERM)
		}
		volume := filepath.Join(dir, "volume")
		limited(t, q, volume, Limits{Bytes: 16 * mib})
		_, err := run(t.Context(), "sh", "-c", waysIn["plain writes"], "sh", volume)
		if filepath.Base(t.Name()) == "ext4" && err != nil || filepath.Base(t.Name()) == "xfs" && !full(err) {
			t.Error(err)
		}
	})
}

func TestProject_LimitGrows(t *testing.T) {
	onProjects(t, func(t *testing.T, dir string, q *ProjectQuota) {
		volume := filepath.Join(dir, "volume")
		id := limited(t, q, volume, Limits{Bytes: 16 * mib})
		check.OK(t, q.SetLimits(id, Limits{Bytes: 80 * mib}))
		check.Report(t, asContainer(t, waysIn["plain writes"], volume))
	})
}

func TestProjectID_WithALimitOrAFileIsNeverAllocated(t *testing.T) {
	onProjects(t, func(t *testing.T, dir string, q *ProjectQuota) {
		elsewhere := openProjects(t, dir)
		check.OK(t, elsewhere.SetLimits(firstProject, Limits{Inodes: 1}))
		check.OK(t, errors.Join(os.Mkdir(filepath.Join(dir, "d"), 0o755), SetProject(filepath.Join(dir, "d"), firstProject+1)))
		for _, want := range []uint32{firstProject + 2, firstProject + 3} {
			if got := limited(t, q, filepath.Join(dir, fmt.Sprint(want)), Limits{Bytes: mib}); got != want {
				t.Errorf("got id %d, want %d", got, want)
			}
		}
	})
}

func TestProjectID_ReleasedIsAllocatedAgainOnlyWhenItsFilesAreGone(t *testing.T) {
	onProjects(t, func(t *testing.T, dir string, q *ProjectQuota) {
		first := limited(t, q, filepath.Join(dir, "first"), Limits{Bytes: mib})
		limited(t, q, filepath.Join(dir, "second"), Limits{Bytes: mib})
		for range 2 {
			check.OK(t, q.Release(first))
		}
		if got := limited(t, q, filepath.Join(dir, "third"), Limits{Bytes: mib}); got == first {
			t.Fatalf("id %d was handed out while it has a directory", first)
		}
		check.OK(t, os.Remove(filepath.Join(dir, "first")))
		command(t, "sh", "-c", "fsfreeze -f $1 && fsfreeze -u $1", "sh", dir) // xfs counts removed files until its background work is done
		var got []uint32
		for i := range 3 {
			got = append(got, limited(t, q, filepath.Join(dir, fmt.Sprint(i)), Limits{Bytes: mib}))
		}
		if !slices.Contains(got, first) || len(slices.Compact(slices.Sorted(slices.Values(got)))) != 3 {
			t.Errorf("got ids %v, want %d among them, and each once", got, first)
		}
	})
}

func TestReservation_FailureLeavesNothingInTheTable(t *testing.T) {
	onProjects(t, func(t *testing.T, _ string, q *ProjectQuota) {
		failure := errors.New("no room to write it down")
		var reserved uint32
		_, err := q.Reserve(Limits{Bytes: mib}, func(id uint32) error { reserved = id; return failure })
		if !errors.Is(err, failure) {
			t.Errorf("got %v, want %v", err, failure)
		}
		if d, err := q.table.get(reserved); err != nil || !d.free() {
			t.Errorf("id %d: %+v, %v", reserved, d, err)
		}
		if _, err := q.Reserve(Limits{}, func(uint32) error { return nil }); err == nil {
			t.Error("an id without a limit was reserved")
		}
	})
}

func TestProjectID_LeftOnADirectoryByACrashIsNotAllocated(t *testing.T) {
	onProjects(t, func(t *testing.T, dir string, q *ProjectQuota) {
		var left uint32
		_, err := q.Reserve(Limits{Bytes: mib}, func(id uint32) error {
			left = id
			return errors.Join(SetProject(dir, id), errors.New("crash"))
		})
		if err == nil {
			t.Fatal("no error")
		}
		if got := limited(t, q, filepath.Join(dir, "d"), Limits{Bytes: mib}); got == left {
			t.Errorf("id %d was handed out again", got)
		}
	})
}

func TestProjectID_IsUniqueAcrossGoroutinesAndProcesses(t *testing.T) {
	if dir := os.Getenv("HOLDFAST_RESERVE"); dir != "" {
		for _, id := range reserveMany(t, openProjects(t, dir)) {
			fmt.Fprintln(os.Stderr, "id", id)
		}
		return
	}
	onProjects(t, func(t *testing.T, dir string, q *ProjectQuota) {
		const processes = 3
		ids := make(chan []uint32)
		for range processes {
			go func() { ids <- reserveElsewhere(t, dir) }()
		}
		all := reserveMany(t, q)
		for range processes {
			all = append(all, <-ids...)
		}
		slices.Sort(all)
		if distinct := len(slices.Compact(slices.Clone(all))); distinct != len(all) || len(all) != (processes+1)*goroutines*eachReserves {
			t.Errorf("%d ids of %d are distinct, want %d", distinct, len(all), (processes+1)*goroutines*eachReserves)
		}
	})
}

const goroutines, eachReserves = 4, 5

func reserveMany(t testing.TB, q *ProjectQuota) (ids []uint32) {
	t.Helper()
	var (
		mu   sync.Mutex
		busy sync.WaitGroup
	)
	for range goroutines {
		busy.Go(func() {
			for range eachReserves {
				id, err := q.Reserve(Limits{Bytes: mib}, func(uint32) error { // gives the others time to select the same id
					return unix.Syncfs(int(q.table.dir.Fd()))
				})
				check.Report(t, err)
				mu.Lock()
				ids = append(ids, id)
				mu.Unlock()
			}
		})
	}
	busy.Wait()
	return ids
}

func reserveElsewhere(t testing.TB, dir string) (ids []uint32) {
	name, _, _ := strings.Cut(t.Name(), "/")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+name+"$")
	cmd.Env = append(os.Environ(), "HOLDFAST_RESERVE="+dir)
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Error(err)
		return nil
	}
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		id, err := strconv.ParseUint(strings.TrimPrefix(lines.Text(), "id "), 10, 32)
		if err != nil {
			t.Error(lines.Text())
		}
		ids = append(ids, uint32(id))
	}
	check.Report(t, cmd.Wait())
	return ids
}

func TestProject_LockIsOneForAllViewsOfAFileSystem(t *testing.T) {
	onProjects(t, func(t *testing.T, dir string, _ *ProjectQuota) {
		var roots []os.FileInfo
		for _, name := range []string{"one", "two"} {
			view := t.TempDir()
			check.OK(t, os.Mkdir(filepath.Join(dir, name), 0o755))
			t.Cleanup(func() { unmountAll(t, view) })
			command(t, "mount", "--bind", filepath.Join(dir, name), view)
			root := check.Got(openProjects(t, view).root.Stat())(t)
			roots = append(roots, root)
		}
		if whole, err := os.Stat(dir); err != nil || !os.SameFile(roots[0], roots[1]) || !os.SameFile(roots[0], whole) {
			t.Errorf("two views lock %+v and %+v, want %+v, %v", roots[0].Sys(), roots[1].Sys(), whole.Sys(), err)
		}
	})
}

func TestProjectID_HundredReservationsCostLessThanOneWalkOverTenThousand(t *testing.T) {
	hostfs.OnlyFigures(t)
	onProjects(t, func(t *testing.T, _ string, q *ProjectQuota) {
		for id := uint32(firstProject); id < firstProject+10000; id++ {
			check.OK(t, q.SetLimits(id, Limits{Bytes: mib}))
		}
		reserve := func(count int) time.Duration {
			begin := time.Now()
			for range count {
				check.Got(q.Reserve(Limits{Bytes: mib}, func(uint32) error { return nil }))(t)
			}
			return time.Since(begin)
		}
		walk, hundred := reserve(1), reserve(100)
		t.Logf("with 10,000 ids in use the first reservation took %s, the 100 after it %s", walk, hundred)
		if hundred > walk {
			t.Error("want the 100 to take less")
		}
	})
}

func TestProjectQuota_WorksOnKernelsWithoutQuotactlFD(t *testing.T) {
	onProjects(t, func(t *testing.T, dir string, q *ProjectQuota) {
		device := check.Got(deviceUnder(q.table.dir))(t)
		q.table.device = append([]byte(device), 0)
		check.Report(t, q.table.enforced())
		id := limited(t, q, filepath.Join(dir, "d"), Limits{Bytes: mib})
		q.table.device = nil
		if d, err := q.table.get(id); err != nil || d.BlockHard != 1024 || d.Inodes != 1 {
			t.Errorf("got %+v, %v", d, err)
		}
	})
}

func TestProjectQuota_NotEnforcedIsRefusedWithTheRemedy(t *testing.T) {
	for fstype, size := range fileSystems {
		dir := newFS(t, fstype, size)
		if q, err := OpenProjectQuota(dir); err == nil || !strings.Contains(err.Error(), "-o prjquota") || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v, %v, want an error that names %s and the mount option", fstype, q, err, dir)
		}
	}
}
