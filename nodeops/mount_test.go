package nodeops

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

func TestMount_AppliesItsOptions(t *testing.T) {
	requireRoot(t)
	for fstype, size := range fileSystems {
		t.Run(fstype, func(t *testing.T) {
			image := newImage(t, fstype, size)
			t.Setenv("PATH", "") // no command is needed
			dir, device := mountLoop(t, image, fstype, "noatime", "ro")
			m, err := MountAt(dir)
			if err != nil || m == nil || m.FSType != fstype || m.Source != device || m.Root != "/" || !m.ReadOnly {
				t.Errorf("got %+v, %v", m, err)
			}
			if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); !errors.Is(err, unix.EROFS) {
				t.Errorf("writing to a read-only mount: %v", err)
			}
			if m != nil && !has(m.Options, "ro") {
				t.Errorf("the file system is mounted with %s", m.Options)
			}
			check.Report(t, Unmount(t.Context(), dir))
		})
	}
}

// The kernel shows only what differs from what the file system itself says, which is to continue.
func TestMount_Ext4WithErrorsTakesNoMoreWritesUnlessItsOptionsSaySo(t *testing.T) {
	requireRoot(t)
	for _, options := range [][]string{nil, {"errors=continue"}} {
		dir, _ := mountLoop(t, newImage(t, "ext4", fileSystems["ext4"]), "ext4", options...)
		all := check.Got(os.ReadFile("/proc/self/mountinfo"))(t)
		_, line, mounted := strings.Cut(string(all), " "+dir+" ")
		line, _, _ = strings.Cut(line, "\n")
		if !mounted || strings.Contains(line, "errors=remount-ro") != (options == nil) {
			t.Errorf("with the options %v it is mounted (%t) as %s", options, mounted, line)
		}
	}
}

func TestMount_DamagedImageIsRefusedWithTheRemedy(t *testing.T) {
	requireRoot(t)
	wipe := func(from, to int64) func(t *testing.T, image string) {
		return func(t *testing.T, image string) {
			f := check.Got(os.OpenFile(image, os.O_WRONLY, 0))(t)
			defer f.Close()
			check.Got(f.WriteAt(make([]byte, to-from), from))(t)
		}
	}
	for _, c := range []struct {
		name, holds, wanted string
		damage              func(t *testing.T, image string)
		say                 []string
	}{
		{"ext4 start wiped", "ext4", "ext4", wipe(0, mib), []string{"no file system", "snapshot"}},
		{"xfs start wiped", "xfs", "xfs", wipe(0, mib), []string{"no file system", "snapshot"}},
		{"btrfs start wiped", "btrfs", "btrfs", wipe(0, mib), []string{"no file system", "snapshot"}},
		{"another file system", "xfs", "ext4", func(*testing.T, string) {}, []string{"xfs is on it, not ext4"}},
		{"ext4 descriptors wiped", "ext4", "ext4", wipe(4096, 8192), []string{"e2fsck"}},
		{"xfs super block torn", "xfs", "xfs", wipe(32, 48), []string{"xfs_repair"}},
		{"btrfs trees wiped", "btrfs", "btrfs", wipe(mib, 200*mib), []string{"btrfs check"}},
		{"ext4 cut short", "ext4", "ext4", func(t *testing.T, image string) {
			check.OK(t, os.Truncate(image, mib))
		}, []string{"e2fsck"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			image := newImage(t, c.holds, fileSystems[c.holds])
			c.damage(t, image)
			l := attach(t, image, LoopOptions{Autoclear: true})
			target := t.TempDir()
			t.Cleanup(func() { unmountAll(t, target) })
			err := MountFS(t.Context(), l.Path, target, c.wanted, []string{"ro"})
			if !errors.Is(err, ErrDamaged) {
				t.Fatalf("got %v, want ErrDamaged", err)
			}
			for _, say := range append(c.say, l.Path) {
				if !strings.Contains(err.Error(), say) {
					t.Errorf("%q is not in: %v", say, err)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %v", err)
			}
		})
	}
}

func TestMount_UnknownOptionIsNotTakenForDamage(t *testing.T) {
	l := attach(t, newImage(t, "ext4", 16*mib), LoopOptions{Autoclear: true})
	err := MountFS(t.Context(), l.Path, t.TempDir(), "ext4", []string{"nosuchoption"})
	if err == nil || errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "nosuchoption") {
		t.Errorf("got %v, want an error about the option", err)
	}
}

func TestMount_FileSystemUnknownToTheKernelIsNotTakenForDamage(t *testing.T) {
	failure := errors.New("failure")
	err := diagnose(t.Context(), "/dev/null", "strangefs", nil, failure)
	if !errors.Is(err, failure) || errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "does not know strangefs") {
		t.Errorf("got %v, want an error about the kernel", err)
	}
}

func TestMount_OnlyKnownTypesAreMounted(t *testing.T) {
	for _, fstype := range []string{"", "auto", "noxfs", "ext4,xfs", "tmpfs"} {
		if err := MountFS(t.Context(), "/dev/null", t.TempDir(), fstype, nil); err == nil || !strings.Contains(err.Error(), "not supported") {
			t.Errorf("%q: %v", fstype, err)
		}
	}
}

func TestMountOptions_AreChecked(t *testing.T) {
	fine := []string{"ro", "noatime", "commit=30", "discard", "data=writeback", "subvol=/a/b", "errors=remount-ro", "logbsize=256k", "nofail", `context="system_u:object_r:container_file_t:s0:c1,c2"`, "context=a:b:c"}
	check.Report(t, CheckMountOptions(fine))
	for _, o := range []string{
		"", "-o", "--bind", "bind", "rbind", "remount", "move", "loop", "loop=/dev/loop1", "offset=4096", "logdev=/dev/vda", "rtdev=/dev/vda", "device=/dev/vda",
		"journal_path=/dev/vda", "errors=panic", "ro,bind", "commit=1,bind", "X-mount.mkdir", "x-mount.subdir=a", "a b", "a\nb", `context="a",bind`, `context="a",x="b"`, `label="a,bind"`, "=", "helper=x",
	} {
		if err := CheckMountOptions([]string{"ro", o}); err == nil {
			t.Errorf("%q was accepted", o)
		}
	}
}

func TestMountFS_NeverFormats(t *testing.T) {
	image := sparse(t, t.TempDir(), 64*mib)
	l := attach(t, image, LoopOptions{Autoclear: true})
	if err := MountFS(t.Context(), l.Path, t.TempDir(), "ext4", nil); !errors.Is(err, ErrDamaged) {
		t.Errorf("got %v, want ErrDamaged", err)
	}
	if got := allocated(t, image); got != 0 {
		t.Errorf("%d bytes were written", got)
	}
}

// What the error says gets back what lies further back.
func TestMountFS_LostHeadIsNamedWithTheCommandThatRepairsIt(t *testing.T) {
	for fstype, size := range map[string]int64{"ext4": 512 * mib, "xfs": 512 * mib, "btrfs": 512 * mib} {
		t.Run(fstype, func(t *testing.T) {
			image := newImage(t, fstype, size)
			dirs := mountImage(t, image)
			const files = 4000
			for i := range files { // an ext4 has the first of them near its head
				dir := filepath.Join(dirs, strconv.Itoa(i%8))
				check.OK(t, os.MkdirAll(dir, 0o755))
				write(t, filepath.Join(dir, strconv.Itoa(i)), "content")
			}
			unmountAll(t, dirs)
			f, err := os.OpenFile(image, os.O_RDWR, 0)
			check.OK(t, err)
			_, err = f.WriteAt(make([]byte, mib), 0)
			check.OK(t, errors.Join(err, f.Close()))
			before := checksum(t, image)
			l := attach(t, image, LoopOptions{Autoclear: true})
			err = MountFS(t.Context(), l.Path, t.TempDir(), fstype, nil)
			if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), " "+headRepairs[fstype]+" ") || checksum(t, image) != before {
				t.Fatalf("it changed (%t), or the error is %v", checksum(t, image) != before, err)
			}
			repair := strings.Fields(headRepairs[fstype])
			out, err := exec.CommandContext(t.Context(), repair[0], append(repair[1:], l.Path)...).CombinedOutput()
			t.Logf("%v: %.1000s", err, out) // e2fsck fails when it has repaired something
			target := t.TempDir()
			check.OK(t, MountFS(t.Context(), l.Path, target, fstype, nil))
			t.Cleanup(func() { unmountAll(t, target) })
			found := 0
			err = filepath.WalkDir(target, func(path string, e fs.DirEntry, err error) error {
				if err == nil && e.Type().IsRegular() && read(t, path) == "content" {
					found++
				}
				return err
			})
			if err != nil || found < files/4 {
				t.Errorf("%d of %d files are back, %v", found, files, err)
			}
		})
	}
}

func TestMount_DirectoriesAndDevicesAreBound(t *testing.T) {
	source := newFS(t, "ext4", 16*mib, "-b", "4096")
	write(t, filepath.Join(source, "file"), "content")
	dir := t.TempDir()
	for _, readOnly := range []bool{false, true} {
		target := filepath.Join(dir, "dir")
		check.OK(t, os.MkdirAll(target, 0o755))
		t.Cleanup(func() { unmountAll(t, target) })
		check.OK(t, Bind(t.Context(), source, target, readOnly, []string{"noexec"}))
		if got := read(t, filepath.Join(target, "file")); got != "content" {
			t.Errorf("the bound directory holds %q", got)
		}
		err := os.WriteFile(filepath.Join(target, "new"), nil, 0o600)
		if readOnly != errors.Is(err, unix.EROFS) {
			t.Errorf("read-only: %t, but writing gives %v", readOnly, err)
		}
		if m, err := MountAt(target); err != nil || m == nil || m.ReadOnly != readOnly {
			t.Errorf("read-only: %t, but the mount is %+v, %v", readOnly, m, err)
		}
		var st unix.Statfs_t
		if err := unix.Statfs(target, &st); err != nil || st.Flags&unix.ST_NOEXEC == 0 {
			t.Errorf("the option noexec is lost (%v)", err)
		}
		check.OK(t, Unmount(t.Context(), target))
	}

	l := attach(t, sparse(t, t.TempDir(), mib), LoopOptions{Autoclear: true})
	target := write(t, filepath.Join(dir, "device"), "")
	t.Cleanup(func() { unmountAll(t, target) })
	check.OK(t, Bind(t.Context(), l.Path, target, false, nil))
	var device, bound unix.Stat_t
	check.OK(t, errors.Join(unix.Stat(l.Path, &device), unix.Stat(target, &bound)))
	if bound.Mode&unix.S_IFMT != unix.S_IFBLK || bound.Rdev != device.Rdev {
		t.Error("the target is not the device")
	}
}

// Between the steps of a program a kill would leave a mount that can be written.
func TestMount_BindIsReadOnlyInOneStep(t *testing.T) {
	requireRoot(t)
	source, target := t.TempDir(), t.TempDir()
	t.Cleanup(func() { unmountAll(t, target) })
	t.Setenv("PATH", t.TempDir()) // there is no mount
	check.OK(t, Bind(t.Context(), source, target, true, []string{"nosuid"}))
	if m, err := MountAt(target); err != nil || m == nil || !m.ReadOnly {
		t.Errorf("the mount is %+v, %v", m, err)
	}
}

func TestMount_FailedBindLeavesNoMount(t *testing.T) {
	requireRoot(t)
	target := t.TempDir()
	t.Cleanup(func() { unmountAll(t, target) })
	// A mount command whose second step, the read-only remount, fails.
	genuine := check.Got(exec.LookPath("mount"))(t)
	bin := t.TempDir()
	write(t, filepath.Join(bin, "mount"), "#!/bin/sh\ncase \"$*\" in *remount*) echo second step >&2; exit 32;; esac\nexec "+genuine+" \"$@\"\n")
	check.OK(t, os.Chmod(filepath.Join(bin, "mount"), 0o700))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	// The option is none of a mount, so it takes two steps.
	if err := Bind(t.Context(), t.TempDir(), target, true, []string{"sync"}); err == nil || !strings.Contains(err.Error(), "second step") {
		t.Errorf("got %v, want the failure of the second step", err)
	}
	if m, err := MountAt(target); m != nil || err != nil {
		t.Errorf("writable, at a place that should be read-only: %+v, %v", m, err)
	}
	if err := Bind(t.Context(), "/no/such/dir", target, false, nil); err == nil || !strings.Contains(err.Error(), "/no/such/dir") {
		t.Errorf("got %v, want an error that names the source", err)
	}
}

func TestUnmount_RemovesStackedMountsAndAcceptsNone(t *testing.T) {
	requireRoot(t)
	target := t.TempDir()
	t.Cleanup(func() { unmountAll(t, target) })
	for range 3 {
		check.OK(t, Bind(t.Context(), t.TempDir(), target, false, nil))
	}
	for range 2 {
		check.OK(t, Unmount(t.Context(), target))
	}
	if m, err := MountAt(target); m != nil || err != nil {
		t.Errorf("still mounted: %+v, %v", m, err)
	}
	check.Report(t, Unmount(t.Context(), filepath.Join(target, "never", "there")))
}

func TestUnmount_OfABusyMountIsReported(t *testing.T) {
	dir := newFS(t, "ext4", 16*mib)
	f := check.Got(os.Open(dir))(t)
	defer f.Close()
	if err := Unmount(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "busy") || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %v, want an error that names %s and says it is busy", err, dir)
	}
}

func TestUnmount_WaitsForATransientUserOfTheFileSystem(t *testing.T) {
	hostfs.NotInGate(t, "races two timers")
	requireRoot(t)
	dir := t.TempDir()
	check.OK(t, unix.Mount("test", dir, "tmpfs", 0, ""))
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	looking := check.Got(os.Open(dir))(t)
	defer time.AfterFunc(5*busyPause, func() { looking.Close() }).Stop()
	check.Report(t, Unmount(t.Context(), dir))
}

func TestMount_CancelledCallMountsAndUnmountsNothing(t *testing.T) {
	requireRoot(t)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	target := t.TempDir()
	t.Cleanup(func() { unmountAll(t, target) })
	l := attach(t, newImage(t, "ext4", 16*mib), LoopOptions{Autoclear: true})
	if err := MountFS(gone, l.Path, target, "ext4", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("MountFS: %v", err)
	}
	if err := Bind(gone, t.TempDir(), target, false, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Bind: %v", err)
	}
	if m, err := MountAt(target); m != nil || err != nil {
		t.Fatalf("mounted: %+v, %v", m, err)
	}
	check.OK(t, MountFS(t.Context(), l.Path, target, "ext4", nil))
	if err := Unmount(gone, target); !errors.Is(err, context.Canceled) {
		t.Errorf("Unmount: %v", err)
	}
}
