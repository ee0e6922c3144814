package local

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/backendtest"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

const mib = 1 << 20

func TestImageOnXFS_Conforms(t *testing.T)        { conforms(t, "image", "ext4", hostfs.XFS) }
func TestXFSImageOnXFS_Conforms(t *testing.T)     { conforms(t, "image", "xfs", hostfs.XFS) }
func TestImageOnExt4_Conforms(t *testing.T)       { conforms(t, "image", "ext4", hostfs.Ext4) }
func TestBtrfsImageOnBtrfs_Conforms(t *testing.T) { conforms(t, "image", "btrfs", hostfs.Btrfs) }
func TestDirectoryOnBtrfs_Conforms(t *testing.T)  { conforms(t, "directory", "", hostfs.Btrfs) }
func TestDirectoryOnXFS_Conforms(t *testing.T)    { conforms(t, "directory", "", hostfs.XFSQuota) }
func TestDirectoryOnExt4_Conforms(t *testing.T)   { conforms(t, "directory", "", hostfs.Ext4Quota) }
func TestBlockImage_ConformsWithoutRoot(t *testing.T) {
	backendtest.Suite{Open: func(t *testing.T, size int64) *backendtest.Fixture {
		path, most := filepath.Join(t.TempDir(), "pool"), size
		if os.Geteuid() == 0 { // other programs fill the file system of the machine
			path, most = hostfs.New(t, hostfs.Ext4, size), 0
		}
		f := fixture(t, "image", path, most)
		f.Mode, f.Write, f.Read = backend.Block, writeImage, readImage
		return f
	}}.Run(t)
}

func conforms(t *testing.T, engine, fstype string, k hostfs.Kind) {
	hostfs.RequireRoot(t)
	backendtest.Suite{Open: func(t *testing.T, size int64) *backendtest.Fixture {
		f := fixture(t, engine, hostfs.New(t, k, size), 0)
		f.FSType = fstype
		if fstype == "" || fstype == "ext4" {
			return f
		}
		f.Smallest = check.Got(nodeops.SmallestFS(fstype))(t)
		return f
	}}.Run(t)
}

// fixture opens a pool at path. If the file system was not made for the test, most limits what the pool promises.
func fixture(t *testing.T, engine, path string, most int64) *backendtest.Fixture {
	config := PoolConfig{Name: "pool", Engine: engine, Path: path}
	if most > 0 {
		check.OK(t, os.Mkdir(path, 0o755))
		config.Reserved = reserveFor(t, path, most)
	}
	b := open(t, config)
	t.Cleanup(func() { b.Close(context.Background()) })
	return &backendtest.Fixture{
		Backend: b,
		Reopen: func(t *testing.T) backend.Storage {
			check.OK(t, b.Close(context.Background()))
			b = open(t, config)
			return b
		},
		Mode: backend.Filesystem, Smallest: 64 * mib, Write: writeFS, Read: readFS,
	}
}

func open(t *testing.T, configs ...PoolConfig) *Backend {
	t.Helper()
	return check.Got(Open(context.Background(), configs, silent))(t)
}

// reserveFor returns the reserve that leaves about size bytes to promise, on any file system.
func reserveFor(t *testing.T, path string, size int64) string {
	usage := check.Got(nodeops.Statfs(t.Context(), path))(t)
	return fmt.Sprint(max(0, usage.Available-size))
}

// mounted mounts a volume at a directory while f runs, as a node does.
func mounted(t *testing.T, v *backend.Volume, f func(dir string)) {
	t.Helper()
	if v.Access.Directory != "" {
		f(v.Access.Directory)
		return
	}
	dir, unmount := mountImage(t, v)
	defer unmount()
	f(dir)
}

func mountImage(t *testing.T, v *backend.Volume) (dir string, unmount func()) {
	t.Helper()
	loop := check.Got(nodeops.AttachLoop(t.Context(), v.Access.Image, nodeops.LoopOptions{Autoclear: true}))(t)
	defer loop.Close()
	dir = t.TempDir()
	check.OK(t, nodeops.MountFS(t.Context(), loop.Path, dir, v.FSType, nil))
	return dir, func() { check.Report(t, nodeops.Unmount(context.Background(), dir)) }
}

func writeFS(t *testing.T, v *backend.Volume, content []byte) {
	t.Helper()
	mounted(t, v, func(dir string) { writeSyncedFile(t, filepath.Join(dir, "file"), content) })
}

func readFS(t *testing.T, v *backend.Volume, length int) (content []byte) {
	t.Helper()
	mounted(t, v, func(dir string) { content = check.Got(os.ReadFile(filepath.Join(dir, "file")))(t) })
	return content[:min(length, len(content))]
}

func writeSyncedFile(t *testing.T, name string, content []byte) {
	t.Helper()
	f := check.Got(os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o600))(t)
	defer f.Close()
	check.Got(f.Write(content))(t)
	check.OK(t, f.Sync())
}

func writeImage(t *testing.T, v *backend.Volume, content []byte) {
	t.Helper()
	writeSyncedFile(t, v.Access.Image, content)
}

func readImage(t *testing.T, v *backend.Volume, length int) []byte {
	t.Helper()
	f := check.Got(os.Open(v.Access.Image))(t)
	defer f.Close()
	content := make([]byte, length)
	check.Got(io.ReadFull(f, content))(t)
	return content
}
