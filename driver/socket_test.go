package driver

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestSocket_IsForRootAlone(t *testing.T) {
	path := filepath.Join(shortDir(t), "new", "csi.sock")
	l := check.Got(listen(t.Context(), path))(t)
	defer l.Close()
	info := check.Got(os.Lstat(path))(t)
	if info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("mode is %s", info.Mode())
	}
	if there, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); len(there) != 1 {
		t.Errorf("its directory holds %v", there)
	}
}

func TestSocket_StaleIsReplaced(t *testing.T) {
	path := filepath.Join(shortDir(t), "csi.sock")
	stale := check.Got(net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}))(t)
	stale.SetUnlinkOnClose(false)
	stale.Close()
	l := check.Got(listen(t.Context(), path))(t)
	defer l.Close()
	conn := check.Got(net.Dial("unix", path))(t)
	conn.Close()
}

func TestSocket_InUseIsLeftAlone(t *testing.T) {
	path := filepath.Join(shortDir(t), "csi.sock")
	other := check.Got(net.Listen("unix", path))(t)
	defer other.Close()
	if _, err := listen(t.Context(), path); err == nil || !strings.Contains(err.Error(), "someone answers at "+path) {
		t.Fatalf("got %v", err)
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatalf("the other's socket no longer answers: %v", err)
	}
	conn.Close()
}

func TestSocket_MayHaveTheLongestPathOfTheKernel(t *testing.T) {
	dir := shortDir(t)
	path := filepath.Join(dir, strings.Repeat("s", 107-len(dir)-1))
	if _, err := SocketPath("unix://" + path + "s"); err == nil || !strings.Contains(err.Error(), "may have 107 bytes") {
		t.Errorf("one of 108 bytes: %v", err)
	}
	path = check.Got(SocketPath("unix://" + path))(t)
	l := check.Got(listen(t.Context(), path))(t)
	l.Close()
}

func TestSocket_OtherFileIsNeverReplaced(t *testing.T) {
	dir := shortDir(t)
	file, link, sub := filepath.Join(dir, "file"), filepath.Join(dir, "link"), filepath.Join(dir, "sub")
	check.OK(t, os.WriteFile(file, []byte("precious"), 0o600))
	check.OK(t, os.Symlink(file, link))
	check.OK(t, os.Mkdir(sub, 0o700))
	for _, path := range []string{file, link, sub} {
		before, _ := os.Lstat(path)
		if _, err := listen(t.Context(), path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("listen(%s) = %v", path, err)
		}
		if after, err := os.Lstat(path); err != nil || after.Mode() != before.Mode() {
			t.Errorf("%s was changed: %v", path, err)
		}
	}
	if b, _ := os.ReadFile(file); string(b) != "precious" {
		t.Errorf("the file now holds %q", b)
	}
}
