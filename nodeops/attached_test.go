package nodeops

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

func TestOrphan_IsTheBindOfANodeThatIsGone(t *testing.T) {
	hostfs.RequireRoot(t)
	node, target := fmt.Sprintf("/dev/holdfast-test-%d", os.Getpid()), filepath.Join(t.TempDir(), "disk")
	check.OK(t, errors.Join(unix.Mknod(node, unix.S_IFBLK|0o600, int(unix.Mkdev(7, 1<<19))), os.WriteFile(target, nil, 0o600)))
	t.Cleanup(func() { _ = os.Remove(node) })
	check.OK(t, Bind(t.Context(), node, target, false, nil))
	t.Cleanup(func() {
		check.Report(t, Unmount(context.WithoutCancel(t.Context()), target))
	})
	is := func() bool {
		m, err := MountAt(target)
		if err != nil || m == nil {
			t.Fatalf("%v, %v", m, err)
		}
		return IsOrphan(m)
	}
	if is() {
		t.Error("the bind of a node that is there is an orphan")
	}
	check.OK(t, os.Remove(node))
	if !is() {
		t.Error("the bind of a node that is gone is no orphan")
	}
}
