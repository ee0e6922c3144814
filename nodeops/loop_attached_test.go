package nodeops

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

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
	if got := loopsOf(t, image); len(got) > 0 {
		t.Fatalf("the image is said to be attached to %v", got)
	}
	ours := attach(t, image, LoopOptions{Autoclear: true})
	if ours.Path == theirs {
		t.Fatal("the volume was given the device of another image")
	}
	if got := loopsOf(t, image); !slices.Equal(got, []string{ours.Path}) {
		t.Errorf("the image is said to be attached to %v, want %s", got, ours.Path)
	}
}

func TestAttachLoop_ADeviceThatHasBecomeAnothersIsNotReused(t *testing.T) {
	requireRoot(t)
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
	l, err := AttachLoop(t.Context(), image, LoopOptions{})
	check.OK(t, err)
	user, err := os.OpenFile(l.Path, os.O_RDWR, 0)
	check.OK(t, err)
	want := bytes.Repeat([]byte("data"), int(mib))
	check.Got(user.WriteAt(want, 4096))(t)
	check.OK(t, user.Close())
	check.OK(t, l.Detach(t.Context()))
	got, err := os.ReadFile(image)
	if err != nil || !bytes.Equal(got[4096:4096+len(want)], want) {
		t.Errorf("of what was written %d bytes are lost (%v)", len(want)-bytes.Count(got, []byte("data"))*4, err)
	}
}
