package nodeops

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A process that is being started has the open files of this one until it executes its program, so a device may be in
// use for a moment after it was closed here.
const (
	useGrace = time.Second
	usePause = 5 * time.Millisecond
)

// inUse returns whether a device is mounted, in any mount namespace, or whether a program has it for itself.
func inUse(ctx context.Context, device string) (bool, error) {
	free, err := tryAgain(ctx, useGrace, usePause, func() (bool, error) {
		f, err := os.OpenFile(device, os.O_RDONLY|unix.O_EXCL, 0)
		switch {
		case errors.Is(err, unix.EBUSY):
			return false, nil
		case err != nil:
			return false, err
		}
		return true, f.Close()
	})
	return !free && err == nil, err
}
