package nodeops

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/nodeops/mkfs"
)

// ErrMkfsRefused means that mkfs did not accept the options of a MkfsSpec, perhaps because of the size.
var ErrMkfsRefused = errors.New("mkfs refused")

// MkfsSpec specifies a file system.
type MkfsSpec struct {
	FSType  string
	Options []string
	Inodes  uint64 // minimum number of files, hardly exceeded; zero selects the default of mkfs
	UUID    string // for xfs only; empty selects a random one
}

// SmallestFS returns the minimum size of a file system of that type, with a journal.
func SmallestFS(fstype string) (bytes int64, err error) {
	switch fstype {
	case "ext4":
		return 16 << 20, nil
	case "xfs":
		return 300 << 20, nil
	case "btrfs":
		return 128 << 20, nil
	}
	_, err = mkfs.Parse(fstype, nil)
	return 0, err
}

var uuidForm = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// reservedInodes is the number of inodes that ext4 reserves, including lost+found.
const reservedInodes = 11

// CheckMkfs validates a spec.
func CheckMkfs(spec MkfsSpec) error {
	if _, err := SmallestFS(spec.FSType); err != nil {
		return err
	}
	given, err := mkfs.Parse(spec.FSType, spec.Options)
	switch {
	case err != nil:
		return err
	case spec.UUID != "" && (spec.FSType != "xfs" || !uuidForm.MatchString(spec.UUID)):
		return fmt.Errorf("UUID %q of %s: only xfs accepts one, of 32 hexadecimal digits in groups of 8-4-4-4-12", shorten(spec.UUID), spec.FSType)
	case spec.Inodes == 0:
		return nil
	case spec.FSType != "ext4":
		return fmt.Errorf("%s makes inodes as it needs them and cannot have %d of them; use ext4, or leave the number out", spec.FSType, spec.Inodes)
	case spec.Inodes > math.MaxUint32-reservedInodes:
		return fmt.Errorf("ext4 cannot have %d inodes; at most %d", spec.Inodes, math.MaxUint32-reservedInodes)
	}
	for _, flag := range []string{"-N", "-i", "-T"} {
		if given.Has(flag) {
			return fmt.Errorf("mkfs option %s contradicts the number of inodes, %d; give one of them", flag, spec.Inodes)
		}
	}
	return nil
}

// MakeFS makes a file system in a file or on a block device that is proven empty; otherwise it fails with ErrNotEmpty
// and changes nothing. It does not discard blocks, so that preallocated space stays allocated.
func MakeFS(ctx context.Context, path string, spec MkfsSpec) error {
	if err := CheckMkfs(spec); err != nil {
		return err
	}
	zeroed, err := proveEmpty(ctx, path)
	if err != nil {
		return fmt.Errorf("making %s: %w", spec.FSType, err)
	}
	given, err := mkfs.Parse(spec.FSType, spec.Options)
	if err != nil {
		return err
	}
	switch spec.FSType {
	case "ext4":
		err = makeExt4(ctx, path, given, spec.Inodes, zeroed)
	case "xfs":
		args := append([]string{"-q", "-K", "-b", "size=4096", "-s", "size=4096"}, given.Args()...)
		if spec.UUID != "" {
			args = append(args, "-m", "uuid="+spec.UUID)
		}
		_, err = run(ctx, "mkfs.xfs", append(args, path)...)
	case "btrfs":
		_, err = run(ctx, "mkfs.btrfs", append([]string{"-q", "-K", "-s", "4096"}, append(given.Args(), path)...)...)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && !errors.Is(err, unix.ENOSPC) && ctx.Err() == nil && len(given) > 0 {
		return fmt.Errorf("%w options %q: %w", ErrMkfsRefused, spec.Options, err)
	}
	return err
}

// makeExt4 merges its extended options with the given ones, because mke2fs uses only the last -E.
func makeExt4(ctx context.Context, path string, given mkfs.Options, inodes uint64, zeroed bool) error {
	args := []string{"-t", "ext4", "-q", "-b", "4096", "-m", "0"}
	if inodes > 0 {
		args = append(args, "-N", strconv.FormatUint(inodes+reservedInodes, 10))
	}
	extended := []string{"nodiscard", "lazy_itable_init=1", "lazy_journal_init=1"}
	for _, o := range given {
		if o.Flag == "-E" {
			extended = append(extended, o.Value)
		} else {
			args = append(args, o.Flag, o.Value)
		}
	}
	if zeroed {
		// Otherwise the kernel zeroes the inode tables after the first mount, which allocates space in a thin image.
		err := mke2fs(ctx, path, args, append(extended, "assume_storage_prezeroed=1"))
		if err == nil || !strings.Contains(err.Error(), "specified: assume_storage_prezeroed") {
			return err
		}
	}
	return mke2fs(ctx, path, args, extended)
}

func mke2fs(ctx context.Context, path string, args, extended []string) error {
	all := append([]string{"-E", strings.Join(extended, ",")}, args...)
	_, err := run(ctx, "mke2fs", append(all, path)...)
	return err
}

// RenewFSID gives a file system that was copied with its image a new identity. Only btrfs needs one: the kernel treats
// two devices with the same identity as one file system. The others are distinguished by device.
func RenewFSID(ctx context.Context, image, fstype string) error {
	if fstype != "btrfs" {
		return nil
	}
	if _, err := run(ctx, "btrfstune", "-m", image); err != nil {
		return fmt.Errorf("changing the identity of the btrfs in %s: %w", image, err)
	}
	return nil
}
