package nodeops

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrNoLoop means that every loop device that may be used is in use.
var ErrNoLoop = errors.New("no loop device is free")

// The numbers of the loop devices that are reserved for allocation to pods. AttachLoop uses one only if its caller
// lists it.
const (
	FirstReservedLoop = 4096
	ReservedLoops     = 4096
)

// checkAllowed fails for a device that this process may not use: another process has the image attached, and a second
// device on it would destroy it. A process without allocated devices never uses a reserved one, since the pod that has
// it may attach another file at any time.
func (o *LoopOptions) checkAllowed(device string) error {
	switch {
	case len(o.Among) == 0 && isReserved(device):
		return fmt.Errorf("it is attached to %s, which is reserved for NFS servers: a process to which it was allocated uses the image; stop that process, or detach the device there with losetup --detach %s", device, device)
	case len(o.Among) == 0, slices.Contains(o.Among, device):
		return nil
	}
	return fmt.Errorf("it is attached to %s, which is not among the %d devices that were allocated to this process: another process on this host uses it; stop that process, or detach the device there with losetup --detach %s", device, len(o.Among), device)
}

// attachAmong configures the first free device of o.Among. If two processes try the same one, the kernel lets one
// succeed.
func attachAmong(ctx context.Context, backing *os.File, o LoopOptions) (*Loop, error) {
	for _, device := range o.Among {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if attached(device) {
			continue // without opening it, which would delay its autoclear
		}
		if l, err := configureLoop(device, backing, o); !errors.Is(err, unix.EBUSY) {
			return l, err
		}
	}
	return nil, fmt.Errorf("%w: all %d that may be used here are in use", ErrNoLoop, len(o.Among))
}

func attached(device string) bool {
	_, err := BackingFile(device)
	return err == nil
}

// isReserved returns whether a device is reserved for allocation to pods.
func isReserved(device string) bool {
	number, err := strconv.Atoi(strings.TrimPrefix(device, "/dev/loop"))
	return err == nil && number >= FirstReservedLoop && number < FirstReservedLoop+ReservedLoops
}

// freeLoop returns an unused device, or adds one if only reserved ones are unused. It skips detached devices whose node
// is mounted: users of the node would see the image of another volume.
func freeLoop(control *os.File, inUse func(device string) bool) (device string, err error) {
	number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
	if err != nil {
		return "", err
	}
	device = fmt.Sprintf("/dev/loop%d", number)
	if inUse(device) {
		if device, err = findFree(inUse); device != "" || err != nil {
			return device, err
		}
	} else if !isReserved(device) {
		return device, nil
	}
	number, err = addLoop(control, -1)
	return fmt.Sprintf("/dev/loop%d", number), err
}

// findFree returns "" if there is none.
func findFree(inUse func(device string) bool) (device string, err error) {
	entries, err := os.ReadDir("/sys/block")
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		device := "/dev/" + e.Name()
		if loopName.MatchString(e.Name()) && !isReserved(device) && !attached(device) && !inUse(device) {
			return device, nil
		}
	}
	return "", nil
}

// addLoop adds the device with that number, or with the lowest free one for -1.
func addLoop(control *os.File, number int) (made int, err error) {
	result, _, errno := unix.Syscall(unix.SYS_IOCTL, control.Fd(), unix.LOOP_CTL_ADD, uintptr(number))
	if errno != 0 {
		return 0, errno
	}
	return int(result), nil
}

// AddLoops adds the missing devices of count numbers from first on, and returns the paths of all of them.
func AddLoops(first, count int) ([]string, error) {
	control, err := openLoopControl()
	if err != nil {
		return nil, err
	}
	defer control.Close()
	devices := make([]string, 0, count)
	for number := range count {
		device := fmt.Sprintf("/dev/loop%d", first+number)
		if _, err := addLoop(control, first+number); err != nil && !errors.Is(err, unix.EEXIST) {
			return nil, fmt.Errorf("making %s: %w", device, err)
		}
		info, err := os.Lstat(device)
		if err != nil {
			return nil, fmt.Errorf("the kernel has created %s, but it does not appear; /dev must be the host's devtmpfs: %w", device, err)
		}
		if info.Mode()&fs.ModeDevice == 0 {
			return nil, fmt.Errorf("%s is not a device but of type %s; remove it", device, info.Mode().Type())
		}
		devices = append(devices, device)
	}
	return devices, nil
}

// ReclaimLoops detaches devices that earlier pods left attached, and returns the free ones. No process may attach to
// them at the same time. Devices that are mounted or open are not touched.
func ReclaimLoops(ctx context.Context, devices []string) (free []string, err error) {
	mounts, err := Mounts()
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, device := range devices {
		if attached(device) {
			if slices.ContainsFunc(mounts, MayUse(device)) {
				continue
			}
			if err := detachIf(ctx, device, func(File) bool { return true }); err != nil {
				if !errors.Is(err, unix.EBUSY) {
					errs = append(errs, err)
				}
				continue
			}
		}
		free = append(free, device)
	}
	return free, errors.Join(errs...)
}
