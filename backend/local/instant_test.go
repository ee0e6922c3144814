package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/local/engine"
	"github.com/holdfast-storage/holdfast/backend/local/image"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func TestGroup_OfVolumesInUseHoldsOneInstant(t *testing.T) {
	for _, k := range []hostfs.Kind{hostfs.XFS, hostfs.Ext4} {
		t.Run(k.Name, func(t *testing.T) { groupHoldsOneInstant(t, k) })
	}
}

// groupHoldsOneInstant writes the same counter to three volumes in turn, with a sync after each write. At any instant,
// no volume is behind the previous one by more than the write in progress.
func groupHoldsOneInstant(t *testing.T, k hostfs.Kind) {
	b := served(t, PoolConfig{Name: "pool", Path: hostfs.New(t, k, 8<<30)})
	var (
		sources []backend.ID
		files   []io.WriterAt
	)
	for i := range 3 {
		v := made(t, b, backend.VolumeSpec{Name: fmt.Sprint("v", i), FSType: "ext4", Size: backend.Size{Required: 64 * mib}})
		sources = append(sources, v.ID)
		f := check.Got(os.OpenFile(filepath.Join(use(t, v), "file"), os.O_WRONLY|os.O_CREATE|os.O_SYNC, 0o600))(t)
		defer f.Close()
		files = append(files, f)
	}
	var count atomic.Int64
	stop, stopped := make(chan struct{}), make(chan error)
	go func() { stopped <- writeCounters(files, &count, stop) }()
	for round := range 5 {
		goesOn(t, &count, stopped)
		g := check.Got(b.SnapshotGroup(t.Context(), backend.GroupSpec{Name: fmt.Sprint("g", round), Sources: sources}))(t)
		var seen []int
		for _, s := range g.Snapshots {
			seen = append(seen, counterIn(t, b, s))
		}
		if seen[0] == 0 || seen[1] > seen[0] || seen[2] > seen[1] || seen[2] < seen[0]-1 {
			t.Errorf("round %d: the volumes hold %v, which they never did at one instant", round, seen)
		}
	}
	close(stop)
	check.Report(t, <-stopped)
}

func writeCounters(files []io.WriterAt, count *atomic.Int64, stop <-chan struct{}) error {
	for n := int64(1); ; n++ {
		for _, f := range files {
			if _, err := f.WriteAt(fmt.Appendf(nil, "%020d", n), 0); err != nil {
				return err
			}
		}
		count.Store(n)
		select {
		case <-stop:
			return nil
		default:
		}
	}
}

// goesOn waits until a writer has written some more.
func goesOn(t *testing.T, count *atomic.Int64, stopped <-chan error) {
	t.Helper()
	for before := count.Load(); count.Load() < before+3; {
		select {
		case err := <-stopped:
			t.Fatalf("the writer ended: %v", err)
		default:
		}
	}
}

// use mounts a volume's image until the test ends, as a node does.
func use(t *testing.T, v *backend.Volume) string {
	t.Helper()
	dir, unmount := mountImage(t, v)
	t.Cleanup(unmount)
	return dir
}

func counterIn(t *testing.T, b *Backend, s *backend.Snapshot) (n int) {
	t.Helper()
	v := check.Got(b.Restore(t.Context(), s.ID, backend.VolumeSpec{Name: "restored " + s.Name}))(t)
	mounted(t, v, func(dir string) {
		text, err := os.ReadFile(filepath.Join(dir, "file"))
		if err == nil {
			n, err = strconv.Atoi(string(text))
		}
		check.OK(t, err)
	})
	return n
}

// watched is an engine that observes each copy in a pool.
type watched struct {
	engine.Engine
	before, after func() error
	finish        func() error                // before a copy is finished; nil: nothing is done
	instead       func(context.Context) error // of the copy
}

func (w *watched) Finish(ctx context.Context, e *engine.Entry, copied bool) error {
	if w.finish != nil {
		if err := w.finish(); err != nil {
			return err
		}
	}
	return w.Engine.Finish(ctx, e, copied)
}

func (w *watched) Copy(ctx context.Context, e, source *engine.Entry) error {
	if w.instead != nil {
		return w.instead(ctx)
	}
	if err := w.before(); err != nil {
		return err
	}
	return errors.Join(w.Engine.Copy(ctx, e, source), w.after())
}

// From linux/fs.h.
const (
	fiFreeze = 0xC0045877
	fiThaw   = 0xC0045878
)

// isFrozen tries to freeze the file system, and thaws it if that succeeds.
func isFrozen(dir string) (bool, error) {
	f, err := os.Open(dir)
	if err != nil {
		return false, err
	}
	defer f.Close()
	if err := unix.IoctlSetInt(int(f.Fd()), fiFreeze, 0); err != nil {
		return errors.Is(err, unix.EBUSY), nil
	}
	return false, unix.IoctlSetInt(int(f.Fd()), fiThaw, 0)
}

// inUse is a pool with two mounted volumes, whose copies are observed.
type inUse struct {
	*Backend
	copies  *watched
	mounted []string
	seen    int
}

func newInUse(t *testing.T, k hostfs.Kind) *inUse {
	t.Helper()
	u := &inUse{Backend: served(t, PoolConfig{Name: "pool", Path: hostfs.New(t, k, 1<<30)})}
	for _, name := range []string{"a", "b"} {
		u.mounted = append(u.mounted, use(t, made(t, u.Backend, backend.VolumeSpec{Name: name, Size: backend.Size{Required: 16 * mib}})))
	}
	p := u.pools()[0]
	nothing := func() error { return nil }
	u.copies = &watched{Engine: p.engine, before: nothing, after: nothing}
	p.engine = u.copies
	return u
}

// expect checks that exactly these are frozen before and after each copy.
func (u *inUse) expect(dirs ...string) {
	u.seen = 0
	u.copies.before = func() error { u.seen++; return u.frozen(dirs...) }
	u.copies.after = func() error { return u.frozen(dirs...) }
	u.copies.finish = func() error { return u.frozen() } // what takes long is done while nothing is
}

// frozen returns an error unless exactly these volumes are frozen.
func (u *inUse) frozen(want ...string) error {
	var errs []error
	for i, dir := range u.mounted {
		frozen, err := isFrozen(dir)
		if err == nil && frozen != slices.Contains(want, dir) {
			err = fmt.Errorf("that volume %d is frozen is %t", i, frozen)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// thawed fails if a volume is frozen, and thaws it, since it could not be unmounted otherwise.
func (u *inUse) thawed(t *testing.T, when string) {
	t.Helper()
	if err := u.frozen(); err != nil {
		t.Errorf("after %s: %v", when, err)
	}
	for _, dir := range u.mounted {
		check.Report(t, nodeops.ThawLeftover(dir))
	}
}

func TestFreeze_VolumesInUseAreFrozenFromTheFirstCopyToTheLast(t *testing.T) {
	for _, k := range []hostfs.Kind{hostfs.XFS, hostfs.Ext4} {
		t.Run(k.Name, func(t *testing.T) { frozenWhileCopied(t, k) })
	}
}

func frozenWhileCopied(t *testing.T, k hostfs.Kind) {
	u := newInUse(t, k)
	ctx, errCopy := t.Context(), errors.New("this copy fails")
	both, ids := u.mounted, []backend.ID{"a", "b"}
	for _, op := range []struct {
		name   string
		frozen []string
		copies int
		do     func(name string) error
	}{
		{"a snapshot", both[:1], 1, func(name string) error {
			return ignore(u.Snapshot(ctx, backend.SnapshotSpec{Name: name, Source: "a"}))
		}},
		{"a clone", both[:1], 1, func(name string) error { return ignore(u.Clone(ctx, "a", backend.VolumeSpec{Name: name})) }},
		{"a thick clone", both[:1], 1, func(name string) error {
			return ignore(u.Clone(ctx, "a", backend.VolumeSpec{Name: name, Provisioning: backend.Thick}))
		}},
		{"a group", both, 2, func(name string) error {
			return ignore(u.SnapshotGroup(ctx, backend.GroupSpec{Name: name, Sources: ids}))
		}},
	} {
		name := strings.ReplaceAll(op.name, " ", "-")
		u.expect(op.frozen...)
		if err := op.do(name); err != nil || u.seen != op.copies {
			t.Errorf("%s: %d copies, %v", op.name, u.seen, err)
		}
		u.thawed(t, op.name)

		u.copies.before = func() error { return errCopy }
		if err := op.do(name + "-failed"); !errors.Is(err, errCopy) {
			t.Errorf("%s whose copy fails: %v", op.name, err)
		}
		u.thawed(t, op.name+" whose copy fails")

		// Writes during the copy may be in it or not.
		u.copies.before = func() error { return nil }
		u.copies.after = func() error { return nodeops.ThawLeftover(both[0]) }
		if err := op.do(name + "-torn"); !errors.Is(err, nodeops.ErrThawed) {
			t.Errorf("%s that was thawed too early: %v", op.name, err)
		}
		u.thawed(t, op.name+" that was thawed too early")
	}
	// One cannot be frozen: the first is thawed.
	raw := made(t, u.Backend, block("c"))
	loop := check.Got(nodeops.AttachLoop(t.Context(), raw.Access.Image, nodeops.LoopOptions{Autoclear: true}))(t)
	defer loop.Close()
	_, err := u.SnapshotGroup(t.Context(), backend.GroupSpec{Name: "with a device", Sources: append(ids, "c")})
	says(t, err, backend.ErrPrecondition, "raw block device")
	u.thawed(t, "a group with one that cannot be held")
	u.onlyWholeCopiesStay(t)
}

// onlyWholeCopiesStay fails if a failed operation left a copy.
func (u *inUse) onlyWholeCopiesStay(t *testing.T) {
	t.Helper()
	vs, errV := u.List(t.Context())
	ss, errS := u.ListSnapshots(t.Context())
	if len(vs) != 5 || len(ss) != 3 || errV != nil || errS != nil {
		t.Errorf("there are %d volumes and %d snapshots, %v, want 5 and 3", len(vs), len(ss), errors.Join(errV, errS))
	}
}

// putToUse attaches an image and writes to it, as a pod does that starts and ends.
func putToUse(t *testing.T, image string) error {
	loop, err := nodeops.AttachLoop(t.Context(), image, nodeops.LoopOptions{Autoclear: true})
	if err != nil {
		return err
	}
	f, err := os.OpenFile(loop.Path, os.O_WRONLY|os.O_SYNC, 0)
	if err == nil {
		_, err = f.WriteAt([]byte("used"), 0)
		err = errors.Join(err, f.Close())
	}
	return errors.Join(err, loop.Close())
}

func TestFreeze_VolumeThatCannotBeCopiedInTimeIsRefusedAndWaitsOnce(t *testing.T) {
	u := newInUse(t, hostfs.Ext4)
	disk := u.copies.Engine.(*image.Engine)
	group := func() error {
		return ignore(u.SnapshotGroup(t.Context(), backend.GroupSpec{Name: "g", Sources: []backend.ID{"a", "b"}}))
	}
	snapshot := func(source backend.ID) error {
		return ignore(u.Snapshot(t.Context(), backend.SnapshotSpec{Name: "s-" + string(source), Source: source}))
	}
	for _, op := range []struct {
		name    string
		do      func() error
		limit   time.Duration
		instead func(context.Context) error
		says    string
	}{
		{"a group", group, time.Minute, func(context.Context) error { return context.DeadlineExceeded }, "volumes a, b were not copied together"},
		{"a snapshot", func() error { return snapshot("b") }, time.Millisecond, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, "volume b was frozen for 1ms, and not copied"},
	} {
		disk.FreezeLimit, u.copies.instead = op.limit, op.instead
		says(t, op.do(), backend.ErrPrecondition, op.says)
		u.thawed(t, op.name+" that takes too long")
		disk.FreezeLimit, u.copies.instead = time.Minute, nil
		says(t, op.do(), backend.ErrPrecondition, "(this time it was not tried)")
	}
	fails(u.Clone(t.Context(), "b", backend.VolumeSpec{Name: "c"}))(t, backend.ErrPrecondition, "volume b was frozen for ")
	check.Report(t, snapshot("a")) // it was slow in a group only

	errCopy := errors.New("this copy fails")
	disk.FreezeLimit = time.Millisecond
	u.copies.instead = func(ctx context.Context) error { <-ctx.Done(); return errCopy }
	if _, err := u.Clone(t.Context(), "a", backend.VolumeSpec{Name: "d"}); !errors.Is(err, errCopy) || errors.Is(err, backend.ErrPrecondition) {
		t.Errorf("a copy that fails late: %v", err)
	}
	u.thawed(t, "a copy that fails late")
}

func TestFreeze_IdleVolumeThatIsPutToUseMeanwhileIsCopiedAgain(t *testing.T) {
	for _, k := range []hostfs.Kind{hostfs.Ext4, hostfs.XFS} {
		t.Run(k.Name, func(t *testing.T) {
			u := newInUse(t, k)
			raw := made(t, u.Backend, block("raw"))
			made(t, u.Backend, block("other"))
			clones, used := k.Name == hostfs.XFS.Name, false
			u.copies.after = func() error { return nil }
			u.copies.before = func() error {
				if used {
					return nil
				}
				used = true
				return putToUse(t, raw.Access.Image)
			}
			_, err := u.Snapshot(t.Context(), backend.SnapshotSpec{Name: "s", Source: "raw"})
			if clones && err != nil { // in an instant of its own
				t.Error(err)
			}
			if !clones {
				says(t, err, backend.ErrUnavailable, "volume raw was put to use while it was copied")
				check.Got(u.Snapshot(t.Context(), backend.SnapshotSpec{Name: "s", Source: "raw"}))(t)
			}
			used = false
			_, err = u.SnapshotGroup(t.Context(), backend.GroupSpec{Name: "g", Sources: []backend.ID{"other", "raw"}})
			says(t, err, backend.ErrUnavailable, "volume raw was put to use while it was copied")
			check.Got(u.SnapshotGroup(t.Context(), backend.GroupSpec{Name: "g", Sources: []backend.ID{"other", "raw"}}))(t)
		})
	}
}

// TestClone_OfAVolumeThatIsWrittenHoldsOneInstant writes to two places of a volume in turn, with a sync each: no instant has a
// newer second one. Where an image can only be copied, a raw one in use is refused.
func TestClone_OfAVolumeThatIsWrittenHoldsOneInstant(t *testing.T) {
	for _, k := range []hostfs.Kind{hostfs.XFS, hostfs.Btrfs, hostfs.Ext4} {
		for _, how := range []backend.Provisioning{backend.Thin, backend.Thick} {
			t.Run(fmt.Sprintf("%s raw on %s", how, k.Name), func(t *testing.T) {
				holdsOneInstant(t, k, how, rawInUse, k.Name == hostfs.Ext4.Name)
			})
			t.Run(fmt.Sprintf("%s mounted on %s", how, k.Name), func(t *testing.T) {
				holdsOneInstant(t, k, how, mountedInUse, false)
			})
		}
	}
}

// TestClone_OfAVolumeThatIsOnlyReadHasItsContent clones what readers use, and lets a writer use it afterwards: a file system that is
// read-only can be frozen, too.
func TestClone_OfAVolumeThatIsOnlyReadHasItsContent(t *testing.T) {
	for _, k := range []hostfs.Kind{hostfs.XFS, hostfs.Btrfs, hostfs.Ext4} {
		b := served(t, PoolConfig{Name: "pool", Path: hostfs.New(t, k, 2<<30)})
		files := made(t, b, backend.VolumeSpec{Name: "files", Size: backend.Size{Required: 64 * mib}})
		writeFS(t, files, []byte("content"))
		raw := made(t, b, sized("raw", 64*mib))
		writeSyncedFile(t, raw.Access.Image, []byte("content"))
		check.OK(t, os.Truncate(raw.Access.Image, 64*mib))
		dir := t.TempDir()
		for v, readers := range map[*backend.Volume]func(loop string){
			files: func(loop string) { check.OK(t, nodeops.MountFS(t.Context(), loop, dir, files.FSType, []string{"ro"})) },
			raw:   func(string) {},
		} {
			loop := check.Got(nodeops.AttachLoop(t.Context(), v.Access.Image, nodeops.LoopOptions{ReadOnly: v == raw, Autoclear: true}))(t)
			readers(loop.Path)
			for _, how := range []backend.Provisioning{backend.Thin, backend.Thick} {
				spec := backend.VolumeSpec{Name: fmt.Sprint(how, " copy of ", v.ID), Mode: v.Mode, Provisioning: how, Size: backend.Size{Required: v.Size}}
				c, err := b.Clone(t.Context(), v.ID, spec)
				switch {
				case v == raw && k.Name == hostfs.Ext4.Name:
					says(t, err, backend.ErrPrecondition, "volume raw", "stop the pods that use it first")
				case err != nil:
					t.Errorf("%s on %s: %v", spec.Name, k.Name, err)
				case v == files:
					if got := readFS(t, c, 7); string(got) != "content" {
						t.Errorf("%s on %s has %q", spec.Name, k.Name, got)
					}
				default:
					if got := check.Got(os.ReadFile(c.Access.Image))(t); len(got) != 64*mib || string(got[:7]) != "content" {
						t.Errorf("%s on %s has %d bytes, %q", spec.Name, k.Name, len(got), got[:7])
					}
				}
			}
			if v == files {
				check.OK(t, nodeops.Unmount(t.Context(), dir))
			}
			check.OK(t, loop.Close())
		}
		writeFS(t, files, []byte("more"))
	}
}

// twoPlaces is a volume in use: two places to write to, and what a copy of it has there.
type twoPlaces struct {
	*backend.Volume
	places [2]io.WriterAt
	read   func(*backend.Volume) [2]string
}

func rawInUse(t *testing.T, b *Backend) twoPlaces {
	const size = 256 * mib
	v := made(t, b, sized("v", size))
	writeSyncedFile(t, v.Access.Image, make([]byte, size))
	loop := check.Got(nodeops.AttachLoop(t.Context(), v.Access.Image, nodeops.LoopOptions{Autoclear: true}))(t)
	t.Cleanup(func() { loop.Close() })
	device := check.Got(os.OpenFile(loop.Path, os.O_WRONLY|os.O_SYNC, 0))(t)
	t.Cleanup(func() { device.Close() })
	return twoPlaces{v, [2]io.WriterAt{device, io.NewOffsetWriter(device, size-4096)}, func(c *backend.Volume) [2]string {
		content, err := os.ReadFile(c.Access.Image)
		if err != nil || len(content) != size {
			t.Fatalf("the clone has %d bytes, %v", len(content), err)
		}
		return [2]string{string(content[:20]), string(content[size-4096 : size-4096+20])}
	}}
}

func mountedInUse(t *testing.T, b *Backend) (w twoPlaces) {
	w.Volume = made(t, b, backend.VolumeSpec{Name: "v", Size: backend.Size{Required: 64 * mib}})
	dir := use(t, w.Volume)
	for i := range w.places {
		f := check.Got(os.OpenFile(filepath.Join(dir, strconv.Itoa(i)), os.O_WRONLY|os.O_CREATE|os.O_SYNC, 0o600))(t)
		t.Cleanup(func() { f.Close() })
		w.places[i] = f
	}
	w.read = func(c *backend.Volume) (texts [2]string) {
		mounted(t, c, func(dir string) {
			for i := range texts {
				text := check.Got(os.ReadFile(filepath.Join(dir, strconv.Itoa(i))))(t)
				texts[i] = string(text)
			}
		})
		return texts
	}
	return w
}

func holdsOneInstant(t *testing.T, k hostfs.Kind, how backend.Provisioning, inUse func(*testing.T, *Backend) twoPlaces, refused bool) {
	b := served(t, PoolConfig{Name: "pool", Path: hostfs.New(t, k, 2<<30)})
	w := inUse(t, b)
	var count atomic.Int64
	stop, stopped := make(chan struct{}), make(chan error)
	go func() { stopped <- writeCounters(w.places[:], &count, stop) }()
	goesOn(t, &count, stopped)
	c, err := b.Clone(t.Context(), "v", backend.VolumeSpec{Name: "copy", Mode: w.Mode, Provisioning: how, Size: backend.Size{Required: w.Size}})
	goesOn(t, &count, stopped)
	close(stop)
	check.Report(t, <-stopped)
	if refused {
		says(t, err, backend.ErrPrecondition, "volume v", "attached as a raw block device", "stop the pods that use it first")
		return
	}
	check.OK(t, err)
	texts := w.read(c)
	first, errFirst := strconv.Atoi(texts[0])
	then, errThen := strconv.Atoi(texts[1])
	if errFirst != nil || errThen != nil || then > first || then < first-1 {
		t.Errorf("the clone has %d and %d, %v, which were never there at one instant", first, then, errors.Join(errFirst, errThen))
	}
	info, err := os.Stat(c.Access.Image)
	if err != nil || how == backend.Thick && info.Sys().(*syscall.Stat_t).Blocks*512 < w.Size {
		t.Errorf("the clone has %+v, %v", info, err)
	}
	if left, err := os.ReadDir(filepath.Dir(c.Access.Image)); err != nil || len(left) != 2 {
		t.Errorf("its entry has %v, %v, want the image and its metadata", left, err)
	}
}

// On btrfs a file without checksums, which has the attribute C, cannot be cloned into one that has them.
func TestClone_ImageThatCannotBeClonedIsCopiedOnlyWhileItHasNoUser(t *testing.T) {
	b := served(t, PoolConfig{Name: "pool", Path: hostfs.New(t, hostfs.Btrfs, 2<<30)})
	const size = 64 * mib
	image := made(t, b, sized("raw", size)).Access.Image
	other := image + ".other"
	writeSyncedFile(t, other, nil)
	shell(t, "chattr", "+C", other)
	writeSyncedFile(t, other, bytes.Repeat([]byte("x"), size))
	check.OK(t, os.Rename(other, image))
	loop := check.Got(nodeops.AttachLoop(t.Context(), image, nodeops.LoopOptions{Autoclear: true}))(t)
	thick := sized("thick", size)
	thick.Provisioning = backend.Thick
	for _, spec := range []backend.VolumeSpec{sized("thin", size), thick} {
		if c, err := b.Clone(t.Context(), "raw", spec); !errors.Is(err, backend.ErrPrecondition) || !strings.Contains(err.Error(), "stop the pods that use it first") {
			t.Errorf("%s, of an image in use: %+v, %v", spec.Name, c, err)
		}
	}
	loop.Close()
	wait.Until(t, "the image having no user", func() bool { devices, err := nodeops.LoopsOf(image); return err == nil && len(devices) == 0 })
	for _, spec := range []backend.VolumeSpec{sized("thin", size), thick} {
		c, err := b.Clone(t.Context(), "raw", spec)
		if err != nil {
			t.Errorf("%s: %v", spec.Name, err)
			continue
		}
		if content, err := os.ReadFile(c.Access.Image); err != nil || len(content) != size || content[0] != 'x' || content[size-1] != 'x' {
			t.Errorf("%s has %d bytes, %v", spec.Name, len(content), err)
		}
	}
}

func TestDelete_DamagedVolumeThatIsInUseIsKept(t *testing.T) {
	c := PoolConfig{Name: "pool", Path: hostfs.New(t, hostfs.XFS, 1<<30), TrashRetention: backend.NoTrash}
	b := open(t, c)
	image := made(t, b, sized("a", mib)).Access.Image
	loop := check.Got(nodeops.AttachLoop(t.Context(), image, nodeops.LoopOptions{Autoclear: true}))(t)
	check.OK(t, errors.Join(b.Close(t.Context()), os.Truncate(filepath.Join(filepath.Dir(image), metaFile), 0)))
	b = served(t, c)
	says(t, b.Delete(t.Context(), "a"), backend.ErrPrecondition, "in use", loop.Path)
	loop.Close()
	wait.For(t, "its deletion", func() error { return b.Delete(t.Context(), "a") })
	if _, err := os.Stat(image); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its image is there: %v", err)
	}
}
