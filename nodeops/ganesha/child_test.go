package ganesha

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func TestChild_BlockedInTheKernelIsNamedAndAwaited(t *testing.T) {
	hostfs.RequireRoot(t)
	const place = "percpu_rwsem_wait" // of who writes to a frozen file system, and is not to be killed there
	dir := hostfs.New(t, hostfs.Ext4, 16<<20)
	frozen := check.Got(nodeops.Freeze(t.Context(), dir, patient))(t)
	t.Cleanup(func() { _ = frozen.Thaw() })
	c := check.Got(startChild(io.Discard, io.Discard, nil, "touch", filepath.Join(dir, "file")))(t)
	wait.Until(t, "its block in "+place, func() bool {
		return string(check.Got(os.ReadFile(fmt.Sprintf("/proc/%d/wchan", c.pid)))(t)) == place
	})
	check.Fails(t, c.kill(time.Millisecond), nil, fmt.Sprintf("process %d, touch, was killed", c.pid), place)
	ended := make(chan error, 1)
	go func() { ended <- c.end(0) }()
	check.OK(t, frozen.Thaw())
	check.Report(t, <-ended)
	select {
	case <-c.done:
	default:
		t.Error("its end was not waited for")
	}
}
