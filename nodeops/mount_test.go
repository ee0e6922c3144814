package nodeops

import (
	"context"
	"errors"
	"fmt"
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
	eachFS(t, func(t *testing.T, fstype string, size int64) {
		image := newImage(t, fstype, size)
		t.Setenv("PATH", "") // no command is needed
		dir, device := mountLoop(t, image, fstype, "noatime", "ro")
		if m := mountedAt(t, dir); m.FSType != fstype || m.Source != device || m.Root != "/" || !m.ReadOnly || !has(m.Options, "ro") {
			t.Errorf("got %+v", m)
		}
		check.Fails(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600), unix.EROFS)
		check.Report(t, Unmount(t.Context(), dir))
	})
}

// The kernel shows only what differs from what the file system itself says, which is to continue.
func TestMount_Ext4WithErrorsTakesNoMoreWritesUnlessItsOptionsSaySo(t *testing.T) {
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
		return func(t *testing.T, image string) { hostfs.Overwrite(t, image, from, make([]byte, to-from)...) }
	}
	for _, c := range []struct {
		name, holds, requested string
		damage                 func(t *testing.T, image string)
		say                    []string
	}{
		{"ext4 start wiped", "ext4", "ext4", wipe(0, mib), []string{"no file system", "snapshot"}},
		{"xfs start wiped", "xfs", "xfs", wipe(0, mib), []string{"no file system", "snapshot"}},
		{"btrfs start wiped", "btrfs", "btrfs", wipe(0, mib), []string{"no file system", "snapshot"}},
		{"another file system", "xfs", "ext4", func(*testing.T, string) {}, []string{"xfs is on it, not ext4"}},
		{"ext4 descriptors wiped", "ext4", "ext4", wipe(4096, 8192), []string{"e2fsck"}},
		{"xfs super block torn", "xfs", "xfs", wipe(32, 48), []string{"xfs_repair"}},
		{"btrfs trees wiped", "btrfs", "btrfs", wipe(mib, 200*mib), []string{"btrfs check"}},
		{"ext4 cut short", "ext4", "ext4", func(t *testing.T, image string) { check.OK(t, os.Truncate(image, mib)) }, []string{"e2fsck"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			image := newImage(t, c.holds, fileSystems[c.holds])
			c.damage(t, image)
			l := attach(t, image, LoopOptions{Autoclear: true})
			target := newTarget(t)
			err := MountFS(t.Context(), l.Path, target, c.requested, []string{"ro"})
			check.Fails(t, err, ErrDamaged, append(c.say, l.Path)...)
			if strings.Contains(fmt.Sprint(err), "\n") {
				t.Errorf("more than one line: %v", err)
			}
		})
	}
}

func TestMount_WhatTheKernelDoesNotKnowIsNotTakenForDamage(t *testing.T) {
	l := attach(t, newImage(t, "ext4", 16*mib), LoopOptions{Autoclear: true})
	option := MountFS(t.Context(), l.Path, t.TempDir(), "ext4", []string{"nosuchoption"})
	check.Fails(t, option, nil, "nosuchoption")
	failure := errors.New("failure")
	strange := diagnose(t.Context(), "/dev/null", "strangefs", nil, failure)
	check.Fails(t, strange, failure, "does not know strangefs")
	if errors.Is(option, ErrDamaged) || errors.Is(strange, ErrDamaged) {
		t.Errorf("taken for damage: %v, %v", option, strange)
	}
	for _, fstype := range []string{"", "auto", "noxfs", "ext4,xfs", "tmpfs"} {
		check.Fails(t, MountFS(t.Context(), "/dev/null", t.TempDir(), fstype, nil), nil, "not supported")
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
	eachFS(t, func(t *testing.T, fstype string, _ int64) {
		image := sparse(t, t.TempDir(), 64*mib)
		l := attach(t, image, LoopOptions{Autoclear: true})
		check.Fails(t, MountFS(t.Context(), l.Path, newTarget(t), fstype, nil), ErrDamaged)
		check.Same(t, allocated(t, image), 0)
	})
}

// What the error says gets back what lies further back.
func TestMountFS_LostHeadIsNamedWithTheCommandThatRepairsIt(t *testing.T) {
	eachFS(t, func(t *testing.T, fstype string, _ int64) {
		image := newImage(t, fstype, 512*mib)
		dirs := mountImage(t, image)
		const files = 4000
		for i := range files { // an ext4 has the first of them near its head
			dir := filepath.Join(dirs, strconv.Itoa(i%8))
			check.OK(t, os.MkdirAll(dir, 0o755))
			write(t, filepath.Join(dir, strconv.Itoa(i)), "content")
		}
		unmountAll(t, dirs)
		hostfs.Overwrite(t, image, 0, make([]byte, mib)...)
		before := checksum(t, image)
		l := attach(t, image, LoopOptions{Autoclear: true})
		check.Fails(t, MountFS(t.Context(), l.Path, t.TempDir(), fstype, nil), ErrDamaged, " "+headRepairs[fstype]+" ")
		check.Same(t, checksum(t, image), before) // nothing is formatted
		repair := strings.Fields(headRepairs[fstype])
		out, err := exec.CommandContext(t.Context(), repair[0], append(repair[1:], l.Path)...).CombinedOutput()
		t.Logf("%v: %.1000s", err, out) // e2fsck fails when it has repaired something
		target := newTarget(t)
		check.OK(t, MountFS(t.Context(), l.Path, target, fstype, nil))
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

func TestMount_DirectoriesAndDevicesAreBound(t *testing.T) {
	source := newFS(t, "ext4", 16*mib, "-b", "4096")
	write(t, filepath.Join(source, "file"), "content")
	dir := t.TempDir()
	t.Setenv("PATH", t.TempDir()) // between the steps of a program, a kill would leave a mount that can be written
	for _, readOnly := range []bool{false, true} {
		target := filepath.Join(dir, "dir")
		check.OK(t, os.MkdirAll(target, 0o755))
		t.Cleanup(func() { unmountAll(t, target) })
		check.OK(t, Bind(t.Context(), source, target, readOnly, []string{"noexec"}))
		holds(t, filepath.Join(target, "file"), "content")
		err := os.WriteFile(filepath.Join(target, "new"), nil, 0o600)
		if readOnly != errors.Is(err, unix.EROFS) {
			t.Errorf("read-only: %t, but writing gives %v", readOnly, err)
		}
		check.Same(t, mountedAt(t, target).ReadOnly, readOnly)
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

func TestMount_FailedBindLeavesNoMount(t *testing.T) {
	requireRoot(t)
	target := newTarget(t)
	// A mount command whose second step, the read-only remount, fails.
	genuine := check.Got(exec.LookPath("mount"))(t)
	bin := t.TempDir()
	write(t, filepath.Join(bin, "mount"), "#!/bin/sh\ncase \"$*\" in *remount*) echo second step >&2; exit 32;; esac\nexec "+genuine+" \"$@\"\n")
	check.OK(t, os.Chmod(filepath.Join(bin, "mount"), 0o700))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	// The option is none of a mount, so it takes two steps.
	check.Fails(t, Bind(t.Context(), t.TempDir(), target, true, []string{"sync"}), nil, "second step")
	unmounted(t, target)
	check.Fails(t, Bind(t.Context(), "/no/such/dir", target, false, nil), nil, "/no/such/dir")
}

func TestUnmount_RemovesStackedMountsAndAcceptsNone(t *testing.T) {
	requireRoot(t)
	target := newTarget(t)
	for range 3 {
		check.OK(t, Bind(t.Context(), t.TempDir(), target, false, nil))
	}
	for range 2 {
		check.OK(t, Unmount(t.Context(), target))
	}
	unmounted(t, target)
	check.Report(t, Unmount(t.Context(), filepath.Join(target, "never", "there")))
}

func TestUnmount_OfABusyMountIsReported(t *testing.T) {
	dir := newFS(t, "ext4", 16*mib)
	f := check.Got(os.Open(dir))(t)
	defer f.Close()
	check.Fails(t, Unmount(t.Context(), dir), nil, "busy", dir)
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
	target := newTarget(t)
	l := attach(t, newImage(t, "ext4", 16*mib), LoopOptions{Autoclear: true})
	check.Fails(t, MountFS(gone, l.Path, target, "ext4", nil), context.Canceled)
	check.Fails(t, Bind(gone, t.TempDir(), target, false, nil), context.Canceled)
	unmounted(t, target)
	check.OK(t, MountFS(t.Context(), l.Path, target, "ext4", nil))
	check.Fails(t, Unmount(gone, target), context.Canceled)
}
