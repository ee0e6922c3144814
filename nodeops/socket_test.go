package nodeops

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// socketPath has fewer than 108 bytes.
func socketPath(t *testing.T) string {
	t.Helper()
	dir := check.Got(os.MkdirTemp("", "socket-"))(t)
	t.Cleanup(func() {
		check.Report(t, os.RemoveAll(dir))
	})
	return filepath.Join(dir, "s.sock")
}

func listens(t *testing.T, path string) *Socket {
	t.Helper()
	s := check.Got(ListenUnix(t.Context(), path))(t)
	t.Cleanup(func() { _ = s.Close() }) // some are closed already
	return s
}

func TestSocket_StaleIsReplaced(t *testing.T) {
	path := socketPath(t)
	if err := listens(t, path).Close(); err != nil { // the file remains, as after a kill
		t.Fatal(err)
	}
	s := listens(t, path)
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("it has mode %v, %v", info.Mode(), err)
	}
	conn := check.Got(net.Dial("unix", path))(t)
	conn.Close()
	if !s.Ours() {
		t.Error("it does not know its own file")
	}
	check.Report(t, s.Remove())
	absent(t, path)
}

func TestSocket_OtherFileIsNotReplaced(t *testing.T) {
	path := socketPath(t)
	first := listens(t, path)
	check.Fails(t, check.ErrorOf(ListenUnix(t.Context(), path)), nil, "someone answers at "+path) // of one that answers
	if !first.Ours() {
		t.Error("the first has lost its place")
	}
	check.OK(t, errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o600)))
	check.Fails(t, check.ErrorOf(ListenUnix(t.Context(), path)), nil, "not a socket") // of a file
	if first.Ours() {
		t.Error("it takes another file for its own")
	}
	check.Report(t, first.Remove())
	check.Report(t, check.ErrorOf(os.Lstat(path)))
}
