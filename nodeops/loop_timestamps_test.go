package nodeops

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestAttachLoop_WriteChangesNoTimestampOfAnImageOnXFS(t *testing.T) {
	image := sparse(t, newFS(t, "xfs", fileSystems["xfs"]), 16*mib)
	changed := func() time.Time { return check.Got(os.Stat(image))(t).ModTime() }
	long := time.Now().Add(-time.Hour)
	check.OK(t, os.Chtimes(image, long, long))
	for range 2 {
		before := changed()
		l := attach(t, image, LoopOptions{})
		attached := changed()
		if !attached.After(before) {
			t.Error("the image shows no sign that it was attached")
		}
		if name := check.Got(BackingFile(l.Path))(t); name != image {
			t.Errorf("the kernel calls it %s", name)
		}
		device := check.Got(os.OpenFile(l.Path, os.O_RDWR|unix.O_SYNC, 0))(t)
		check.Got(device.WriteAt([]byte("written"), 8*mib))(t)
		check.OK(t, device.Close())
		if got := read(t, image)[8*mib:][:7]; got != "written" || !changed().Equal(attached) {
			t.Errorf("the image has %q, of %v, and was attached at %v", got, changed(), attached)
		}
		check.OK(t, l.Detach(t.Context()))
	}
}
