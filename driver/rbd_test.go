package driver

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

func TestMounts_BelowAFailedFileSystemAreNone(t *testing.T) {
	hostfs.RequireRoot(t)
	staging := hostfs.New(t, hostfs.XFS, 512<<20)
	if out, err := exec.Command("xfs_io", "-x", "-c", "shutdown", staging).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	mounts, err := mountsAt(staging, filepath.Join(staging, deviceFile))
	if err != nil || len(mounts) != 1 || mounts[0].Target != staging {
		t.Errorf("got %+v, %v", mounts, err)
	}
}

func TestExpand_OfAClusterThatDoesNotAnswerIsRetried(t *testing.T) {
	n, _, _ := kubeletNode(t)
	v := &backend.Volume{ID: "v", Size: gib}
	for want, err := range map[codes.Code]error{
		codes.OK:                 nil,
		codes.Unavailable:        fmt.Errorf("growing: %w", context.DeadlineExceeded),
		codes.FailedPrecondition: fmt.Errorf("growing: %w", unix.EPERM),
	} {
		got := n.grown(t.Context(), v, err)
		expectError(t, toStatus(got), want)
		if !errors.Is(got, err) {
			t.Errorf("%v became %v", err, got)
		}
	}
}
