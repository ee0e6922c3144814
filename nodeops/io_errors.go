package nodeops

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// The kernel reports an I/O error to the process that reads or writes, and in its log. Only btrfs counts errors in the
// blocks of files, and no counter exists for raw devices.

// FollowIOErrors reads the kernel's log from now on until ctx ends, and records I/O errors.
func FollowIOErrors(ctx context.Context) error {
	f, err := os.OpenFile("/dev/kmsg", os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("the kernel's log cannot be read, so I/O errors of devices are not detected: %w", err)
	}
	defer f.Close()
	if _, err := f.Seek(0, io.SeekEnd); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })()
	record := make([]byte, 8<<10) // each read returns one record
	for {
		n, err := f.Read(record)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.EPIPE): // records were overwritten before they were read
		case err != nil:
			return fmt.Errorf("reading the kernel's log: %w", err)
		default:
			ioErrors.note(string(record[:n]), time.Now())
		}
	}
}

// ioErrorLog has the recorded I/O errors, by device name.
type ioErrorLog struct {
	mu   sync.Mutex
	seen map[string]*deviceErrors
}

type deviceErrors struct {
	attachment  string // distinguishes a device from a later attachment
	count       int
	first, last time.Time
}

var ioErrors = ioErrorLog{seen: map[string]*deviceErrors{}}

// ioErrorLine matches errors after which data is lost or could not be read, so not a full device. Lines that processes
// write to the log have a higher facility number.
var ioErrorLine = regexp.MustCompile(`^[0-7],[^;]*;(?:Buffer )?(?:I/O error|critical (?:medium|target) error),? (?:on )?dev ([a-z0-9!-]+),`)

// note evaluates one record of the kernel's log.
func (l *ioErrorLog) note(record string, now time.Time) {
	found := ioErrorLine.FindStringSubmatch(record)
	if found == nil {
		return
	}
	name := found[1]
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.seen[name]
	if is := attachmentOf(name); d == nil || d.attachment != is {
		d = &deviceErrors{attachment: is, first: now}
		l.seen[name] = d
	}
	d.count++
	d.last = now
}

// of describes the errors of a device since its current attachment, or returns "".
func (l *ioErrorLog) of(name string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.seen[name]
	if d == nil {
		return ""
	}
	if d.attachment != attachmentOf(name) {
		delete(l.seen, name)
		return ""
	}
	at := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }
	return fmt.Sprintf("the kernel has logged I/O errors of %s: at least %d, the first at %s, the last at %s; data written there may be lost; its log says where",
		name, d.count, at(d.first), at(d.last))
}

// attachmentOf identifies the current attachment of a device.
func attachmentOf(name string) string {
	return attribute(filepath.Join("/sys/block", name), "diskseq")
}

// IOErrors describes the I/O errors of a device, such as /dev/loop3, since it was attached; "" if none are known.
// Errors of a partition are counted for its disk.
func IOErrors(device string) string {
	name := filepath.Base(device)
	if link, err := os.Readlink(filepath.Join("/sys/class/block", name)); err == nil {
		if _, err := os.Stat(filepath.Join("/sys/class/block", name, "partition")); err == nil {
			name = filepath.Base(filepath.Dir(link))
		}
	}
	return ioErrors.of(name)
}
