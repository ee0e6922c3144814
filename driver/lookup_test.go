package driver

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestTeardown_DoesNotWaitForAPoolWhoseDiskHangs(t *testing.T) {
	n, b, log := kubeletNode(t, "driver")
	n.Patience = 10 * time.Millisecond
	begun, hang := atomic.Int64{}, make(chan struct{})
	defer close(hang)
	b.get = func(backend.ID) (*backend.Volume, error) {
		begun.Add(1)
		<-hang
		return nil, backend.ErrNotFound
	}
	for range 2 {
		target, staging := t.TempDir()+"/mount", t.TempDir()
		check.OK(t, os.Mkdir(target, 0o755))
		check.Got(n.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: "v", TargetPath: target}))(t)
		if _, err := os.Lstat(target); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the target: %v", err)
		}
		check.Got(n.NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: "v", StagingTargetPath: staging}))(t)
	}
	if begun.Load() > 1 || len(log.lines("cannot be looked up")) != 4 {
		t.Errorf("%d look-ups hang; the log is %s", begun.Load(), log)
	}
	for range 2 {
		_, err := n.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: "v", VolumePath: t.TempDir()})
		expectError(t, toStatus(err), codes.Unavailable, "volume v", "does not answer")
	}
	if _, err := n.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: inlineHandle, TargetPath: t.TempDir() + "/mount"}); err != nil {
		t.Errorf("an inline one: %v", err)
	}
	if begun.Load() > 4 { // of v for usage too, and of the other
		t.Errorf("%d look-ups hang", begun.Load())
	}
}

func TestTeardown_OfATargetWithoutAMountTouchesNoDevice(t *testing.T) {
	n, _ := inlineNode(Inline{})
	devices := uses{t.TempDir() + "/being-detached": {}}
	v := &backend.Volume{ID: "v", Mode: backend.Block}
	p := &mountState{id: v.ID, v: v, devices: devices, attachment: imageAttachment{hostFS{n: n, v: v, devices: devices}}}
	target := t.TempDir() + "/target"
	check.OK(t, os.WriteFile(target, nil, 0o600))
	check.OK(t, n.unpublish(t.Context(), p, target))
	if _, err := os.Lstat(target); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the target: %v", err)
	}
}

func TestTeardown_TakesNoAnswerOfALookUpThatBeganBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _ := inlineNode(Inline{})
		var all lookUps
		begun, first := 0, make(chan struct{})
		look := func(context.Context) (int, error) {
			begun++
			if begun == 1 {
				<-first
				return 1, nil
			}
			return begun, nil
		}
		if _, err := within(t.Context(), n, &all, "v", true, look); !errors.Is(err, backend.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		time.AfterFunc(time.Second, func() { close(first) })
		if got, err := within(t.Context(), n, &all, "v", true, look); got != 2 || err != nil {
			t.Errorf("got %d, %v", got, err)
		}
	})
}
