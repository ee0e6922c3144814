package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Loops returns the loop devices that belong to the directory: their file lies beneath it, or they are mounted beneath
// it, as a file system or as a device that a container was given.
func Loops(dir string) ([]string, error) {
	mounts, err := Mounts()
	if err != nil {
		return nil, err
	}
	var devices []string
	for _, m := range mounts {
		if !Below(m.Target, dir) {
			continue
		}
		if strings.HasPrefix(m.Source, "/dev/loop") {
			devices = append(devices, m.Source)
		}
		if m.FSType == "devtmpfs" && strings.HasPrefix(m.Root, "/loop") {
			devices = append(devices, "/dev"+m.Root)
		}
	}
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		backing, err := os.ReadFile(file)
		if err != nil {
			continue // detached since it was listed
		}
		if Below(strings.TrimSuffix(strings.TrimSpace(string(backing)), " (deleted)"), dir) {
			devices = append(devices, "/dev/"+filepath.Base(filepath.Dir(filepath.Dir(file))))
		}
	}
	slices.Sort(devices)
	return slices.Compact(devices), nil
}

// DetachLoops detaches loop devices; one in use is detached when its last user ends.
func DetachLoops(devices []string) error {
	var errs []error
	for _, device := range devices {
		if err := detach(device); err != nil {
			errs = append(errs, fmt.Errorf("detach %s: %w", device, err))
		}
	}
	return errors.Join(errs...)
}

func detach(device string) error {
	f, err := os.Open(device)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENXIO) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0); err != nil && !errors.Is(err, unix.ENXIO) {
		return err
	}
	return nil
}
