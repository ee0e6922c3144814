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
			options := map[string][]string{"ext4": {"-O", "quota,project", "-E", "quotatype=prjquota"}}[fstype]
			image, dir := newImage(t, fstype, 512*mib, options...), newTarget(t)
			_, err := run(t.Context(), "mount", "-o", "loop,prjquota", image, dir)
			q, unsupported := OpenProjectQuota(dir)
			if err := errors.Join(err, unsupported); err != nil {
				lacks(t, "prjquota", err)
			}
			t.Cleanup(func() { q.Close() })
			test(t, dir, q)
		})
	}
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

func isFull(t testing.TB, err error) {
	t.Helper()
	if !full(err) {
		t.Errorf("got %v, want that it is full", err)
	}
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
				isFull(t, asContainer(t, script, volume))
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

func TestProject_LimitGrowsAndNothingMovesIntoItFromAnother(t *testing.T) {
	onProjects(t, func(t *testing.T, dir string, q *ProjectQuota) {
		a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
		id := limited(t, q, a, Limits{Bytes: 16 * mib})
		limited(t, q, b, Limits{Bytes: 16 * mib})
		file := write(t, filepath.Join(b, "file"), "content")
		check.Fails(t, os.Rename(file, filepath.Join(a, "file")), unix.EXDEV)
		check.Fails(t, os.Link(file, filepath.Join(a, "file")), unix.EXDEV)
		check.OK(t, q.SetLimits(id, Limits{Bytes: 80 * mib}))
		check.Report(t, asContainer(t, waysIn["plain writes"], a))
	})
}

func TestProject_LimitOfInodesHolds(t *testing.T) {
	onProjects(t, func(t *testing.T, dir string, q *ProjectQuota) {
		volume := filepath.Join(dir, "volume")
		id := limited(t, q, volume, Limits{Bytes: 16 * mib, Inodes: 100})
		check.Fails(t, asContainer(t, `for i in $(seq 200); do : > $1/$i; done`, volume), nil)
		if _, inodes, err := q.Usage(id); err != nil || inodes != 100 {
			t.Errorf("%d inodes are used, %v, want 100", inodes, err)
		}
		check.OK(t, q.SetLimits(id, Limits{Bytes: 16 * mib}))
		check.Report(t, asContainer(t, `for i in $(seq 200); do : > $1/$i; done`, volume)) // without a limit of inodes
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

func TestProjectID_WithALimitOrAFileIsNeverAllocated(t *testing.T) {
	onProjects(t, func(t *testing.T, dir string, q *ProjectQuota) {
		elsewhere := openProjects(t, dir)
		check.OK(t, elsewhere.SetLimits(firstProject, Limits{Inodes: 1}))
		check.OK(t, errors.Join(os.Mkdir(filepath.Join(dir, "d"), 0o755), SetProject(filepath.Join(dir, "d"), firstProject+1)))
		for _, want := range []uint32{firstProject + 2, firstProject + 3} {
			check.Same(t, limited(t, q, filepath.Join(dir, fmt.Sprint(want)), Limits{Bytes: mib}), want)
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

func TestProjectID_OfAReservationThatFailedIsInNoTableAndNotAllocatedWhereADirectoryHasIt(t *testing.T) {
	onProjects(t, func(t *testing.T, dir string, q *ProjectQuota) {
		crash := errors.New("crash")
		for _, left := range []bool{false, true} {
			var reserved uint32
			check.Fails(t, check.ErrorOf(q.Reserve(Limits{Bytes: mib}, func(id uint32) error {
				if reserved = id; left {
					check.OK(t, SetProject(dir, id))
				}
				return crash
			})), crash)
			if d, err := q.table.get(reserved); err != nil || d.free() == left {
				t.Errorf("id %d: %+v, %v", reserved, d, err)
			}
			if got := limited(t, q, filepath.Join(dir, fmt.Sprint(left)), Limits{Bytes: mib}); left && got == reserved {
				t.Errorf("id %d was handed out again", got)
			}
		}
		check.Fails(t, check.ErrorOf(q.Reserve(Limits{}, func(uint32) error { return nil })), nil)
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
		check.Fails(t, check.ErrorOf(OpenProjectQuota(dir)), nil, "-o prjquota", dir)
	}
}

func TestProject_CoversATreeOfItsFileSystemAndLaterFiles(t *testing.T) {
	onProjects(t, func(t *testing.T, dir string, q *ProjectQuota) {
		outside := write(t, filepath.Join(dir, "outside"), "not ours")
		tree := filepath.Join(dir, "tree")
		sub := filepath.Join(tree, "sub", "deeper")
		check.OK(t, os.MkdirAll(sub, 0o755))
		file := write(t, filepath.Join(sub, "file"), "content")
		check.OK(t, os.Symlink(outside, filepath.Join(sub, "link")))
		check.OK(t, unix.Mkfifo(filepath.Join(sub, "pipe"), 0o600))
		inner := filepath.Join(tree, "inner")
		t.Cleanup(func() { unmountAll(t, inner) })
		check.OK(t, errors.Join(os.Mkdir(inner, 0o755), unix.Mount("none", inner, "tmpfs", 0, ""))) // which has no projects
		write(t, filepath.Join(inner, "file"), "")
		const id = 77
		for range 2 {
			check.OK(t, SetProject(tree, id))
		}
		later := write(t, filepath.Join(sub, "later"), "content")
		for path, inherits := range map[string]bool{tree: true, sub: true, file: false, later: false} {
			if got, inherit, err := ProjectOf(path); err != nil || got != id || inherit && !inherits || !inherit && inherits {
				t.Errorf("%s: project %d, inherited %t, %v", path, got, inherit, err)
			}
		}
		if got, _, err := ProjectOf(outside); err != nil || got != 0 {
			t.Errorf("what a link leads to has project %d, %v", got, err)
		}
		if bytes, inodes, err := q.Usage(id); err != nil || inodes != 5 || bytes <= 0 {
			t.Errorf("%d bytes and %d inodes are used, %v, want 5: tree, sub, deeper, file, later", bytes, inodes, err)
		}
	})
}
