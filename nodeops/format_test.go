package nodeops

import (
	"os"
	"path/filepath"
	"testing"
)

func TestFSContent_CopiedToZerosIsAFileSystem(t *testing.T) {
	requireRoot(t)
	for fstype, size := range fileSystems {
		t.Run(fstype, func(t *testing.T) {
			content, err := NewFSContent(t.Context(), size, MkfsSpec{FSType: fstype})
			if err != nil {
				t.Fatal(err)
			}
			defer content.Close()
			image := sparse(t, t.TempDir(), size)
			f, err := os.OpenFile(image, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if err := content.CopyTo(t.Context(), f); err != nil {
				t.Fatal(err)
			}
			if checksum(t, image) != checksum(t, content.file.Name()) {
				t.Error("it differs")
			}
			if is := allocated(t, image); is > 16*mib {
				t.Errorf("it takes %d bytes", is)
			}
			target, l := t.TempDir(), attach(t, image, LoopOptions{Autoclear: true})
			if err := MountFS(t.Context(), l.Path, target, fstype, nil); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { unmountAll(t, target) })
			write(t, filepath.Join(target, "file"), "holdfast")
		})
	}
}

// What mkfs.xfs fills with zeros is in the memory of the process.
func TestFSContent_OfALargeXFSTakesLittleMemory(t *testing.T) {
	requireRoot(t)
	content, err := NewFSContent(t.Context(), 8<<40, MkfsSpec{FSType: "xfs"})
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	if is := allocated(t, content.file.Name()); is > mostLog+16*mib {
		t.Errorf("it takes %d bytes", is)
	}
}
