package local

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

var unread = backend.PoolExpectation{Unread: true}

func TestMemory_PoolIsServedButNoneBegunWhileItIsNotRead(t *testing.T) {
	c := emptyPool(t)
	c.Expect = unread
	b := reachable(t, Site{c, nil})
	fails(b.Capacity(t.Context(), ""))(t, backend.ErrUnavailable, "empty", "could not be read")
	if left := tree(t, c.Path); left != c.Path+"\n" {
		t.Errorf("it made %s", left)
	}
	b.ExpectPool("other", backend.PoolExpectation{})
	b.tryAll(t.Context(), true)
	if _, err := b.Capacity(t.Context(), ""); err == nil {
		t.Error("begun after the memory of another pool was read")
	}
	expect(t, b, backend.PoolExpectation{})
	made(t, b, block("a"))
	is := headOf(t, c.Path).identity()
	check.OK(t, b.Close(t.Context()))
	b = reachable(t, Site{c, nil})
	check.Got(b.Get(t.Context(), "a"))(t)
	isPool(t, c.Path, is)
	expect(t, b, expecting(is.ID, is.Generation))
	is.Generation++
	isPool(t, c.Path, is)
}

func TestMemory_WrongPoolIsClosed(t *testing.T) {
	for what, change := range map[string]func(*backend.PoolExpectation){
		"another":       func(e *backend.PoolExpectation) { e.ID = "p1" },
		"an older copy": func(e *backend.PoolExpectation) { e.Generation++ },
	} {
		t.Run(what, func(t *testing.T) {
			c := emptyPool(t)
			is := begun(t, c, 2)
			c.Expect = unread
			b := reachable(t, Site{c, nil})
			check.Got(b.Get(t.Context(), "a"))(t)
			e := expecting(is.ID, is.Generation)
			change(&e)
			b.ExpectPool("pool", e)
			for range 2 { // and it stays so
				fails(b.Get(t.Context(), "a"))(t, backend.ErrNotFound, e.ID)
				reasonIs(t, b, backend.WrongPool)
				b.tryAll(t.Context(), true)
			}
			isPool(t, c.Path, is)
			check.OK(t, open(t, PoolConfig{Name: "pool", Path: c.Path}).Close(t.Context())) // no process has its lock
		})
	}
}

// reasonIs fails unless that is why the pool is out of reach.
func reasonIs(t *testing.T, b *Backend, want backend.PoolReason) {
	t.Helper()
	_, err := b.Capacity(t.Context(), "")
	if reason := backend.PoolReasonOf(err); reason != want {
		t.Errorf("the reason of %v is %q, want %q", err, reason, want)
	}
}

// expect has the pool looked at with another expectation.
func expect(t *testing.T, b *Backend, e backend.PoolExpectation) {
	t.Helper()
	b.ExpectPool("pool", e)
	b.tryAll(t.Context(), true)
}

func TestGivenUpPool_IsRecreatedOnlyByItsID(t *testing.T) {
	c := emptyPool(t)
	c.Expect = expecting("p1", 7)
	b := reachable(t, Site{c, nil})
	for _, e := range []backend.PoolExpectation{{Given: "p2"}, {}, expecting("p2", 1)} {
		expect(t, b, e)
		reasonIs(t, b, backend.NotMounted)
	}
	expect(t, b, backend.PoolExpectation{Given: "p1"})
	made(t, b, block("a"))
	is := headOf(t, c.Path).identity()
	b.ExpectPool("pool", backend.PoolExpectation{Given: is.ID}) // it is open, so this has no effect
	away := c.Path + ".away"
	check.OK(t, os.Rename(c.Path, away))
	check.OK(t, os.Mkdir(c.Path, 0o700))
	b.tryAll(t.Context(), true)
	fails(b.Capacity(t.Context(), ""))(t, backend.ErrUnavailable, is.ID, "empty")
}

func TestGivenUpPool_OfUnknownIDIsGivenUpByTheWordUnknown(t *testing.T) {
	c := emptyPool(t)
	c.Expect = backend.PoolExpectation{Existed: true}
	b := reachable(t, Site{c, nil})
	expect(t, b, backend.PoolExpectation{Given: backend.UnknownPool})
	made(t, b, block("a"))
}

func TestGivenUpPool_AnotherPoolInItsPlaceIsTaken(t *testing.T) {
	c := emptyPool(t)
	is := begun(t, c, 1)
	c.Expect = expecting("p1", 7)
	b := reachable(t, Site{c, nil})
	expect(t, b, backend.PoolExpectation{Given: "p1"})
	if v, err := b.Get(t.Context(), "a"); err != nil || v.PoolID != is.ID {
		t.Errorf("it has %+v, %v", v, err)
	}
}

func TestPool_UnmountedInUseHealsWhenMountedAgain(t *testing.T) {
	for _, k := range []hostfs.Kind{hostfs.XFS, hostfs.Ext4, hostfs.Btrfs} {
		t.Run(k.Name, func(t *testing.T) { healsAfterUnmount(t, k) })
	}
}

// healsAfterUnmount unmounts a pool, so that an empty directory is in its place. Delete then fails and nothing is
// forgotten; another project has lost volumes this way.
func healsAfterUnmount(t *testing.T, k hostfs.Kind) {
	path, device := onDevice(t, k)
	var news atomic.Int32
	c := PoolConfig{Name: "pool", Engine: "image", Path: path}
	b := served(t, c)
	b.NotifyPools(func() { news.Add(1) })
	v := made(t, b, block("a"))
	writeImage(t, v, []byte("precious"))
	shell(t, "umount", "-l", path)
	calls := []func(){ // the first of which notices it
		func() { says(t, b.Delete(t.Context(), "a"), backend.ErrUnavailable, "unmounted", path) },
		func() { fails(b.Create(t.Context(), block("b")))(t, backend.ErrUnavailable, path, "unmounted") },
	}
	if k.Name == hostfs.Ext4.Name {
		slices.Reverse(calls)
	}
	for _, call := range calls {
		if call(); news.Load() == 0 {
			t.Error("the listener was not notified that the pool is gone")
		}
	}
	fails(b.Capacity(t.Context(), ""))(t, backend.ErrUnavailable, "unmounted")
	if _, err := b.Get(t.Context(), "a"); backend.CodeOf(err) != backend.CodeNotFound {
		t.Errorf("got %v", err)
	}
	b.tryAll(t.Context(), true)
	reasonIs(t, b, backend.NotMounted)
	if left, err := os.ReadDir(path); err != nil || len(left) > 0 {
		t.Errorf("beneath the mount there is %v, %v", left, err)
	}
	shell(t, "mount", device, path)
	notified := news.Load()
	b.tryAll(t.Context(), true)
	back, err := b.Get(t.Context(), "a")
	if err != nil || string(readImage(t, back, 8)) != "precious" || back.Condition.Abnormal || back.PoolID != v.PoolID {
		t.Errorf("back is %+v, %v", back, err)
	}
	if news.Load() == notified {
		t.Error("the listener was not notified that the pool is back")
	}
	if g := headOf(t, path).Generation; g != 2 {
		t.Errorf("opened twice it has generation %d", g)
	}
	check.Report(t, b.Delete(t.Context(), "a"))
}

func shell(t *testing.T, argv ...string) {
	t.Helper()
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", argv, err, out)
	}
}

func TestPool_ReplacedInUseIsNotMistakenForIt(t *testing.T) {
	c := emptyPool(t)
	b := served(t, c)
	v := made(t, b, block("a"))
	replacedBeneath(t, b, c)
	fails(b.Capacity(t.Context(), ""))(t, backend.ErrUnavailable, v.PoolID, headOf(t, c.Path).UUID)
	reasonIs(t, b, backend.WrongPool)
	check.OK(t, os.RemoveAll(c.Path))
	check.OK(t, os.Rename(c.Path+".away", c.Path))
	b.tryAll(t.Context(), true)
	check.Got(b.Get(t.Context(), "a"))(t)
}

func TestPool_WhoseDeviceIsGoneIsReopenedWhenItReturns(t *testing.T) {
	b := served(t, emptyPool(t))
	made(t, b, block("a"))
	b.pools()[0].device = "8:1048575"
	fails(b.Get(t.Context(), "a"))(t, backend.ErrNotFound, "the disk below", "put it back")
	b.tryAll(t.Context(), true)
	check.Got(b.Get(t.Context(), "a"))(t)
}

func TestPool_UnreachableIsReopenedOnlyAfterItsOperations(t *testing.T) {
	b := served(t, emptyPool(t))
	made(t, b, block("a"))
	running, end := make(chan struct{}), make(chan struct{})
	done := make(chan error)
	go func() {
		_, err := backend.Do(context.Background(), &b.ops, "a", "copy", func(context.Context) (any, error) {
			close(running)
			<-end
			return nil, nil
		})
		done <- err
	}()
	<-running
	b.pools()[0].device = "8:1048575"
	for range 2 {
		b.tryAll(t.Context(), true)
		if _, err := b.Get(t.Context(), "a"); backend.CodeOf(err) != backend.CodeNotFound {
			t.Fatalf("while an operation runs: %v", err)
		}
	}
	close(end)
	check.OK(t, <-done)
	b.tryAll(t.Context(), true)
	check.Got(b.Get(t.Context(), "a"))(t)
}

func TestPool_ThatCannotBeWrittenIsCountedWhenItCan(t *testing.T) {
	path, _ := onDevice(t, hostfs.XFS)
	c := PoolConfig{Name: "pool", Path: path, Reserved: "0"}
	is := begun(t, c, 1)
	c.Expect = unread
	b := served(t, c)
	shell(t, "mount", "-o", "remount,ro", path)
	expect(t, b, expecting(is.ID, is.Generation))
	check.Got(b.Get(t.Context(), "a"))(t)
	isPool(t, path, is)
	shell(t, "mount", "-o", "remount,rw", path)
	b.tryAll(t.Context(), true)
	is.Generation++
	isPool(t, path, is)
}

// onDevice is a file system on a device that stays attached when it is unmounted.
func onDevice(t *testing.T, k hostfs.Kind) (path, device string) {
	t.Helper()
	hostfs.RequireRoot(t)
	device, path = hostfs.Disk(t, 512*mib), t.TempDir()
	shell(t, "mkfs."+k.Name, "-q", device)
	shell(t, "mount", device, path)
	t.Cleanup(func() { check.Report(t, nodeops.Unmount(context.Background(), path)) })
	return path, device
}

func TestPoolLock_StaysOnAPoolThatIsCounted(t *testing.T) {
	c := emptyPool(t)
	begun(t, c, 1)
	stale, err := os.Open(filepath.Join(c.Path, poolFile)) // as another process just before it locks the file
	check.OK(t, err)
	defer stale.Close()
	b := served(t, c)
	fails(Open(t.Context(), []PoolConfig{c}, silent))(t, backend.ErrUnavailable, "another process")
	p := b.pools()[0]
	if isPoolFile(p.root, stale) || !isPoolFile(p.root, p.locked.File) {
		t.Error("the lock is not on what pool.json is")
	}
}

// replacedBeneath replaces a pool that is served by another one, which has volume a. The other is made beside it: the
// backend tries its directory by itself, and would take what is begun there.
func replacedBeneath(t *testing.T, b *Backend, c PoolConfig) {
	t.Helper()
	other := c
	other.Path, other.Expect = t.TempDir(), backend.PoolExpectation{}
	begun(t, other, 1)
	check.OK(t, os.Rename(c.Path, c.Path+".away"))
	check.OK(t, os.Rename(other.Path, c.Path))
	b.tryAll(t.Context(), true)
}

func TestEmptyPool_IsNotMissedWhereAnotherLies(t *testing.T) {
	c := emptyPool(t)
	is := begun(t, c, 1)
	c.Expect = expecting("p1", 7)
	c.Expect.Empty = true
	b := reachable(t, Site{c, nil})
	if v, err := b.Get(t.Context(), "a"); err != nil || v.PoolID != is.ID {
		t.Fatalf("it has %+v, %v", v, err)
	}
	replacedBeneath(t, b, c)
	reasonIs(t, b, backend.WrongPool) // of the other, which held something
}

func TestPool_ReplacedInUseIsMissedWithTrashAndNotWhenItIsEmpty(t *testing.T) {
	for _, trash := range []bool{true, false} {
		c := emptyPool(t)
		b := served(t, c)
		if trash {
			made(t, b, block("b"))
			deleted(t, b, "b")
		}
		if replacedBeneath(t, b, c); trash {
			reasonIs(t, b, backend.WrongPool)
		} else {
			check.Got(b.Get(t.Context(), "a"))(t)
		}
	}
}
