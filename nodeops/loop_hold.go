package nodeops

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// HoldLoop opens a device that is attached to this file. The device stays attached until Close, regardless of what
// other processes that have access to its node request. HoldLoop fails with ENXIO if the device is not attached to this
// file.
func HoldLoop(device, image string) (*Loop, error) {
	f, err := openLoop(device, true)
	if err != nil {
		return nil, fmt.Errorf("holding %s: %w", device, err)
	}
	l := &Loop{Path: device, device: f}
	if err := l.Keep(image); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Keep reverts what processes with access to the node of the device may have requested, with or without capabilities:
// to detach it when its last user closes it (LOOP_CLR_FD, LOOP_SET_STATUS), or to limit it to a part of the image. It
// fails with ENXIO if the device is not attached to this file.
func (l *Loop) Keep(image string) error {
	status, err := l.statusOf(image)
	if err != nil {
		return err
	}
	const autoclear = unix.LO_FLAGS_AUTOCLEAR
	if status.Flags&autoclear == 0 && status.Offset == 0 && status.Sizelimit == 0 {
		return nil
	}
	status.Flags &^= autoclear
	status.Offset, status.Sizelimit = 0, 0
	if err := unix.IoctlLoopSetStatus64(int(l.device.Fd()), status); err != nil {
		return fmt.Errorf("cancelling the detach of %s: %w", l.Path, err)
	}
	return nil
}

// clearReadOnly makes a device writable that one of its users set read-only. The kernel keeps that for whatever is
// attached to the device next.
func clearReadOnly(device *os.File) error {
	readOnly, err := unix.IoctlGetInt(int(device.Fd()), unix.BLKROGET)
	if err != nil || readOnly == 0 {
		return err
	}
	return unix.IoctlSetPointerInt(int(device.Fd()), unix.BLKROSET, 0)
}
