package nodeops

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"
	"golang.org/x/sys/unix"
)

// Health is what a mounted file system says of itself. Empty fields mean that nothing is wrong.
type Health struct {
	Errors string // that the kernel has met in it, with what helps
	Device string // the I/O errors that the kernel has met of the device below it, if it has none of its own
	Small  string // how much of its device it takes, where that is not all; nothing while it is being grown
}

// answerWithin is how long a file system may take to say how it is. The kubelet gives up a call after two minutes.
const answerWithin = 10 * time.Second

// healthCalls holds the questions under way, as usageCalls does: one that hangs never gets a second.
var healthCalls singleflight.Group

// FSHealth asks a file system that is mounted for the errors that the kernel has met in it. It reads hardly more than what
// is in memory, and does not wait for long, and no longer than ctx: what does not answer is in error too.
func FSHealth(ctx context.Context, m *Mount) Health {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	select {
	case answer := <-healthCalls.DoChan(m.ID, func() (any, error) { return healthOf(m), nil }):
		h, _ := answer.Val.(Health)
		return h
	case <-ctx.Done():
		return Health{Errors: fmt.Sprintf("the %s at %s does not answer; look for failing disks", m.FSType, m.Target)}
	}
}

func healthOf(m *Mount) (h Health) {
	root, err := openShown(m)
	if root != nil {
		defer root.Close()
	}
	switch {
	case errors.Is(err, unix.EIO) || errors.Is(err, unix.ESTALE) || errors.Is(err, unix.ENODEV):
		h.Errors = fmt.Sprintf("the %s at %s has failed (%v); the kernel's log says why; its log is replayed when it is mounted the next time, and where that fails %s on a copy may repair it",
			m.FSType, m.Target, err, repairs[m.FSType])
	case m.FSType == "ext4":
		h.Errors = ext4Errors(m)
	case m.FSType == "btrfs" && root != nil:
		h.Errors = btrfsErrors(root, m)
	}
	switch {
	case h.Errors == "" && m.Failed:
		h.Errors = fmt.Sprintf("the %s at %s has had an error and can no longer be written; see the kernel's log", m.FSType, m.Target)
	case h.Errors == "" && !m.ReadOnly && root != nil:
		h.Small = small(root, m)
	}
	if h.Errors == "" && m.FSType != "btrfs" { // which counts them itself, and knows which it has mended
		h.Device = IOErrors(deviceName(m.Device))
	}
	return h
}

// openShown opens what a mount shows, nil if that is covered by another mount or cannot be seen.
func openShown(m *Mount) (*os.File, error) {
	top, err := os.OpenFile(m.Target, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if !isOfMount(int(top.Fd()), "", m) {
		top.Close()
		return nil, nil //nolint:nilnil // as said
	}
	return top, nil
}

// ext4Errors are those counted since the last e2fsck, also by earlier mounts.
func ext4Errors(m *Mount) string {
	dir := filepath.Join("/sys/fs/ext4", deviceName(m.Device))
	count := counter(dir, "errors_count")
	if count == 0 {
		return ""
	}
	at := func(which string) string {
		when := time.Unix(counter(dir, which+"_error_time"), 0).UTC().Format(time.RFC3339)
		return fmt.Sprintf("at %s in %s", when, attribute(dir, which+"_error_func"))
	}
	readOnly := ""
	if m.Failed {
		readOnly = " and can no longer be written"
	}
	return fmt.Sprintf("the ext4 at %s has had errors%s: %d, the first %s, the last %s; files may be damaged; it is checked and repaired before it is mounted the next time", m.Target, readOnly, count, at("first"), at("last"))
}

// deviceName is the kernel's for a major:minor, "" if there is no such device.
func deviceName(number string) string {
	link, err := os.Readlink(filepath.Join("/sys/dev/block", number))
	if err != nil {
		return ""
	}
	return filepath.Base(link)
}

func counter(dir, name string) int64 {
	n, err := strconv.ParseInt(attribute(dir, name), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// btrfsErrors are those counted since the last `btrfs device stats -z`, also by earlier mounts.
func btrfsErrors(root *os.File, m *Mount) string {
	is, err := btrfsInfo(root)
	if err != nil {
		return ""
	}
	stats, err := filepath.Glob(filepath.Join(is.dir, "devinfo/*/error_stats"))
	if err != nil {
		return ""
	}
	var counts []string
	for _, file := range stats {
		content, _ := os.ReadFile(file) // a device that has gone has none
		for line := range strings.Lines(string(content)) {
			if name, count, ok := strings.Cut(strings.TrimSpace(line), " "); ok && count != "0" {
				counts = append(counts, name+" "+count)
			}
		}
	}
	if len(counts) == 0 {
		return ""
	}
	return fmt.Sprintf("the btrfs at %s has had errors of its device: %s; btrfs scrub start -B %[1]s names the damaged files, and once these are restored from a snapshot or backup btrfs device stats -z %[1]s ends this report", m.Target, strings.Join(counts, ", "))
}
