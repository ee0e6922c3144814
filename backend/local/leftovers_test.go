package local

import (
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/local/engine"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

// expectLeftovers fails unless there are so many leftovers, and so many bytes are promised.
func expectLeftovers(t *testing.T, b *Backend, count int, promised int64) {
	t.Helper()
	if n, is := b.pools()[0].leftoverCount(), capacityOf(t, b).Promised; n != count || is != promised {
		t.Fatalf("%d leftovers, %d bytes are promised; want %d, and %d bytes", n, is, count, promised)
	}
}

// timeOfAll is a time at which every leftover is due.
func timeOfAll() time.Time { return time.Now().Add(2 * longestWait) }

func TestLeftover_ImageThatCannotBeRemovedBlocksNothingElse(t *testing.T) {
	leftoverKeepsNothing(t, "image", hostfs.XFS)
}

func TestDirectoryOnXFS_ThatCannotBeRemovedBlocksNothingElse(t *testing.T) {
	leftoverKeepsNothing(t, "directory", hostfs.XFSQuota)
}

func TestDirectoryOnExt4_ThatCannotBeRemovedBlocksNothingElse(t *testing.T) {
	leftoverKeepsNothing(t, "directory", hostfs.Ext4Quota)
}

// leftoverKeepsNothing deletes a volume with a file that cannot be removed: its space stays promised until the file is
// removed, and everything else continues, also after a restart.
func leftoverKeepsNothing(t *testing.T, engine string, k hostfs.Kind) {
	c := PoolConfig{Name: "pool", Engine: engine, Path: hostfs.New(t, k, 2<<30), TrashRetention: backend.NoTrash}
	b := open(t, c)
	t.Cleanup(func() { b.Close(context.Background()) })
	size := backend.Size{Required: 64 * mib}
	others := b.pools()[0].foreign
	v := made(t, b, backend.VolumeSpec{Name: "a", Size: size})
	kept := v.Access.Image
	if engine == "directory" {
		kept = filepath.Join(v.Access.Directory, "kept")
	}
	writeSyncedFile(t, kept, make([]byte, 32*mib))
	shell(t, "chattr", "+i", kept)
	deleted(t, b, "a")
	for range 2 { // before and after a restart
		made(t, b, backend.VolumeSpec{Name: "a", Size: size})
		deleted(t, b, "a")
		p := b.pools()[0]
		p.removeLeftovers(t.Context(), timeOfAll())
		expectLeftovers(t, b, 1, 64*mib)
		if err := p.survey(t.Context()); err != nil || p.foreign > others+8*mib {
			t.Errorf("%d bytes are said to be of others, before it were %d, %v", p.foreign, others, err)
		}
		check.OK(t, b.Close(context.Background()))
		b = open(t, c)
	}
	p := b.pools()[0]
	p.mu.Lock()
	for place := range p.leftovers {
		kept = filepath.Join(c.Path, place, strings.TrimPrefix(kept, filepath.Join(c.Path, "volumes", "a")))
	}
	p.mu.Unlock()
	shell(t, "chattr", "-i", kept)
	p.removeLeftovers(t.Context(), timeOfAll())
	expectLeftovers(t, b, 0, 0)
	if left, err := readNames(p.root, buildingDir); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

func TestLeftover_IsRetriedWithBackoff(t *testing.T) {
	c := PoolConfig{Name: "pool", Engine: "image", Path: hostfs.New(t, hostfs.XFS, 1<<30), TrashRetention: backend.NoTrash}
	b := served(t, c)
	v := made(t, b, block("a"))
	shell(t, "chattr", "+i", v.Access.Image)
	deleted(t, b, "a")
	p, now := b.pools()[0], time.Now()
	for last := firstWait; last < longestWait; {
		due := p.dueLeftovers(now.Add(2 * longestWait))
		if len(due) != 1 || len(p.dueLeftovers(now)) != 0 {
			t.Fatalf("due are %v", due)
		}
		p.removeLeftovers(t.Context(), now.Add(2*longestWait))
		next := p.dueLeftovers(now.Add(3 * longestWait))
		if len(next) != 1 || next[0].wait <= last {
			t.Fatalf("after %s it waits %+v", last, next)
		}
		last = next[0].wait
	}
}

// stepping is an engine that reports each step in the making of an entry.
type stepping struct {
	engine.Engine
	after func(step string, e *engine.Entry) error
}

func (s *stepping) Make(ctx context.Context, e *engine.Entry) error {
	return errors.Join(s.Engine.Make(ctx, e), s.after("Make", e))
}

func (s *stepping) Copy(ctx context.Context, e, source *engine.Entry) error {
	return errors.Join(s.Engine.Copy(ctx, e, source), s.after("Copy", e))
}

func (s *stepping) Finish(ctx context.Context, e *engine.Entry, copied bool) error {
	return errors.Join(s.Engine.Finish(ctx, e, copied), s.after("Finish", e))
}

func (s *stepping) Inspect(e *engine.Entry) (int64, backend.Condition) {
	_ = s.after("Inspect", e)
	return s.Engine.Inspect(e)
}

func (s *stepping) Remove(ctx context.Context, e *engine.Entry) error {
	return errors.Join(s.after("Remove", e), s.Engine.Remove(ctx, e))
}

func TestLeftover_FailedAttemptThatCannotBeRemovedBlocksNoNewOne(t *testing.T) {
	c := PoolConfig{Name: "pool", Engine: "image", Path: hostfs.New(t, hostfs.XFS, 1<<30)}
	b := served(t, c)
	p := b.pools()[0]
	kept, own := "", p.engine
	p.engine = &stepping{own, func(step string, e *engine.Entry) error {
		if step != "Make" {
			return nil
		}
		kept = filepath.Join(e.Dir.Name(), "image")
		shell(t, "chattr", "+i", kept)
		return errors.New("oops")
	}}
	fails(b.Create(t.Context(), block("a")))(t, nil, "oops")
	p.engine = own
	size := made(t, b, block("a")).Size
	p.removeLeftovers(t.Context(), timeOfAll())
	expectLeftovers(t, b, 1, 2*size)
	shell(t, "chattr", "-i", kept)
	p.removeLeftovers(t.Context(), timeOfAll())
	expectLeftovers(t, b, 0, size)
	check.Got(b.Get(t.Context(), "a"))(t)
}

func TestLeftover_EntryWhoseMakingPanickedIsRemoved(t *testing.T) {
	b := served(t, PoolConfig{Name: "pool", Engine: "image", Path: hostfs.New(t, hostfs.XFS, 1<<30)})
	size := made(t, b, block("source")).Size
	made(t, b, block("other"))
	create := func() error { return check.ErrorOf(b.Create(t.Context(), block("a"))) }
	clone := func() error { return check.ErrorOf(b.Clone(t.Context(), "source", block("a"))) }
	snapshot := func() error {
		return check.ErrorOf(b.Snapshot(t.Context(), backend.SnapshotSpec{Name: "a", Source: "source"}))
	}
	group := func() error {
		return check.ErrorOf(b.SnapshotGroup(t.Context(), backend.GroupSpec{Name: "a", Sources: []backend.ID{"source", "other"}}))
	}
	for _, c := range []struct {
		step  string
		call  func() error
		count int
		bytes int64
	}{
		{"Make", create, 1, size},
		{"Finish", create, 1, size},
		{"Remove", create, 1, size},
		{"Copy", clone, 1, size},
		{"Copy", snapshot, 1, smallestSnapshot},
		{"Inspect", snapshot, 1, smallestSnapshot},
		{"Finish", snapshot, 1, smallestSnapshot},
		{"Copy", group, 2, 2 * smallestSnapshot},
		{"Inspect", group, 2, 2 * smallestSnapshot},
	} {
		panicsTwice(t, b, c.step, c.call, c.count, c.bytes)
	}
}

// panicsTwice makes a call twice whose engine panics in a step, and then removes what it leaves: each time so many entries and bytes.
func panicsTwice(t *testing.T, b *Backend, step string, call func() error, count int, bytes int64) {
	t.Helper()
	p := b.pools()[0]
	own, others := p.engine, capacityOf(t, b).Promised
	panics := &stepping{own, func(at string, e *engine.Entry) error {
		switch {
		case at == step && e.ID != "source" && e.ID != "other":
			panic("oops")
		case at == "Make" && step == "Remove":
			return errors.New("so that it is removed")
		}
		return nil
	}}
	for n := range 2 {
		p.engine = panics
		if err := call(); err == nil || !strings.Contains(err.Error(), "panicked: oops") {
			t.Fatalf("%s: got %v", step, err)
		}
		p.engine = own
		expectLeftovers(t, b, (n+1)*count, others+int64(n+1)*bytes)
	}
	p.removeLeftovers(t.Context(), timeOfAll())
	expectLeftovers(t, b, 0, others)
	if left, err := readNames(p.root, buildingDir); err != nil || len(left) > 0 {
		t.Errorf("%s: %v is left, %v", step, left, err)
	}
}

func TestLeftover_PartialEntryOfAKilledProcessIsKeptAndNothingOfOthers(t *testing.T) {
	c := PoolConfig{Name: "pool", Engine: "image", Path: hostfs.New(t, hostfs.XFS, 1<<30)}
	b := open(t, c)
	made(t, b, block("a"))
	check.OK(t, b.Close(context.Background()))
	place := filepath.Join(c.Path, buildingDir, "volumes.a")
	for _, dir := range []string{place, filepath.Join(c.Path, buildingDir, "someone-elses")} {
		check.OK(t, os.Mkdir(dir, 0o700))
	}
	writeSyncedFile(t, filepath.Join(place, "image"), []byte("x"))
	shell(t, "chattr", "+i", filepath.Join(place, "image"))
	b = served(t, c)
	if _, err := b.Get(t.Context(), "a"); err != nil || b.pools()[0].leftoverCount() != 1 {
		t.Errorf("got %v, %d leftovers", err, b.pools()[0].leftoverCount())
	}
	check.Got(os.Stat(filepath.Join(c.Path, buildingDir, "someone-elses")))(t)
}

// A volume whose file system has failed cannot be thawed: its pool is opened nevertheless, and others are thawed.
func TestLeftover_FileSystemThatShutDownBlocksNoOpen(t *testing.T) {
	c := PoolConfig{Name: "pool", Engine: "image", Path: hostfs.New(t, hostfs.XFS, 2<<30)}
	b := open(t, c)
	dirs := map[string]string{}
	for _, name := range []string{"a", "b", "c"} {
		v := made(t, b, backend.VolumeSpec{Name: name, FSType: "xfs", Size: backend.Size{Required: 320 * mib}})
		dirs[name] = use(t, v)
	}
	for _, name := range []string{"a", "c"} {
		shell(t, "xfs_io", "-x", "-c", "shutdown", dirs[name])
	}
	root := check.Got(os.Open(dirs["b"]))(t)
	defer root.Close()
	check.OK(t, unix.IoctlSetInt(int(root.Fd()), fiFreeze, 0))
	defer func() { _ = unix.IoctlSetInt(int(root.Fd()), fiThaw, 0) }() // it is thawed already
	check.OK(t, b.Close(context.Background()))
	b = served(t, c)
	if err := unix.IoctlSetInt(int(root.Fd()), fiThaw, 0); !errors.Is(err, unix.EINVAL) {
		t.Errorf("what a killed process had frozen is frozen still: %v", err)
	}
	made(t, b, block("d"))
}

func TestLeftover_EvictedEntryThatCannotLeaveTheTrashKeepsItsRoom(t *testing.T) {
	c := roomy(t, hostfs.XFS, 1)
	c.TrashRetention = time.Hour
	b := served(t, c)
	made(t, b, sized("a", 64*mib))
	deleted(t, b, "a")
	p, trash := b.pools()[0], filepath.Join(c.Path, trashDir)
	shell(t, "chattr", "+i", trash)
	defer shell(t, "chattr", "-i", trash)
	p.emptyTrash(t.Context(), time.Now().Add(2*time.Hour))
	for range 2 {
		expectLeftovers(t, b, 1, 64*mib)
		p.removeLeftovers(t.Context(), timeOfAll())
	}
	shell(t, "chattr", "-i", trash)
	p.removeLeftovers(t.Context(), timeOfAll())
	expectLeftovers(t, b, 0, 0)
	if left, err := readNames(p.root, trashDir); len(left) > 0 || err != nil {
		t.Errorf("the trash has %v, %v", left, err)
	}
}

func TestTrash_WhatIsNotHoldfastsIsLeftAlone(t *testing.T) {
	c := roomy(t, hostfs.XFS, 1)
	b := open(t, c)
	foreign := []string{"backup.db.2024", "volumes.a", "volumes.a.1700000000.keep", "volumes.a.17x", "notes"}
	for _, name := range foreign {
		check.OK(t, os.Mkdir(filepath.Join(c.Path, trashDir, name), 0o700))
	}
	p := b.pools()[0]
	check.OK(t, p.scan())
	p.emptyTrash(t.Context(), timeOfAll())
	old := path.Join(buildingDir, "volumes.a") // a leftover of the previous release
	check.OK(t, p.root.Mkdir(old, 0o700))
	p.keepLeftover(p.readLeftover(volumes, "a", old), errors.New("oops"), firstWait)
	p.removeLeftovers(t.Context(), timeOfAll())
	expectLeftovers(t, b, 0, 0)
	check.OK(t, b.Close(context.Background()))
	p = served(t, c).pools()[0]
	left, err := readNames(p.root, trashDir)
	slices.Sort(left)
	slices.Sort(foreign)
	if err != nil || !slices.Equal(left, foreign) {
		t.Errorf("of %v are left %v, %v", foreign, left, err)
	}
}
