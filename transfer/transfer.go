// Package transfer copies the content of a volume to another, in a pod that has both: a tree or a block device. It
// reports progress and the result, and can be stopped and started again at any point. What is copied, and how, is in
// package nodeops.
package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/transfer/protocol"
)

// ErrFinal is an error that the same call will meet again: something must be changed before.
var ErrFinal = errors.New("another run will not help")

// ErrHasContent is about a target that no copy has left behind and that is not equal to the source. An application may
// have written to it since a copy into it was complete, as the object of the volume does not know if etcd was put back.
var ErrHasContent = errors.New("it has content that no copy has left behind, so it is only compared and not written to")

// Config says what is copied.
type Config struct {
	From, To string        // two volumes of one mode: where they are mounted, or their block devices
	Every    time.Duration // between two reports of progress; above 0
	Progress io.Writer     // one line of JSON for each report
	Result   string        // path of the file for the result or the error; the file of Kubernetes if empty
	Log      *slog.Logger

	copied func() // for tests: called between the copy and its verification
}

// Run copies the volume and verifies the copy by reading both volumes. A copy that differs is corrected and verified
// once more. All errors are also written to the result file.
func Run(ctx context.Context, config Config) error {
	content, err := run(ctx, &config)
	if err != nil {
		err = &printableError{classify(ctx, err)}
	}
	return errors.Join(err, writeResult(config.Result, content, err))
}

func run(ctx context.Context, config *Config) (content nodeops.Content, err error) {
	t, err := newTransfer(ctx, config)
	if err != nil {
		return content, err
	}
	report := startReport(config.Progress, config.Every, t.size)
	defer func() { err = errors.Join(err, report.end()) }()
	err = t.mark(ctx, false)
	if errors.Is(err, nodeops.ErrNotEmpty) {
		return compareOnly(ctx, config, t, report)
	}
	if err != nil {
		return content, err
	}
	if content, err = copyVerified(ctx, config, t, report); err == nil {
		err = t.unmark(content)
	}
	if err != nil {
		err = errors.Join(err, t.mark(ctx, true)) // another run goes on
	}
	return content, err
}

// compareOnly never writes to the target, which may be in use by an application.
func compareOnly(ctx context.Context, config *Config, t *transfer, report *report) (nodeops.Content, error) {
	report.phase(protocol.Verifying)
	content, err := t.verify(ctx, false, report.add)
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%s: %w: %w", config.To, ErrHasContent, err)
	}
	return content, err
}

// copyVerified copies into a marked target until that is equal to the source, twice at most.
func copyVerified(ctx context.Context, config *Config, t *transfer, report *report) (content nodeops.Content, err error) {
	for last := false; ; last = true {
		report.phase(protocol.Copying)
		written, err := t.copy(ctx, report.add)
		if err != nil {
			return content, err
		}
		config.Log.Info("copied", "from", config.From, "to", config.To, "written", written)
		if config.copied != nil {
			config.copied()
		}
		report.phase(protocol.Verifying)
		content, err = t.verify(ctx, !last, report.add)
		if err == nil || last || !errors.Is(err, nodeops.ErrDiffers) {
			return content, err
		}
		if err := t.mark(ctx, true); err != nil {
			return content, err
		}
		config.Log.Warn("the copy differs from its source; what differs is copied once more", "error", err)
	}
}

type transfer struct {
	size   int64 // an estimate of the bytes to copy
	copy   func(ctx context.Context, done func(int64)) (written int64, err error)
	verify func(ctx context.Context, mend bool, done func(int64)) (nodeops.Content, error)
	mark   func(ctx context.Context, again bool) error // nodeops.ErrNotEmpty means that nothing is to be written to the target
	unmark func(nodeops.Content) error
}

func newTransfer(ctx context.Context, c *Config) (*transfer, error) {
	from, err := modeOf(c.From)
	if err != nil {
		return nil, err
	}
	to, err := modeOf(c.To)
	if err != nil {
		return nil, err
	}
	switch {
	case from.mode != to.mode:
		return nil, fmt.Errorf("%s is a %s and %s a %s: both must be volumes of one mode: %w", c.From, from.mode, c.To, to.mode, ErrFinal)
	case from.is == to.is:
		return nil, fmt.Errorf("%s and %s are the same %s: %w", c.From, c.To, from.mode, ErrFinal)
	case from.mode == block:
		return blockTransfer(c)
	}
	return treeTransfer(ctx, c)
}

// The modes of a volume, as messages have them.
const (
	filesystem = "directory"
	block      = "block device"
)

type volume struct {
	mode string
	is   [2]uint64 // the number of a block device, or the device and inode of a directory
}

func modeOf(path string) (v volume, err error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		failed := &os.PathError{Op: "stat", Path: path, Err: err}
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
			return v, fmt.Errorf("%w: %w", failed, ErrFinal)
		}
		return v, failed // such as of a mount that does not answer now
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFBLK:
		return volume{block, [2]uint64{st.Rdev}}, nil
	case unix.S_IFDIR:
		return volume{filesystem, [2]uint64{st.Dev, st.Ino}}, nodeops.MustBeMounted(path)
	}
	return v, fmt.Errorf("%s is neither a directory on which a volume is mounted nor a block device: %w", path, ErrFinal)
}

func blockTransfer(c *Config) (*transfer, error) {
	size, err := nodeops.DeviceSize(c.From)
	return &transfer{
		size: size,
		copy: func(ctx context.Context, done func(int64)) (int64, error) {
			return nodeops.CopyDevice(ctx, c.To, c.From, done)
		},
		verify: func(ctx context.Context, _ bool, done func(int64)) (nodeops.Content, error) {
			return nodeops.CompareDevices(ctx, c.To, c.From, done)
		},
		mark:   func(ctx context.Context, again bool) error { return nodeops.MarkDevice(ctx, c.To, again) },
		unmark: func(copied nodeops.Content) error { return nodeops.UnmarkDevice(c.To, copied.Bytes) },
	}, err
}

func treeTransfer(ctx context.Context, c *Config) (*transfer, error) {
	if err := refuseNested(c.From, c.To); err != nil {
		return nil, err
	}
	usage, err := nodeops.Statfs(ctx, c.From)
	return &transfer{
		size: usage.Used,
		copy: func(ctx context.Context, done func(int64)) (int64, error) {
			return nodeops.SyncTree(ctx, c.To, c.From, done)
		},
		verify: func(ctx context.Context, mend bool, done func(int64)) (nodeops.Content, error) {
			return nodeops.CompareTrees(ctx, c.To, c.From, mend, done)
		},
		mark:   func(context.Context, bool) error { return nodeops.MarkTree(c.To) },
		unmark: func(nodeops.Content) error { return nodeops.UnmarkTree(c.To) },
	}, err
}

// refuseNested refuses a volume that is mounted in the other: what the target has and the source has not is removed.
func refuseNested(paths ...string) error {
	for i, path := range paths {
		resolved, err := filepath.EvalSymlinks(path)
		if err == nil {
			resolved, err = filepath.Abs(resolved)
		}
		if err != nil {
			return err
		}
		paths[i] = resolved
	}
	for _, pair := range [][2]string{{paths[0], paths[1]}, {paths[1], paths[0]}} {
		if inner, err := filepath.Rel(pair[0], pair[1]); err == nil && filepath.IsLocal(inner) {
			return fmt.Errorf("%s is within %s: mount the volumes beside each other: %w", pair[1], pair[0], ErrFinal)
		}
	}
	return nil
}

// classify adds ErrFinal to errors that a retry does not mend, and the way out.
func classify(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("stopped before the end; the next run continues: %w", err)
	}
	if errors.Is(err, ErrFinal) || errors.Is(err, ErrHasContent) {
		return err
	}
	for _, final := range []error{
		nodeops.ErrCannotKeep, nodeops.ErrForeign, nodeops.ErrTooSmall, nodeops.ErrTooMuch, nodeops.ErrTooDeep, nodeops.ErrNotMounted,
		unix.ENOSPC, unix.EDQUOT, unix.EFBIG, unix.EMLINK, unix.ENAMETOOLONG, unix.EROFS, unix.EPERM, unix.EACCES,
	} {
		if errors.Is(err, final) {
			return fmt.Errorf("%w: %w", err, ErrFinal)
		}
	}
	return err
}
