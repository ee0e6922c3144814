package nodeops

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Mount is one line of the mount table.
type Mount struct {
	ID       string // mount id, unique while it is mounted
	Device   string // major:minor
	Root     string // the directory or file of the file system that is mounted at Target
	Target   string
	FSType   string
	Source   string
	Options  string // of the file system, separated by commas
	ReadOnly bool   // this mount or its file system
	Failed   bool   // the file system became read-only, or was shut down, because of an error
}

// Mounts returns the mount table. A mount follows those that it covers.
func Mounts() ([]Mount, error) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return parseMounts(string(table)), nil
}

// MountAt returns the topmost mount at exactly target, or nil.
func MountAt(target string) (*Mount, error) {
	stack, err := stackAt(target)
	if err != nil || len(stack) == 0 {
		return nil, err
	}
	return &stack[len(stack)-1], nil
}

// MountOf returns the mount through which a directory was opened; nil if that is no longer visible.
func MountOf(dir *os.File) (*Mount, error) {
	all, err := Mounts()
	if err != nil {
		return nil, err
	}
	for i := range all {
		if isOfMount(int(dir.Fd()), "", &all[i]) {
			return &all[i], nil
		}
	}
	return nil, nil //nolint:nilnil // nil means not visible
}

// stackAt returns all mounts at exactly target, the topmost last. It resolves symlinks in target, as the kernel did at
// the mount.
func stackAt(target string) ([]Mount, error) {
	parent, err := filepath.EvalSymlinks(filepath.Dir(filepath.Clean(target)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	target = filepath.Join(parent, filepath.Base(target))
	mounts, err := Mounts()
	return slices.DeleteFunc(mounts, func(m Mount) bool { return m.Target != target }), err
}

// parseMounts parses the format of proc(5). It skips lines that it cannot parse: an unusual mount of another program
// must not hide ours.
func parseMounts(table string) []Mount {
	var mounts []Mount
	for line := range strings.Lines(table) {
		line = strings.TrimSuffix(line, "\n")
		left, right, ok := strings.Cut(line, " - ")
		mount, super := strings.Split(left, " "), strings.Split(right, " ")
		if !ok || len(mount) < 6 || len(super) < 3 {
			continue
		}
		failed := has(super[2], "emergency_ro") || has(super[2], "shutdown") // on ext4, which new kernels still report as writable
		mounts = append(mounts, Mount{
			ID:       mount[0],
			Device:   mount[2],
			Root:     unescape(mount[3]),
			Target:   unescape(mount[4]),
			FSType:   super[0],
			Source:   unescape(super[1]),
			Options:  super[2],
			ReadOnly: has(mount[5], "ro") || has(super[2], "ro") || failed,
			// A file system that was mounted or remounted read-only has both.
			Failed: failed || has(super[2], "ro") && !has(mount[5], "ro"),
		})
	}
	return mounts
}

func has(options, option string) bool { return slices.Contains(strings.Split(options, ","), option) }

// unescape decodes the octal escapes of white space and backslashes.
func unescape(s string) string {
	before, after, found := strings.Cut(s, `\`)
	if !found {
		return s
	}
	var out strings.Builder
	for ; found; before, after, found = strings.Cut(after, `\`) {
		out.WriteString(before)
		code, err := strconv.ParseUint(after[:min(3, len(after))], 8, 8)
		if err != nil || len(after) < 3 {
			out.WriteByte('\\')
			continue
		}
		out.WriteByte(byte(code))
		after = after[3:]
	}
	out.WriteString(before)
	return out.String()
}
