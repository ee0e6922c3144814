package driver

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// setReadOnly makes a block device refuse or take writes.
func setReadOnly(device string, readOnly bool) error {
	f, err := os.Open(device)
	if err != nil {
		return err
	}
	defer f.Close()
	flag := 0
	if readOnly {
		flag = 1
	}
	if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.BLKROSET, flag); err != nil {
		return fmt.Errorf("making %s read-only %t: %w", device, readOnly, err)
	}
	return nil
}
