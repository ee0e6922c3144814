package nodeops

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestFSContent_CopiedToZerosIsAFileSystem(t *testing.T) {
	requireRoot(t)
	for fstype, size := range fileSystems {
		t.Run(fstype, func(t *testing.T) {
			content := check.Got(NewFSContent(t.Context(), size, MkfsSpec{FSType: fstype}))(t)
			defer content.Close()
			image := sparse(t, t.TempDir(), size)
			f := check.Got(os.OpenFile(image, os.O_RDWR, 0))(t)
			defer f.Close()
			check.OK(t, content.CopyTo(t.Context(), f, 4<<10))
			if checksum(t, image) != checksum(t, content.file.Name()) {
				t.Error("it differs")
			}
			if is := allocated(t, image); is > 16*mib {
				t.Errorf("it takes %d bytes", is)
			}
			target, l := t.TempDir(), attach(t, image, LoopOptions{Autoclear: true})
			check.OK(t, MountFS(t.Context(), l.Path, target, fstype, nil))
			t.Cleanup(func() { unmountAll(t, target) })
			write(t, filepath.Join(target, "file"), "holdfast")
		})
	}
}

// What mkfs.xfs fills with zeros is in the memory of the process.
func TestFSContent_OfALargeXFSTakesLittleMemory(t *testing.T) {
	requireRoot(t)
	content := check.Got(NewFSContent(t.Context(), 8<<40, MkfsSpec{FSType: "xfs"}))(t)
	defer content.Close()
	if is := allocated(t, content.file.Name()); is > mostLog+16*mib {
		t.Errorf("it takes %d bytes", is)
	}
}
