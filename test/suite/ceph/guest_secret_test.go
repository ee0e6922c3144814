//go:build ceph

package ceph

import (
	"bytes"
	"encoding/base64"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestGuestSecret_IsSeenNowhere(t *testing.T) {
	ctx, w := onGuest(t)
	mapped(ctx, t, w.image(t, "secret"))
	mounted(ctx, t, w.directory(t, "shared"))
	seen := map[string][]byte{"the kernel's log": kernelLog(t)}
	for _, pattern := range []string{"/proc/mounts", "/proc/self/mountinfo", "/proc/keys", "/proc/*/cmdline"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d, %v", pattern, len(files), err)
		}
		for _, file := range files {
			if b, err := os.ReadFile(file); err == nil { // a process may have ended
				seen[file] = b
			}
		}
	}
	for _, root := range []string{"/sys/bus/rbd/devices/0/", "/sys/module/libceph", "/sys/module/rbd", "/sys/module/ceph"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if b, failed := os.ReadFile(path); err == nil && d.Type().IsRegular() && failed == nil {
				seen[path] = b
			}
			return nil // what cannot be read shows nothing
		})
		check.OK(t, err)
	}
	if b := seen["/sys/bus/rbd/devices/0/config_info"]; !bytes.Contains(b, []byte("key=holdfast")) {
		t.Errorf("the kernel does not show how it was mapped: %q", b)
	}
	for user, key := range w.Keys {
		raw := check.Got(base64.StdEncoding.DecodeString(key))(t)
		for where, b := range seen {
			if bytes.Contains(b, []byte(key)) || bytes.Contains(b, raw[12:]) {
				t.Errorf("the key of user %s is in %s", user, where)
			}
		}
	}
}

func kernelLog(t *testing.T) []byte {
	t.Helper()
	const readAll, most = 3, 1 << 20
	b := make([]byte, most)
	n, err := unix.Klogctl(readAll, b)
	if err != nil || n == 0 {
		t.Fatalf("%d bytes, %v", n, err)
	}
	return b[:n]
}
