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
	ID       string // of this mount, while it lasts
	Device   string // major:minor
	Root     string // the directory or file of the file system that is seen at Target
	Target   string
	FSType   string
	Source   string
	ReadOnly bool // this mount, or the file system itself
}

// Mounts returns the mount table, later mounts after those they cover.
func Mounts() ([]Mount, error) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return parseMounts(string(table)), nil
}

// MountAt returns the topmost mount exactly at target, nil if there is none.
func MountAt(target string) (*Mount, error) {
	stack, err := stackAt(target)
	if err != nil || len(stack) == 0 {
		return nil, err
	}
	return &stack[len(stack)-1], nil
}

// stackAt returns all mounts exactly at target, the topmost last. Links on the way to target are followed, as the
// kernel did when it mounted.
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

// parseMounts reads what proc(5) describes. A line it cannot make sense of is passed over: a stranger's odd mount
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
		mounts = append(mounts, Mount{
			ID:       mount[0],
			Device:   mount[2],
			Root:     unescape(mount[3]),
			Target:   unescape(mount[4]),
			FSType:   super[0],
			Source:   unescape(super[1]),
			ReadOnly: readOnly(mount[5]) || readOnly(super[2]),
		})
	}
	return mounts
}

func readOnly(options string) bool { return slices.Contains(strings.Split(options, ","), "ro") }

// unescape undoes the three octal digits by which the kernel writes white space and backslashes.
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
