package nodeops

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

// mountedAt returns the topmost mount at a target.
func mountedAt(t testing.TB, target string) *Mount {
	t.Helper()
	m, err := MountAt(target)
	if err != nil || m == nil {
		t.Fatalf("nothing is mounted at %s: %v", target, err)
	}
	return m
}

// mountFor mounts until the test ends.
func mountFor(t testing.TB, source, target, fstype string, flags uintptr) *Mount {
	t.Helper()
	requireRoot(t)
	check.OK(t, unix.Mount(source, target, fstype, flags, ""))
	t.Cleanup(func() { unmountAll(t, target) })
	return mountedAt(t, target)
}

func TestLoopUnder_IsTheDeviceThatTheFileSystemLiesOnAndNoNameOfAMount(t *testing.T) {
	eachFS(t, func(t *testing.T, fstype string, size int64) {
		l := attach(t, newImage(t, fstype, size), LoopOptions{Autoclear: true})
		m := mountFor(t, l.Path, t.TempDir(), fstype, 0)
		check.Same(t, LoopUnder(m), l.Path)
		liar := mountFor(t, l.Path, t.TempDir(), "tmpfs", 0)
		if got := LoopUnder(liar); liar.Source != l.Path || got != "" {
			t.Errorf("a tmpfs that calls itself %s is said to lie on %q", liar.Source, got)
		}
		if !MayUse(l.Path)(*liar) {
			t.Error("what calls itself the device is not said to be a possible use of it")
		}
		covered := *m
		mountFor(t, "cover", m.Target, "tmpfs", 0)
		if got := LoopUnder(&covered); got != l.Path && got != "" {
			t.Errorf("covered by another mount it is said to lie on %q", got)
		}
	})
}

func TestLoopNode_IsTheDeviceOfTheNodeAndNotOfItsName(t *testing.T) {
	one, other := attach(t, sparse(t, t.TempDir(), mib), LoopOptions{}), attach(t, sparse(t, t.TempDir(), mib), LoopOptions{})
	file := write(t, filepath.Join(t.TempDir(), "node"), "")
	m := mountFor(t, one.Path, file, "", unix.MS_BIND)
	check.Same(t, LoopNode(m), one.Path)
	var st unix.Stat_t
	check.OK(t, unix.Stat(other.Path, &st))
	dir := t.TempDir()
	mountFor(t, "liar", dir, "tmpfs", 0)
	forged := filepath.Join(dir, filepath.Base(one.Path)) // has the name of one device, and is the node of another
	check.OK(t, unix.Mknod(forged, unix.S_IFBLK|0o600, int(st.Rdev)))
	if got := LoopNode(mountFor(t, forged, write(t, filepath.Join(t.TempDir(), "node"), ""), "", unix.MS_BIND)); got == one.Path {
		t.Errorf("a node of %s is taken for %s because it bears its name", other.Path, one.Path)
	}
	named := filepath.Join(dir, "below", filepath.Base(one.Path))
	check.OK(t, os.MkdirAll(named, 0o755))
	for what, m := range map[string]*Mount{
		"a node that a pod has made":  mountFor(t, forged, write(t, filepath.Join(t.TempDir(), "node"), ""), "", unix.MS_BIND),
		"a directory with its name":   mountFor(t, named, t.TempDir(), "", unix.MS_BIND),
		"a directory with that root":  {Device: m.Device, Root: "/pods/" + filepath.Base(one.Path), Target: "/nowhere"},
		"a file of another of a name": {Device: "0:1", Root: m.Root, Target: m.Target},
	} {
		if used := MayUse(one.Path)(*m); used != (m.Target == "/nowhere") {
			t.Errorf("%s may use the device: %t", what, used)
		}
		if got := LoopNode(m); got != "" {
			t.Errorf("%s is said to be the node of %s", what, got)
		}
	}
	below := *m
	mountFor(t, other.Path, file, "", unix.MS_BIND)
	check.Same(t, LoopNode(&below), "")
}

func TestAttachLoop_DeviceDetachedWhileItsNodeIsInUseIsNotAllocated(t *testing.T) {
	one := sparse(t, t.TempDir(), mib)
	l := attach(t, one, LoopOptions{})
	m := mountFor(t, l.Path, write(t, filepath.Join(t.TempDir(), "node"), ""), "", unix.MS_BIND)
	check.OK(t, l.Detach(t.Context())) // as any process with access to the node can do
	for range 3 {                      // no new node is created for each
		if other := attach(t, sparse(t, t.TempDir(), mib), LoopOptions{}); other.Path == l.Path {
			t.Fatalf("another image is attached to %s, whose node is seen at %s", l.Path, m.Target)
		}
	}
}

func TestDetach_KeepsADeviceThatAnotherProcessHasOpenUntilItIsClosed(t *testing.T) {
	image := sparse(t, t.TempDir(), mib)
	l := attach(t, image, LoopOptions{})
	theirs := check.Got(os.Open(l.Path))(t)
	defer theirs.Close()
	if err := l.Detach(t.Context()); err == nil {
		t.Fatal("it was detached while another process has it open")
	}
	// What they request now has no effect: the device does not become free while they have it open.
	_ = unix.IoctlSetInt(int(theirs.Fd()), unix.LOOP_CLR_FD, 0)
	if !IsAttached(l.Path, image) {
		t.Error("the other process has detached it")
	}
	theirs.Close()
	if err := l.Detach(t.Context()); err != nil || IsAttached(l.Path, image) {
		t.Errorf("it is not detached though no process has it open: %v", err)
	}
}

// FuzzMounts: for any mount table, no device is reported for a mount of another one.
func FuzzMounts(f *testing.F) {
	table := check.Got(os.ReadFile("/proc/self/mountinfo"))(f)
	l := &Loop{Path: "/dev/loop0"}
	if os.Geteuid() == 0 {
		l = attach(f, sparse(f, f.TempDir(), mib), LoopOptions{})
	}
	number := DeviceNumber(l.Path)
	f.Add(string(table))
	for _, line := range []string{
		"36 35 0:45 / /mnt rw - tmpfs %[1]s rw", "36 35 %[2]s / /mnt rw shared:1 - ext4 /dev/loop9 rw", "36 35 0:45 / / rw - btrfs %[1]s rw",
		"36 35 0:5 /%[3]s %[1]s rw - devtmpfs devtmpfs rw", "36 35 7:../../../etc / /mnt rw - ext4 %[1]s rw", `36 35 %[2]s /\040\134 /\0 rw - - -`, " - ", "7: - - -",
	} {
		f.Add(fmt.Sprintf(line, l.Path, number, filepath.Base(l.Path)))
	}
	f.Fuzz(func(t *testing.T, table string) {
		for _, m := range parseMounts(table) {
			if hangs(&m) {
				continue
			}
			if LoopUnder(&m) == l.Path && m.Device != number {
				t.Errorf("%+v is taken for a file system on %s", m, l.Path)
			}
			if LoopNode(&m) == l.Path && DeviceNumber(m.Target) != number {
				t.Errorf("%+v is taken for the node of %s", m, l.Path)
			}
			if strings.Contains(LoopUnder(&m)+LoopNode(&m), "..") {
				t.Errorf("%+v leads out of /dev", m)
			}
		}
	})
}

// hangs returns whether the path has side effects when opened.
func hangs(m *Mount) bool {
	return strings.HasPrefix(m.Target, "/dev/") || strings.HasPrefix(m.Target, "/proc/") || strings.HasPrefix(m.Target, "/sys/")
}

// FuzzDevices: for any sysfs, a device is described or skipped, and a virtual one never counts as a disk of this host.
func FuzzDevices(f *testing.F) {
	f.Add("disk", "7:1", "2048", "model", "id", "0", "holder", true)
	f.Add("loop!1", "", "-1", "", "", "1", "", false)
	f.Add("a", "7:1\n8:0", "9223372036854775807", "\x00", "\n", "0\n", "h", true)
	f.Fuzz(func(t *testing.T, name, number, size, model, id, removable, holder string, virtual bool) {
		sysfs := t.TempDir()
		name, holder = clean(name, "disk"), clean(holder, "holder")
		place := filepath.Join(sysfs, "devices/pci0000:00", name)
		if virtual {
			place = filepath.Join(sysfs, "devices/virtual/block", name)
		}
		for _, dir := range []string{filepath.Join(sysfs, "block"), filepath.Join(place, "holders", holder), filepath.Join(place, "device"), filepath.Join(place, "queue")} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Skip(err)
			}
		}
		for file, content := range map[string]string{"dev": number, "size": size, "device/model": model, "wwid": id, "removable": removable} {
			write(t, filepath.Join(place, file), content)
		}
		check.OK(t, os.Symlink(place, filepath.Join(sysfs, "block", name)))
		all, err := devicesIn(filepath.Join(sysfs, "block"))
		if err != nil {
			return
		}
		for _, d := range all {
			if d.Local && (virtual || strings.TrimSpace(removable) == "1") || d.Size <= 0 || len(d.Holders) != 1 || !strings.HasPrefix(d.Path, "/dev/") {
				t.Errorf("%+v", d)
			}
		}
	})
}

// clean makes one valid file name of fuzz data.
func clean(name, otherwise string) string {
	name = strings.Map(func(r rune) rune {
		if r == 0 || r == '/' {
			return -1
		}
		return r
	}, name)
	if name == "" || name == "." || name == ".." || len(name) > 100 {
		return otherwise
	}
	return name
}

func TestLoop_DeviceThatWasMadeReadOnlyForOneImageIsWritableForTheNext(t *testing.T) {
	lent := lend(t, unlikely, 1)
	setReadOnly(t, lent[0])
	l := attach(t, sparse(t, t.TempDir(), mib), LoopOptions{Among: lent})
	check.Same(t, isReadOnly(t, l.Path), false)
	setReadOnly(t, l.Path)
	check.OK(t, l.Detach(t.Context()))
	check.Same(t, isReadOnly(t, l.Path), false)
}

func setReadOnly(t *testing.T, device string) {
	t.Helper()
	check.OK(t, onDevice(device, func(fd int) error { return unix.IoctlSetPointerInt(fd, unix.BLKROSET, 1) }))
}

func isReadOnly(t *testing.T, device string) (readOnly bool) {
	t.Helper()
	check.OK(t, onDevice(device, func(fd int) error {
		set, err := unix.IoctlGetInt(fd, unix.BLKROGET)
		readOnly = set != 0
		return err
	}))
	return readOnly
}

// attachElsewhere attaches another file that has the path of the victim's image in another mount namespace, as any pod
// with a loop device can do. The kernel then reports the victim's path.
func attachElsewhere(t *testing.T, image string) (device string) {
	t.Helper()
	requireRoot(t)
	const script = `
		mount -t tmpfs none "$1"
		truncate -s 16M "$2"
		losetup --find --show "$2"
		read end || exit 0`
	device = hostfs.Beside(t, "unshare", "--mount", "sh", "-ec", script, "sh", filepath.Dir(image), image)
	t.Cleanup(func() {
		check.Report(t, detachIf(context.WithoutCancel(t.Context()), device, func(File) bool { return true }))
	})
	if name, err := BackingFile(device); err != nil || name != image {
		t.Fatalf("%s says it is attached to %q, %v, want the victim's path %s: this tests nothing", device, name, err, image)
	}
	return device
}

func TestLoopsOf_AFileOfTheSamePathInAnotherMountNamespaceIsNotTakenForTheImage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "volumes", "victim")
	check.OK(t, os.MkdirAll(dir, 0o700))
	image := sparse(t, dir, 16*mib)
	theirs := attachElsewhere(t, image)
	isOn(t, image)
	ours := attach(t, image, LoopOptions{Autoclear: true})
	if ours.Path == theirs {
		t.Fatal("the volume was given the device of another image")
	}
	isOn(t, image, ours.Path)
}

func TestAttachLoop_ADeviceThatHasBecomeAnothersIsNotReused(t *testing.T) {
	image, other := sparse(t, t.TempDir(), mib), sparse(t, t.TempDir(), mib)
	theirs := attach(t, other, LoopOptions{})
	if l, err := reuseLoop(theirs.Path, image, LoopOptions{}); err == nil {
		l.Close()
		t.Error("a device that is attached to another file was taken for the image's")
	}
}

// A process that writes to a block device need not sync it: what it wrote belongs to the volume.
func TestDetach_KeepsWhatIsOnlyInTheCacheOfTheDevice(t *testing.T) {
	requireRoot(t)
	image := sparse(t, t.TempDir(), 16*mib)
	l := check.Got(AttachLoop(t.Context(), image, LoopOptions{}))(t)
	user := check.Got(os.OpenFile(l.Path, os.O_RDWR, 0))(t)
	want := bytes.Repeat([]byte("data"), int(mib))
	check.Got(user.WriteAt(want, 4096))(t)
	check.OK(t, user.Close())
	check.OK(t, l.Detach(t.Context()))
	got, err := os.ReadFile(image)
	if err != nil || !bytes.Equal(got[4096:4096+len(want)], want) {
		t.Errorf("of what was written %d bytes are lost (%v)", len(want)-bytes.Count(got, []byte("data"))*4, err)
	}
}
