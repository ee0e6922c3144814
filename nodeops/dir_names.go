package nodeops

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// dirNames reads a directory in parts and knows its position: it can continue with another descriptor, so that a walk
// can close the directories above the current one. NFS servers rely on the same offsets.
type dirNames struct {
	buffer []byte
	part   []byte // unread rest of the last part, as the kernel wrote it
	next   int64  // offset after the last name that was returned
}

// partSize is the number of bytes that are read at once.
const partSize = 8 << 10

// read returns the next name and whether it may be a directory, which some file systems do not report. At the end it
// returns io.EOF.
func (n *dirNames) read(dir *os.File) (name string, maybeDir bool, err error) {
	for {
		if len(n.part) == 0 {
			if err := n.fill(dir); err != nil {
				return "", false, err
			}
		}
		const header = 19 // struct linux_dirent64: inode, offset, length, type
		length := int(binary.NativeEndian.Uint16(n.part[16:]))
		entry := n.part[:length]
		n.part, n.next = n.part[length:], int64(binary.NativeEndian.Uint64(entry[8:]))
		raw, _, _ := bytes.Cut(entry[header:], []byte{0})
		if name := string(raw); name != "." && name != ".." {
			return name, entry[18] == unix.DT_DIR || entry[18] == unix.DT_UNKNOWN, nil
		}
	}
}

func (n *dirNames) fill(dir *os.File) error {
	if n.buffer == nil {
		n.buffer = make([]byte, partSize)
	}
	var read int
	err := uninterrupted(func() (err error) {
		read, err = unix.Getdents(int(dir.Fd()), n.buffer)
		return err
	})
	switch {
	case err != nil:
		return fmt.Errorf("reading %s: %w", dir.Name(), err)
	case read == 0:
		return io.EOF
	}
	n.part = n.buffer[:read]
	return nil
}

// park discards what was read ahead; resume continues with a new descriptor of the directory.
func (n *dirNames) park() { n.buffer, n.part = nil, nil }

func (n *dirNames) resume(dir *os.File) error {
	if _, err := unix.Seek(int(dir.Fd()), n.next, io.SeekStart); err != nil {
		return fmt.Errorf("reading on in %s: %w", dir.Name(), err)
	}
	return nil
}
