package sanity

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
)

// watching counts how often the process runs a command, and lets it be run.
func (w *world) watching(name string) (runs func() int) {
	w.Helper()
	genuine, err := exec.LookPath(name)
	w.must(err)
	dir := w.TempDir()
	log := filepath.Join(dir, "log")
	w.must(os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\necho \"$@\" >>"+log+"\nexec "+genuine+" \"$@\"\n"), 0o700))
	w.options.Env = append(w.options.Env, "PATH="+dir+":"+os.Getenv("PATH"))
	w.restart()
	return func() int {
		b, err := os.ReadFile(log)
		if err != nil && !os.IsNotExist(err) {
			w.Fatal(err)
		}
		return strings.Count(string(b), "\n")
	}
}

// written makes an ext4 with a file in it, which is not in use.
func (w *world) written() (id string) {
	w.Helper()
	id = w.create("v", fsType("ext4")).GetVolumeId()
	w.use(id, "target", mount(multiWriter))
	w.write("target", "file", "kept")
	w.release(id, "target")
	return id
}

func (w *world) debugfs(id, request string) {
	w.Helper()
	w.command(nil, "debugfs", "-w", "-R", request, w.image(id))
}

func TestExt4_IsRepairedBeforeItIsMountedAndOnlyThen(t *testing.T) {
	w := newWorld(t, imageOnXFS, "")
	checks := w.watching("e2fsck")
	id := w.written()
	if n := checks(); n != 0 {
		t.Errorf("a clean one was checked %d times", n)
	}
	w.debugfs(id, "set_super_value state 3")
	w.use(id, "target", mount(readerOnly, "ro"))
	if n := checks(); n != 0 {
		t.Errorf("for readers it was checked %d times", n)
	}
	w.expectFile("target", "file", "kept")
	w.release(id, "target")
	w.use(id, "target", mount(multiWriter))
	if n := checks(); n != 1 {
		t.Errorf("it was checked %d times", n)
	}
	w.expectFile("target", "file", "kept")
	cut := w.path("cut") // as a power cut leaves it
	w.command(nil, "cp", "--sparse=always", w.image(id), cut)
	w.release(id, "target")
	w.command(nil, "cp", "--sparse=always", cut, w.image(id))
	w.use(id, "target", mount(multiWriter))
	if n := checks(); n != 2 {
		t.Errorf("after a power cut it was checked %d times", n-1)
	}
	w.expectFile("target", "file", "kept")
	w.release(id, "target")
	w.must(w.inline(handle, "inline", w.attributes(), false))
	w.must(w.unpublish(handle, "inline"))
	if n := checks(); n != 2 {
		t.Errorf("clean ones were checked %d times", n-2)
	}
	w.remove(id)
	w.nothingLeft()
}

func TestExt4_ThatCannotBeRepairedIsRefusedWithTheRemedy(t *testing.T) {
	w := newWorld(t, imageOnXFS, "")
	id := w.written()
	w.debugfs(id, "clri <7>")
	w.debugfs(id, "set_super_value state 3")
	for range 2 {
		w.expectError(w.stage(id, mount(multiWriter)), codes.FailedPrecondition, id, "copy "+w.image(id), "e2fsck -f "+w.image(id), "losing files", "snapshot")
	}
	w.use(id, "target", mount(readerOnly, "ro")) // to save what is in it
	w.expectFile("target", "file", "kept")
	w.release(id, "target")
	w.command([]int{1}, "e2fsck", "-f", "-y", w.image(id))
	w.use(id, "target", mount(multiWriter))
	w.expectFile("target", "file", "kept")
	w.release(id, "target")
	w.remove(id)
	w.nothingLeft()
}

// What a program has overwritten at the start of a volume lies further back, unless another file system is made over it.
func TestImage_WhoseStartIsLostIsNeverFormattedAgain(t *testing.T) {
	w := newWorld(t, imageOnXFS, "")
	for fs, repair := range map[string]string{"ext4": "e2fsck -f -y -b 32768", "xfs": "xfs_repair", "btrfs": "btrfs rescue"} {
		id := w.create("lost-"+fs, fsType(fs)).GetVolumeId()
		w.use(id, "target", mount(multiWriter))
		w.write("target", "file", "kept")
		w.release(id, "target")
		f, err := os.OpenFile(w.image(id), os.O_WRONLY, 0)
		w.must(err)
		_, err = f.WriteAt(make([]byte, 1<<20), 0)
		w.must(errors.Join(err, f.Sync(), f.Close()))
		before, err := os.ReadFile(w.image(id))
		w.must(err)
		for range 2 {
			w.expectError(w.stage(id, mount(multiWriter)), codes.FailedPrecondition, id, "no file system is on it", repair)
		}
		if after, err := os.ReadFile(w.image(id)); err != nil || !bytes.Equal(before, after) {
			t.Errorf("%s: something was written to it: %v", fs, err)
		}
		w.remove(id)
	}
	w.nothingLeft()
}
