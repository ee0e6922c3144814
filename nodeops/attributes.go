package nodeops

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// copyAttributes copies all metadata of a node to another, but for extended attributes with one of the prefixes. The
// order matters: a change of owner clears capabilities and set-user-id, and every change updates the times.
func copyAttributes(to, from *node, without []string) error {
	if err := unix.Fchownat(int(to.Fd()), "", int(from.Uid), int(from.Gid), unix.AT_EMPTY_PATH); err != nil {
		return &os.PathError{Op: "chown", Path: to.Name(), Err: err}
	}
	if err := syncXattrs(to, from, without); err != nil {
		return err
	}
	if from.kind() != unix.S_IFLNK {
		if err := unix.Chmod(to.magic(), from.Mode&0o7777); err != nil {
			return &os.PathError{Op: "chmod", Path: to.Name(), Err: err}
		}
	}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, to.magic(), []unix.Timespec{from.Atim, from.Mtim}, 0); err != nil {
		return &os.PathError{Op: "setting times", Path: to.Name(), Err: err}
	}
	return nil
}

func xattrNames(n *node) (names []string, err error) {
	list, err := sized(func(b []byte) (int, error) { return unix.Listxattr(n.magic(), b) })
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil
	}
	if err != nil {
		return nil, &os.PathError{Op: "listing attributes", Path: n.Name(), Err: err}
	}
	for name := range bytes.SplitSeq(bytes.TrimSuffix(list, []byte{0}), []byte{0}) {
		if len(name) > 0 {
			names = append(names, string(name))
		}
	}
	return names, nil
}

func readXattr(n *node, name string) ([]byte, error) {
	value, err := sized(func(b []byte) (int, error) { return unix.Getxattr(n.magic(), name, b) })
	if err != nil {
		return nil, fmt.Errorf("reading attribute %s of %s: %w", name, n.Name(), err)
	}
	return value, nil
}

func writeXattr(n *node, name string, value []byte) error {
	if err := unix.Setxattr(n.magic(), name, value, 0); err != nil {
		return fmt.Errorf("setting attribute %s of %s: %w", name, n.Name(), err)
	}
	return nil
}

// sized calls first for the size, as calls with results of unknown length require.
func sized(call func([]byte) (int, error)) ([]byte, error) {
	n, err := call(nil)
	if err != nil || n == 0 {
		return nil, err
	}
	b := make([]byte, n)
	n, err = call(b)
	if err != nil {
		return nil, err
	}
	return b[:n], nil
}
