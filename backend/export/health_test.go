package export

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// shutDown ends an xfs as an error of its disk would.
func shutDown(t *testing.T, target string) {
	t.Helper()
	if out, err := exec.Command("xfs_io", "-x", "-c", "shutdown", target).CombinedOutput(); err != nil {
		t.Fatalf("xfs_io: %v: %s", err, out)
	}
}

func TestHealth_ErrorsOfAServedVolumeAreReported(t *testing.T) {
	s := onXFS(t)
	a, b := s.create("a", smallExt4), s.create("b", func(spec *backend.VolumeSpec) { spec.FSType = "xfs" })
	m := check.Got(nodeops.MountAt(s.target(a.ID)))(t)
	hostfs.MeetError(t, nodeops.LoopUnder(m))
	shutDown(t, s.target(b.ID))
	for _, v := range []*backend.Volume{a, b} {
		wait.Until(s.T, "condition of "+string(v.ID), func() bool {
			c := s.get(v.ID).Condition
			return c.Abnormal && c.Reason == backend.FileSystemErrors && strings.Contains(c.Message, "pod of the NFS server")
		})
	}
	s.restart() // both are repaired when they are mounted again
	for _, v := range []*backend.Volume{a, b} {
		if got := s.get(v.ID); got.Condition.Abnormal || got.Access.NFS == nil {
			t.Errorf("it is %+v", got)
		}
	}
}
