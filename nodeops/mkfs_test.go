package nodeops

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/nodeops/mkfs"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

// remake makes a file system with MakeFS in a new sparse file.
func remake(t testing.TB, size int64, spec MkfsSpec) string {
	t.Helper()
	requireRoot(t)
	image := sparse(t, t.TempDir(), size)
	check.OK(t, MakeFS(t.Context(), image, spec))
	return image
}

// mountLoop attaches and mounts as a node does.
func mountLoop(t testing.TB, image, fstype string, options ...string) (mountpoint, device string) {
	t.Helper()
	l := attach(t, image, LoopOptions{Autoclear: true})
	target := newTarget(t)
	check.OK(t, MountFS(t.Context(), l.Path, target, fstype, options))
	l.Close()
	return target, l.Path
}

func TestMkfs_SmallestFileSystemOfEachTypeHoldsFiles(t *testing.T) {
	eachFS(t, func(t *testing.T, fstype string, _ int64) {
		size := check.Got(SmallestFS(fstype))(t)
		image := remake(t, size, MkfsSpec{FSType: fstype})
		if fstype == "ext4" && !strings.Contains(command(t, "dumpe2fs", "-h", image), "has_journal") {
			t.Error("it has no journal")
		}
		dir, _ := mountLoop(t, image, fstype)
		content := strings.Repeat("holdfast", 1<<17)
		write(t, filepath.Join(dir, "file"), content)
		unmountAll(t, dir)
		dir, _ = mountLoop(t, image, fstype)
		if read(t, filepath.Join(dir, "file")) != content {
			t.Error("the file came back changed")
		}
	})
}

func TestMkfs_BelowTheSmallestSizeFails(t *testing.T) {
	requireRoot(t)
	for _, fstype := range []string{"xfs", "btrfs"} {
		if err := MakeFS(t.Context(), sparse(t, t.TempDir(), 64*mib), MkfsSpec{FSType: fstype}); err == nil {
			t.Errorf("%s was made in 64 MiB: SmallestFS is wrong", fstype)
		} else if errors.Is(err, ErrMkfsRefused) {
			t.Errorf("%s: options are blamed although none were given: %v", fstype, err)
		}
	}
}

func TestMkfs_ImpossibleIsRefused(t *testing.T) {
	for _, c := range []struct {
		spec MkfsSpec
		says string
	}{
		{MkfsSpec{FSType: ""}, "ext4, xfs or btrfs"},
		{MkfsSpec{FSType: "ext3"}, "ext4, xfs or btrfs"},
		{MkfsSpec{FSType: "XFS"}, "ext4, xfs or btrfs"},
		{MkfsSpec{FSType: "ext4 "}, "ext4, xfs or btrfs"},
		{MkfsSpec{FSType: strings.Repeat("x", 10000)}, "ext4, xfs or btrfs"},
		{MkfsSpec{FSType: "xfs", Inodes: 1000}, ""},
		{MkfsSpec{FSType: "btrfs", Inodes: 1000}, ""},
		{MkfsSpec{FSType: "ext4", Inodes: 1 << 32}, ""},
		{MkfsSpec{FSType: "ext4", Inodes: 1000, Options: []string{"-N", "1000"}}, ""},
		{MkfsSpec{FSType: "ext4", Inodes: 1000, Options: []string{"-i8192"}}, ""},
		{MkfsSpec{FSType: "ext4", UUID: someUUID}, someUUID},
		{MkfsSpec{FSType: "xfs", UUID: "generate"}, "generate"},
		{MkfsSpec{FSType: "xfs", UUID: strings.ToUpper(someUUID)}, strings.ToUpper(someUUID)},
	} {
		if err := CheckMkfs(c.spec); err == nil || !strings.Contains(err.Error(), c.says) || len(err.Error()) > 300 {
			t.Errorf("%.200s: %v", fmt.Sprint(c.spec), err)
		}
	}
}

func TestMkfs_DataIsNeverFormatted(t *testing.T) {
	requireRoot(t)
	for fstype := range fileSystems {
		spec := MkfsSpec{FSType: fstype}
		for held := range fileSystems {
			t.Run(fstype+" over "+held, func(t *testing.T) {
				image := newImage(t, held, fileSystems["xfs"])
				before := checksum(t, image)
				check.Fails(t, MakeFS(t.Context(), image, spec), ErrNotEmpty)
				l := attach(t, image, LoopOptions{Autoclear: true})
				check.Fails(t, MakeFS(t.Context(), l.Path, spec), ErrNotEmpty, held)
				check.Same(t, checksum(t, image), before)
			})
		}
	}
}

func TestMkfs_KeepsPreallocatedSpace(t *testing.T) {
	eachFS(t, func(t *testing.T, fstype string, size int64) {
		if fstype == "btrfs" {
			requireRoot(t) // mkfs.xfs checks whether the file is mounted, which needs root if loop devices are attached
		}
		dir := t.TempDir()
		var s unix.Statfs_t
		check.OK(t, unix.Statfs(dir, &s))
		if s.Type == unix.TMPFS_MAGIC { // which frees what mkfs.ext4 fills with zeros, and has no pools
			dir = hostfs.New(t, hostfs.Ext4, gib)
		}
		image := sparse(t, dir, 0)
		f := check.Got(os.OpenFile(image, os.O_RDWR, 0))(t)
		defer f.Close()
		check.OK(t, Preallocate(f, size))
		check.OK(t, MakeFS(t.Context(), image, MkfsSpec{FSType: fstype}))
		if got := allocated(t, image); got < size {
			t.Errorf("%d of %d bytes are left", got, size)
		}
		check.OK(t, errors.Join(f.Truncate(0), Preallocate(f, size)))
		l := attach(t, image, LoopOptions{Autoclear: true})
		check.OK(t, MakeFS(t.Context(), l.Path, MkfsSpec{FSType: fstype}))
		if got := allocated(t, image); got < size {
			t.Errorf("on a device: %d of %d bytes are left", got, size)
		}
		l.Close()
		mountLoop(t, image, fstype)
	})
}

func TestMkfs_ThinExt4StaysThinAfterItsFirstMount(t *testing.T) {
	image := remake(t, gib, MkfsSpec{FSType: "ext4"})
	if !strings.Contains(command(t, "dumpe2fs", image), "ITABLE_ZEROED") {
		t.Error("the kernel will write zeros over the inode tables")
	}
	if got := allocated(t, image); got > 4*mib {
		t.Errorf("%d bytes are taken by an empty file system", got)
	}
}

func TestMkfs_InodesAreAsManyAsRequested(t *testing.T) {
	for _, want := range []uint64{1000, 1024, 100000} {
		dir, _ := mountLoop(t, remake(t, 256*mib, MkfsSpec{FSType: "ext4", Inodes: want}), "ext4")
		usage := check.Got(Statfs(t.Context(), dir))(t)
		if got := uint64(usage.InodesFree); got < want || got > want+want/10+64 {
			t.Errorf("%d inodes were requested, %d are free", want, got)
		}
	}
}

// allowed has an example of every allowed option.
var allowed = map[string][]string{
	"ext4": {
		"-i 8192 -I 512", "-i4096", "-N 2000", "-m 1.5", "-m0", "-L data_1", "-G 32", "-J size=16", "-T largefile", "-T news", "-e remount-ro",
		"-E stride=16,stripe_width=64", "-E lazy_itable_init=0,lazy_journal_init=0", "-E resize=1000000",
		"-E root_owner=1000:1000", "-E packed_meta_blocks=1",
		"-O ^metadata_csum,^64bit", "-O large_dir,ea_inode,inline_data,metadata_csum_seed", "-O fast_commit",
		"-O orphan_file", "-O ^dir_index,^huge_file,^flex_bg",
	},
	"xfs": {
		"-m reflink=0,rmapbt=0", "-m rmapbt=1,finobt=1,inobtcount=1,bigtime=1,crc=1", "-i maxpct=10,size=1024", "-i sparse=0", "-d su=64k,sw=4",
		"-d agcount=2,noalign", "-d cowextsize=16", "-l size=100m,lazy-count=1", "-n size=8192", "-Ldata",
	},
	"btrfs": {
		"-m single -d single", "--metadata=dup --data single", "-O no-holes", "-O ^no-holes", "-n 8k", "--nodesize 32768", "--csum xxhash",
		"--checksum=blake2", "-L data.1", "-R free-space-tree",
	},
}

func TestMkfs_EveryAllowedOptionMakesAFileSystemThatMounts(t *testing.T) {
	requireRoot(t)
	for fstype, examples := range allowed {
		covered := map[string]bool{}
		for _, example := range examples {
			options := strings.Fields(example)
			for _, o := range check.Got(mkfs.Parse(fstype, options))(t) {
				covered[o.Flag] = true
			}
			t.Run(fstype+" "+example, func(t *testing.T) {
				image := remake(t, gib, MkfsSpec{FSType: fstype, Options: options})
				dir, _ := mountLoop(t, image, fstype)
				write(t, filepath.Join(dir, "file"), "content")
			})
		}
		for _, flag := range mkfs.Flags(fstype) {
			if !covered[flag] {
				t.Errorf("option %s of %s is allowed and never tried", flag, fstype)
			}
		}
	}
}

func TestMkfs_AllOptionsTakeEffect(t *testing.T) {
	image := remake(t, 64*mib, MkfsSpec{FSType: "ext4", Options: []string{"-L", "mine", "-m", "3", "-E", "stride=8", "-I512"}})
	got := command(t, "dumpe2fs", "-h", image)
	for _, want := range []string{"mine", "Reserved block count:     491", "RAID stride:              8", "Inode size:	          512", "Block size:               4096"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
}

func TestMkfs_OptionsThatDoNotFitTheSizeAreNamed(t *testing.T) {
	requireRoot(t)
	for _, spec := range []MkfsSpec{
		{FSType: "ext4", Options: []string{"-N", "99999999"}},
		{FSType: "xfs", Options: []string{"-l", "size=10g"}},
		{FSType: "btrfs", Options: []string{"-d", "dup", "-n", "4k", "-L", "x", "-O", "^extref,quota"}},
	} {
		check.Fails(t, MakeFS(t.Context(), sparse(t, t.TempDir(), 320*mib), spec), ErrMkfsRefused, fmt.Sprintf("%q", spec.Options))
	}
}

func TestMkfs_FullPoolIsNotBlamedOnTheOptions(t *testing.T) {
	dir := newFS(t, "ext4", 16*mib)
	image := sparse(t, dir, gib)
	fill(t, filepath.Join(dir, "filler"))
	err := MakeFS(t.Context(), image, MkfsSpec{FSType: "ext4", Options: []string{"-L", "x"}})
	if !errors.Is(err, unix.ENOSPC) || errors.Is(err, ErrMkfsRefused) {
		t.Errorf("got %v, want ENOSPC", err)
	}
}

func TestMount_CloneIsMountedBesideItsSource(t *testing.T) {
	eachFS(t, func(t *testing.T, fstype string, size int64) {
		image := remake(t, size, MkfsSpec{FSType: fstype})
		source, _ := mountLoop(t, image, fstype)
		write(t, filepath.Join(source, "file"), "source")
		unmountAll(t, source)
		images := []string{image, image + "1", image + "2"}
		for i, clone := range images[1:] { // the second is a clone of the first
			command(t, "cp", "--sparse=always", images[i], clone)
			check.OK(t, RenewFSID(t.Context(), clone, fstype))
			// Some kernels tolerate two with the same identity, others confuse them.
			if fstype == "btrfs" && identity(t, clone) == identity(t, images[i]) {
				t.Error("the clone has the identity of its source")
			}
		}
		dirs := make([]string, len(images))
		for i, image := range images {
			dirs[i], _ = mountLoop(t, image, fstype)
			write(t, filepath.Join(dirs[i], "file"), image)
		}
		for i, image := range images {
			holds(t, filepath.Join(dirs[i], "file"), image)
		}
	})
}

func identity(t testing.TB, image string) string {
	t.Helper()
	return command(t, "blkid", "-p", "-s", "UUID", "-o", "value", image)
}

func FuzzMkfsOptions(f *testing.F) {
	for fstype, examples := range allowed {
		for _, example := range examples {
			f.Add(fstype, strings.ReplaceAll(example, " ", "\n"))
		}
	}
	f.Add("xfs", "-d\nfile,name=/etc/passwd")
	f.Add("ext4", "-J\ndevice=/dev/vda")
	f.Fuzz(func(t *testing.T, fstype, joined string) {
		options := strings.Split(joined, "\n")
		given, err := mkfs.Parse(fstype, options)
		if err != nil {
			return
		}
		for _, o := range given {
			if !slices.Contains(mkfs.Flags(fstype), o.Flag) {
				t.Errorf("flag %q of %s was let through", o.Flag, fstype)
			}
			// Neither a path, a device nor a second option.
			if o.Value == "" || strings.HasPrefix(o.Value, "-") || strings.ContainsAny(o.Value, "/ \t\r\n\x00\\~*?$`'\"@") {
				t.Errorf("value %q of %s was let through", o.Value, o.Flag)
			}
			for part := range strings.SplitSeq(o.Value, ",") {
				key, _, _ := strings.Cut(part, "=")
				if slices.Contains([]string{"name", "file", "device", "logdev", "rtdev", "offset", "location", "sectsize", "uuid"}, key) && o.Flag != "-L" {
					t.Errorf("%s %s was let through", o.Flag, part)
				}
			}
		}
		again, err := mkfs.Parse(fstype, given.Args())
		if err != nil || !slices.Equal(again, given) {
			t.Errorf("%q was read as %q and then as %q (%v)", options, given, again, err)
		}
	})
}

func TestFSContent_CopiedToZerosIsAFileSystem(t *testing.T) {
	eachFS(t, func(t *testing.T, fstype string, size int64) {
		content := check.Got(NewFSContent(t.Context(), size, MkfsSpec{FSType: fstype}))(t)
		defer content.Close()
		image := sparse(t, t.TempDir(), size)
		f := check.Got(os.OpenFile(image, os.O_RDWR, 0))(t)
		defer f.Close()
		check.OK(t, content.CopyTo(t.Context(), f, 4<<10))
		if checksum(t, image) != checksum(t, content.file.Name()) {
			t.Error("it differs")
		}
		if is := allocated(t, image); is > 16*mib {
			t.Errorf("it takes %d bytes", is)
		}
		target, l := t.TempDir(), attach(t, image, LoopOptions{Autoclear: true})
		check.OK(t, MountFS(t.Context(), l.Path, target, fstype, nil))
		t.Cleanup(func() { unmountAll(t, target) })
		write(t, filepath.Join(target, "file"), "holdfast")
	})
}

func TestFSContent_TwoForEachProcessorAreMadeAtOnce(t *testing.T) {
	for range 2 * runtime.GOMAXPROCS(0) {
		making <- struct{}{}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	spec := MkfsSpec{FSType: "ext4"}
	if _, err := NewFSContent(ended, 16*mib, spec); !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "mke2fs") {
		t.Errorf("one more did not wait: %v", err)
	}
	for len(making) > 0 {
		<-making
	}
	for range cap(making) + 1 {
		check.OK(t, check.Got(NewFSContent(t.Context(), 16*mib, spec))(t).Close())
	}
}

// What mkfs.xfs fills with zeros is in the memory of the process.
func TestFSContent_OfALargeXFSTakesLittleMemory(t *testing.T) {
	requireRoot(t)
	content := check.Got(NewFSContent(t.Context(), 8<<40, MkfsSpec{FSType: "xfs"}))(t)
	defer content.Close()
	if is := allocated(t, content.file.Name()); is > mostLog+16*mib {
		t.Errorf("it takes %d bytes", is)
	}
}
