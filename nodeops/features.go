package nodeops

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Features are the features of the file system of a directory.
type Features struct {
	FSType       string
	BlockSize    int64
	ReadOnly     bool // the others could not be tried
	Reflink      bool // files can share blocks
	DirectIO     bool // loop devices on its files should bypass the page cache
	ProjectQuota bool // limits of project quotas are enforced
	BtrfsQuota   bool // quota groups are enabled
}

// Probe tries the features with unnamed files, which vanish with the process.
func Probe(dir string) (Features, error) {
	root, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return Features{}, err
	}
	defer root.Close()
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(root.Fd()), &st); err != nil {
		return Features{}, fmt.Errorf("probing %s: %w", dir, err)
	}
	f := Features{FSType: typeName(st.Type), BlockSize: st.Bsize, ReadOnly: st.Flags&unix.ST_RDONLY != 0}
	f.ProjectQuota = openQuotaTable(root).enforced() == nil
	f.BtrfsQuota = f.FSType == "btrfs" && hasQgroups(root)
	if f.ReadOnly {
		return f, nil
	}
	if err := f.tryFiles(dir); err != nil {
		return Features{}, fmt.Errorf("probing %s: %w", dir, err)
	}
	return f, nil
}

func (f *Features) tryFiles(dir string) error {
	src, err := unnamedFile(dir)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := unnamedFile(dir)
	if err != nil {
		return err
	}
	defer dst.Close()
	if _, err := src.Write(make([]byte, f.BlockSize)); err != nil {
		return err
	}
	f.Reflink = unix.IoctlFileClone(int(dst.Fd()), int(src.Fd())) == nil
	if f.DirectIO, err = directIO(src); err != nil || !f.DirectIO {
		return err
	}
	_, err = unix.FcntlInt(src.Fd(), unix.F_SETFL, unix.O_DIRECT)
	f.DirectIO = err == nil
	return nil
}

// isLinux6 says whether the kernel is 6.MINOR or newer, for what cannot be tried. It is false if the version cannot be read.
func isLinux6(minor int) bool {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return false
	}
	var is [2]int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &is[0], &is[1]); err != nil {
		return false
	}
	return is[0] > 6 || is[0] == 6 && is[1] >= minor
}

func unnamedFile(dir string) (*os.File, error) {
	f, err := os.OpenFile(dir, os.O_RDWR|unix.O_TMPFILE, 0o600)
	if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EISDIR) {
		return f, err
	}
	if f, err = os.CreateTemp(dir, ".probe-"); err != nil {
		return nil, err
	}
	return f, os.Remove(f.Name())
}

// hasQgroups returns whether quotas of a btrfs are enabled.
func hasQgroups(root *os.File) bool {
	_, err := os.Stat(qgroupsOf(root))
	return err == nil
}

// qgroupsOf returns the directory in sysfs with the quota groups of a btrfs; it does not exist for other file systems.
func qgroupsOf(root *os.File) string {
	is, _ := btrfsInfo(root) // which says less if there is an error
	if is == nil {
		return ""
	}
	return filepath.Join(is.dir, "qgroups")
}
