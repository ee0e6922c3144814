package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Loop is a loop device that is attached to a file. When it has been detached, others may attach it to theirs.
type Loop struct{ Device, File string }

// Loops returns the loop devices that belong to the directory: their file lies beneath it, or they are mounted beneath
// it, as a file system or as a device that a container was given.
func Loops(dir string) ([]Loop, error) {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		return nil, err
	}
	mounted := map[string]bool{}
	for _, m := range mounts {
		if strings.HasPrefix(m.Source, "/dev/loop") {
			mounted[m.Source] = true
		}
		if m.FSType == "devtmpfs" && strings.HasPrefix(m.Root, "/loop") {
			mounted["/dev"+m.Root] = true
		}
	}
	devices, err := filepath.Glob("/sys/block/loop*")
	if err != nil {
		return nil, err
	}
	var loops []Loop
	for _, device := range devices {
		l := Loop{Device: "/dev/" + filepath.Base(device)}
		if l.File = backing(l.Device); l.File != "" && (mounted[l.Device] || Below(l.File, dir)) {
			loops = append(loops, l)
		}
	}
	return loops, nil
}

// backing is the file of a device, which may be deleted by now; empty when it is not attached.
func backing(device string) string {
	file, err := os.ReadFile(filepath.Join("/sys/block", filepath.Base(device), "loop/backing_file"))
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(strings.TrimSpace(string(file)), " (deleted)")
}

// Attached says whether the device is still attached to its file.
func (l Loop) Attached() bool { return backing(l.Device) == l.File }

// DetachLoops detaches loop devices; one in use is detached when its last user ends.
func DetachLoops(loops []Loop) error {
	var errs []error
	for _, l := range loops {
		if !l.Attached() {
			continue
		}
		if err := detach(l.Device); err != nil {
			errs = append(errs, fmt.Errorf("detach %s: %w", l.Device, err))
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
