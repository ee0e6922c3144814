package nodeops

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// DeviceSelector selects the devices that match all of its fields. A device that is not Local must match a path.
type DeviceSelector struct {
	Paths      []string // patterns for the device or a symlink to it; none matches any
	MinSize    int64
	Model      string // a pattern; empty matches any
	Rotational *bool  // nil matches both
}

func (s DeviceSelector) String() string {
	var parts []string
	if len(s.Paths) > 0 {
		parts = append(parts, "path "+strings.Join(s.Paths, " or "))
	}
	if s.MinSize > 0 {
		parts = append(parts, "at least "+mebibytes(s.MinSize))
	}
	if s.Model != "" {
		parts = append(parts, fmt.Sprintf("model %q", s.Model))
	}
	if s.Rotational != nil {
		parts = append(parts, fmt.Sprintf("rotational %t", *s.Rotational))
	}
	return strings.Join(parts, ", ")
}

// Names returns whether the selector names its devices, so that a match is not a coincidence.
func (s DeviceSelector) Names() bool { return len(s.Paths) > 0 || s.Model != "" }

// Select returns the matching devices: in the order of the path patterns, otherwise in the given order.
func (s DeviceSelector) Select(all []Device) ([]Device, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	meant := slices.DeleteFunc(slices.Clone(all), func(d Device) bool { return len(s.Paths) == 0 && !d.Local })
	if len(s.Paths) > 0 {
		var err error
		if meant, err = byPath(all, s.Paths); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(meant, func(d Device) bool { return !s.fits(d) }), nil
}

func (s DeviceSelector) check() error {
	if len(s.Paths) == 0 && s.MinSize == 0 && s.Model == "" && s.Rotational == nil {
		return fmt.Errorf("no device is selected: set paths, minSize, model or rotational")
	}
	for _, p := range s.Paths {
		if _, err := path.Match(p, ""); err != nil || !strings.HasPrefix(p, "/dev/") {
			return fmt.Errorf("device path %q: it must be a path beneath /dev, or a pattern such as /dev/disk/by-id/nvme-*", shorten(p))
		}
	}
	if _, err := path.Match(s.Model, ""); err != nil {
		return fmt.Errorf("device model %q: it must be a pattern such as Samsung*", shorten(s.Model))
	}
	return nil
}

func (s DeviceSelector) fits(d Device) bool {
	model := s.Model == ""
	if !model {
		model, _ = path.Match(s.Model, d.Model) // check has validated it
	}
	return model && d.Size >= s.MinSize && (s.Rotational == nil || *s.Rotational == d.Rotational)
}

// byPath follows symlinks and compares the devices. Partitions are not returned.
func byPath(all []Device, patterns []string) (meant []Device, err error) {
	for _, pattern := range patterns {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		slices.SortFunc(paths, compareNames)
		for _, p := range paths {
			number := DeviceNumber(p)
			named := func(d Device) bool { return d.Number == number }
			if i := slices.IndexFunc(all, named); i >= 0 && !slices.ContainsFunc(meant, named) {
				meant = append(meant, all[i])
			}
		}
	}
	return meant, nil
}

// DeviceNumber returns the major:minor of the block device at a path, or "". A server that the file is on is not asked: it
// may be dead.
func DeviceNumber(path string) string {
	var st unix.Statx_t
	if unix.Statx(unix.AT_FDCWD, path, unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return ""
	}
	return fmt.Sprintf("%d:%d", st.Rdev_major, st.Rdev_minor)
}

// DeviceOf returns the major:minor of the device below an open file. It is empty if the kernel does not show one, as
// for file systems on several devices.
func DeviceOf(f *os.File) (number string, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return "", fmt.Errorf("determining the device of %s: %w", f.Name(), err)
	}
	number = fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
	if DeviceGone(number) {
		return "", nil
	}
	return number, nil
}

// DeviceGone returns whether a device, if one is given, was removed.
func DeviceGone(number string) bool {
	if number == "" {
		return false
	}
	_, err := os.Stat("/sys/dev/block/" + number)
	return errors.Is(err, fs.ErrNotExist)
}
