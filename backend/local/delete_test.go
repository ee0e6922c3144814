package local

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

func TestDelete_AVolumeThatIsStagedOrAttachedIsRefusedByName(t *testing.T) {
	b := served(t, PoolConfig{Name: "pool", Path: hostfs.New(t, hostfs.XFS, 4<<30)})
	staged := made(t, b, backend.VolumeSpec{Name: "staged", FSType: "ext4", Size: backend.Size{Required: 64 * mib}})
	use(t, staged)
	says(t, b.Delete(t.Context(), staged.ID), backend.ErrPrecondition, "staged", "/dev/loop", "delete the pods that use it first")

	raw := made(t, b, block("raw"))
	loop := check.Got(nodeops.AttachLoop(t.Context(), raw.Access.Image, nodeops.LoopOptions{Autoclear: true}))(t)
	says(t, b.Delete(t.Context(), raw.ID), backend.ErrPrecondition, "raw", loop.Path)
	loop.Close()
	for _, v := range []*backend.Volume{staged, raw} {
		check.Got(b.Get(t.Context(), v.ID))(t)
	}
}

func TestDelete_ASourceThatIsBeingCopiedIsRefusedByName(t *testing.T) {
	b := served(t, PoolConfig{Name: "pool", Path: hostfs.New(t, hostfs.XFS, 4<<30)})
	v := made(t, b, block("source"))
	copying, finish, copied := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() { // it locks the source as createFrom does
		_, err := backend.Do(context.WithoutCancel(t.Context()), &b.ops, v.ID, "copy for other", func(context.Context) (any, error) {
			close(copying)
			<-finish
			return nil, nil
		})
		copied <- err
	}()
	<-copying
	ctx, cancel := context.WithCancel(t.Context())
	refused := make(chan error, 1)
	go func() { refused <- b.Delete(ctx, v.ID) }()
	cancel()
	says(t, <-refused, backend.ErrBusy, "source")
	if _, err := b.Get(t.Context(), v.ID); err != nil {
		t.Errorf("it was deleted while it was copied: %v", err)
	}
	close(finish)
	check.Report(t, errors.Join(<-copied, b.Delete(t.Context(), v.ID)))
}
