package ganesha

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

func TestChild_BlockedInTheKernelIsNamedAndAwaited(t *testing.T) {
	hostfs.RequireRoot(t)
	const place = "percpu_rwsem_wait" // of who writes to a frozen file system, and is not to be killed there
	dir := hostfs.New(t, hostfs.Ext4, 16<<20)
	frozen := check.Got(nodeops.Freeze(t.Context(), dir, patient))(t)
	t.Cleanup(func() { _ = frozen.Thaw() })
	c := check.Got(startChild(io.Discard, io.Discard, nil, "touch", filepath.Join(dir, "file")))(t)
	for late := time.After(patient); ; {
		where := check.Got(os.ReadFile(fmt.Sprintf("/proc/%d/wchan", c.pid)))(t)
		if string(where) == place {
			break
		}
		select {
		case <-c.done:
			t.Fatalf("it has ended on a frozen file system: %v", c.err)
		case <-late:
			t.Fatalf("it waits in %q, want %s", where, place)
		default:
		}
	}
	if err := c.kill(time.Millisecond); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("process %d, touch, was killed", c.pid)) || !strings.Contains(err.Error(), place) {
		t.Errorf("got %v, want that process %d, touch, waits in %s", err, c.pid, place)
	}
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
