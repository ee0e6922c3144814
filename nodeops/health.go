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

	"golang.org/x/sys/unix"
)

// Health is what the kernel reports about a mounted file system. Empty fields mean no problem.
type Health struct {
	Errors string // errors of the file system, and what to do
	Device string // I/O errors of the device, if the file system has no errors
	Small  string // says that the file system is smaller than its device; empty while it is being grown
}

// answerWithin is how long a file system may take to answer. The kubelet's calls time out after two minutes.
const answerWithin = 10 * time.Second

var healthCalls offThread[Health]

// FSHealth returns the errors that the kernel has recorded for a mounted file system. It reads little from disk, and
// waits for at most answerWithin and until ctx ends: a file system that does not answer has failed.
func FSHealth(ctx context.Context, m *Mount) Health {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	hangs := fmt.Sprintf("the %s at %s does not answer; look for failing disks", m.FSType, m.Target)
	h, err := healthCalls.do(ctx, m.ID, hangs, func() (Health, error) { return healthOf(m), nil })
	if err != nil {
		return Health{Errors: hangs}
	}
	return h
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
		h.Small = describeSmall(root, m)
	}
	if h.Errors == "" && m.FSType != "btrfs" { // which counts them itself, and knows which were repaired
		h.Device = IOErrors(deviceName(m.Device))
	}
	return h
}

// openShown opens the root of a mount; nil if the mount is covered by another one or not visible.
func openShown(m *Mount) (*os.File, error) {
	top, err := os.OpenFile(m.Target, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if !isOfMount(int(top.Fd()), "", m) {
		top.Close()
		return nil, nil //nolint:nilnil // nil means not visible
	}
	return top, nil
}

// ext4Errors describes the errors since the last e2fsck, including those during earlier mounts.
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

// deviceName returns the kernel's name of a major:minor, or "".
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

// btrfsErrors describes the errors since the last `btrfs device stats -z`, including those during earlier mounts.
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
		content, _ := os.ReadFile(file) // a device that was removed has none
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
