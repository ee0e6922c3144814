package driver

import (
	"context"
	"errors"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// imageAttachment is of a local image, which has a loop device.
type imageAttachment struct{ hostFS }

func (i imageAttachment) mount(ctx context.Context, a access, target string) error {
	if i.v.Mode == backend.Block {
		return i.mountNode(ctx, a, target, i.attach)
	}
	attached := backend.Step(i.n.Log, i.v.ID, "attach")
	loop, err := nodeops.AttachLoop(ctx, i.v.Access.Image, nodeops.LoopOptions{Autoclear: true})
	attached()
	if err != nil {
		return err
	}
	// From the mount on the device lives as long as the mount does; without one it ends here.
	defer loop.Close()
	return i.mountDevice(ctx, a, loop.Path, target)
}

// attach attaches a device that readers may only read, without autoclear, since a device node in use keeps nothing open. It
// is not attached read-only, if the image can be written at all: a process that has the node of such a device may change the
// file that it shows (LOOP_CHANGE_FD).
func (i imageAttachment) attach(ctx context.Context, readOnly bool) (device string, err error) {
	defer backend.Step(i.n.Log, i.v.ID, "attach")()
	loop, err := nodeops.AttachLoop(ctx, i.v.Access.Image, nodeops.LoopOptions{})
	if err != nil && readOnly {
		loop, err = nodeops.AttachLoop(ctx, i.v.Access.Image, nodeops.LoopOptions{ReadOnly: true})
	}
	if err != nil {
		return "", err
	}
	if readOnly {
		err = setReadOnly(loop.Path, true)
	}
	return loop.Path, errors.Join(err, loop.Close())
}

// loopsOf asks the kernel for the devices of a volume's image.
func loopsOf(v *backend.Volume) (uses, error) {
	file, err := nodeops.FileAt(v.Access.Image)
	if err != nil {
		return nil, err
	}
	loops, err := nodeops.LoopsOf(v.Access.Image)
	all := uses{}
	for _, device := range loops {
		all[device] = use{file: file, ends: v.Mode != backend.Block}
	}
	return all, err
}
