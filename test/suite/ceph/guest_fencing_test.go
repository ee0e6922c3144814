//go:build ceph

package ceph

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend/ceph"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// fence shuts a client out as the agent of the pool does.
func (w world) fence(t *testing.T, address string) {
	t.Helper()
	c := check.Got(ceph.New(ceph.Config{Monitors: []string{"v2:" + w.Monitor}, FSID: w.FSID, Pool: pool, User: "pool", Key: ceph.Key(w.Keys["pool"])}, slog.New(slog.DiscardHandler)))(t)
	t.Cleanup(func() {
		if err := c.Close(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	check.OK(t, ceph.BlocklistOf(c).Fence(t.Context(), []string{address}))
}

func TestGuestFence_KernelThatIsShutOutWritesNothingMore(t *testing.T) {
	ctx, w := onGuest(t)
	for range 8 { // an OSD that does not know it yet is found only by chance
		w.shutOutAndRelease(ctx, t)
	}
}

// keepsWhatIsBound sees that a device whose node a pod has is not released: the pod would reach the next one of its number.
func (w world) keepsWhatIsBound(ctx context.Context, t *testing.T, d *nodeops.RBDDevice) {
	t.Helper()
	target := filepath.Join(t.TempDir(), "disk")
	check.OK(t, errors.Join(os.WriteFile(target, nil, 0o600), nodeops.Bind(ctx, d.Path, target, false, nil)))
	check.Report(t, nodeops.ReleaseCephClient(ctx, d.Client))
	if now, err := nodeops.RBDAt(d.Path); err != nil || now == nil {
		t.Errorf("the device was released while its node is bound: %v", err)
	}
	check.OK(t, nodeops.Unmount(ctx, target))
}

func (w world) shutOutAndRelease(ctx context.Context, t *testing.T) {
	t.Helper()
	r := w.image(t, "fenced")
	d := check.Got(nodeops.MapRBD(ctx, r))(t)
	put(t, d.Path, 0, []byte("before"))
	f := check.Got(os.OpenFile(d.Path, os.O_RDWR, 0))(t)
	defer f.Close()
	check.Got(f.WriteAt([]byte("not yet written"), mib))(t)
	w.fence(t, d.Client.Address)
	if err := f.Sync(); err == nil {
		t.Error("what was in its cache was written after it was shut out")
	}
	if _, err := f.WriteAt([]byte("too late"), 0); err == nil && f.Sync() == nil {
		t.Error("it wrote after it was shut out")
	}
	if gone, err := nodeops.IsCephClientGone(d.Client); err != nil || gone {
		t.Errorf("its client is gone while it is mapped: %v", err)
	}
	if err := nodeops.UnmapRBD(ctx, d); !errors.Is(err, unix.EBUSY) { // it is open
		t.Errorf("unmapping without force: %v", err)
	}
	w.keepsWhatIsBound(ctx, t, d)
	for range 2 {
		check.OK(t, nodeops.ReleaseCephClient(ctx, d.Client))
	}
	f.Close()
	nothingMapped(t)
	if gone, err := nodeops.IsCephClientGone(d.Client); err != nil || !gone {
		t.Errorf("its client is there when it is unmapped: %v", err)
	}
	again := check.Got(nodeops.MapRBD(ctx, r))(t)
	if again.Client.Address == d.Client.Address || again.Client.ID == d.Client.ID {
		t.Errorf("the next client is the one that is shut out: %+v", again.Client)
	}
	if got := get(t, again.Path, 0, 6); string(got) != "before" {
		t.Errorf("there is %q", got)
	}
	if got := get(t, again.Path, mib, 15); string(got) != string(make([]byte, 15)) {
		t.Errorf("after what was never written, there is %q", got)
	}
	check.Report(t, nodeops.UnmapRBD(ctx, again))
}
