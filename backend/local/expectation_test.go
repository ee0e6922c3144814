package local

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
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
	_, err := b.Capacity(t.Context(), "")
	says(t, err, backend.ErrUnavailable, "empty", "could not be read")
	if left := tree(t, c.Path); left != c.Path+"\n" {
		t.Errorf("it made %s", left)
	}
	b.ExpectPool("other", backend.PoolExpectation{})
	b.tryAll(t.Context(), true)
	if _, err := b.Capacity(t.Context(), ""); err == nil {
		t.Error("begun after the memory of another pool was read")
	}
	b.ExpectPool("pool", backend.PoolExpectation{})
	b.tryAll(t.Context(), true)
	made(t, b, block("a"))
	is := headOf(t, c.Path).identity()
	check.OK(t, b.Close(t.Context()))
	b = reachable(t, Site{c, nil})
	if v, err := b.Get(t.Context(), "a"); err != nil || headOf(t, c.Path).identity() != is {
		t.Errorf("an existing pool has %+v, %v, and is %+v, was %+v", v, err, headOf(t, c.Path), is)
	}
	b.ExpectPool("pool", expecting(is.ID, is.Generation))
	b.tryAll(t.Context(), true)
	if now := headOf(t, c.Path).Generation; now != is.Generation+1 {
		t.Errorf("opened again it has generation %d, had %d", now, is.Generation)
	}
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
				_, err := b.Get(t.Context(), "a")
				says(t, err, backend.ErrNotFound, e.ID)
				if reason := reasonOf(t, b); reason != backend.WrongPool {
					t.Errorf("the reason is %q", reason)
				}
				b.tryAll(t.Context(), true)
			}
			if now := headOf(t, c.Path).identity(); now != is {
				t.Errorf("it was %+v, and is %+v", is, now)
			}
			other, err := Open(t.Context(), []PoolConfig{{Name: "pool", Path: c.Path}}, silent) // no process has its lock
			check.OK(t, err)
			check.OK(t, other.Close(t.Context()))
		})
	}
}

func reasonOf(t *testing.T, b *Backend) backend.PoolReason {
	t.Helper()
	_, err := b.Capacity(t.Context(), "")
	return backend.PoolReasonOf(err)
}

func TestGivenUpPool_IsRecreatedOnlyByItsID(t *testing.T) {
	c := emptyPool(t)
	c.Expect = expecting("p1", 7)
	b := reachable(t, Site{c, nil})
	for _, e := range []backend.PoolExpectation{{Given: "p2"}, {}, expecting("p2", 1)} {
		b.ExpectPool("pool", e)
		b.tryAll(t.Context(), true)
		if reason := reasonOf(t, b); reason != backend.NotMounted {
			t.Fatalf("expecting %+v it is %q", e, reason)
		}
	}
	b.ExpectPool("pool", backend.PoolExpectation{Given: "p1"})
	b.tryAll(t.Context(), true)
	made(t, b, block("a"))
	is := headOf(t, c.Path).identity()
	b.ExpectPool("pool", backend.PoolExpectation{Given: is.ID}) // it is open, so this has no effect
	away := c.Path + ".away"
	check.OK(t, os.Rename(c.Path, away))
	check.OK(t, os.Mkdir(c.Path, 0o700))
	b.tryAll(t.Context(), true)
	_, err := b.Capacity(t.Context(), "")
	says(t, err, backend.ErrUnavailable, is.ID, "empty")
}

func TestGivenUpPool_OfUnknownIDIsGivenUpByTheWordUnknown(t *testing.T) {
	c := emptyPool(t)
	c.Expect = backend.PoolExpectation{Existed: true}
	b := reachable(t, Site{c, nil})
	b.ExpectPool("pool", backend.PoolExpectation{Given: backend.UnknownPool})
	b.tryAll(t.Context(), true)
	made(t, b, block("a"))
}

func TestGivenUpPool_AnotherPoolInItsPlaceIsTaken(t *testing.T) {
	c := emptyPool(t)
	is := begun(t, c, 1)
	c.Expect = expecting("p1", 7)
	b := reachable(t, Site{c, nil})
	b.ExpectPool("pool", backend.PoolExpectation{Given: "p1"})
	b.tryAll(t.Context(), true)
	if v, err := b.Get(t.Context(), "a"); err != nil || v.PoolID != is.ID {
		t.Errorf("it has %+v, %v", v, err)
	}
}

func TestPool_UnmountedInUseOnXFSHealsWhenMountedAgain(t *testing.T) {
	healsAfterUnmount(t, hostfs.XFS)
}

func TestPool_UnmountedInUseOnExt4HealsWhenMountedAgain(t *testing.T) {
	healsAfterUnmount(t, hostfs.Ext4)
}

func TestPool_UnmountedInUseOnBtrfsHealsWhenMountedAgain(t *testing.T) {
	healsAfterUnmount(t, hostfs.Btrfs)
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
	says(t, b.Delete(t.Context(), "a"), backend.ErrUnavailable, "unmounted", path)
	if news.Load() == 0 {
		t.Error("the listener was not notified that the pool is gone")
	}
	if _, err := b.Get(t.Context(), "a"); backend.CodeOf(err) != backend.CodeNotFound {
		t.Errorf("got %v", err)
	}
	b.tryAll(t.Context(), true)
	if reason := reasonOf(t, b); reason != backend.NotMounted {
		t.Errorf("the reason is %q", reason)
	}
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
	_, err := b.Capacity(t.Context(), "")
	says(t, err, backend.ErrUnavailable, v.PoolID, headOf(t, c.Path).UUID)
	if reason := reasonOf(t, b); reason != backend.WrongPool {
		t.Errorf("the reason is %q", reason)
	}
	check.OK(t, os.RemoveAll(c.Path))
	check.OK(t, os.Rename(c.Path+".away", c.Path))
	b.tryAll(t.Context(), true)
	if _, err := b.Get(t.Context(), "a"); err != nil {
		t.Error(err)
	}
}

func TestPool_WhoseDeviceIsGoneIsReopenedWhenItReturns(t *testing.T) {
	b := served(t, emptyPool(t))
	made(t, b, block("a"))
	b.pools()[0].device = "8:1048575"
	_, err := b.Get(t.Context(), "a")
	says(t, err, backend.ErrNotFound, "the disk below", "put it back")
	b.tryAll(t.Context(), true)
	if _, err := b.Get(t.Context(), "a"); err != nil {
		t.Error(err)
	}
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
	if _, err := b.Get(t.Context(), "a"); err != nil {
		t.Error(err)
	}
}

func TestPool_ThatCannotBeWrittenIsCountedWhenItCan(t *testing.T) {
	path, _ := onDevice(t, hostfs.XFS)
	c := PoolConfig{Name: "pool", Path: path, Reserved: "0"}
	is := begun(t, c, 1)
	c.Expect = unread
	b := served(t, c)
	remount(t, path, "remount,ro")
	b.ExpectPool("pool", expecting(is.ID, is.Generation))
	b.tryAll(t.Context(), true)
	if _, err := b.Get(t.Context(), "a"); err != nil || headOf(t, path).identity() != is {
		t.Errorf("it is %+v, %v", headOf(t, path), err)
	}
	remount(t, path, "remount,rw")
	b.tryAll(t.Context(), true)
	if now := headOf(t, path).Generation; now != is.Generation+1 {
		t.Errorf("when it can be written it has generation %d", now)
	}
}

// onDevice is a file system on a device that stays attached when it is unmounted.
func onDevice(t *testing.T, k hostfs.Kind) (path, device string) {
	t.Helper()
	hostfs.RequireRoot(t)
	device, path = hostfs.Disk(t, 512*mib), t.TempDir()
	shell(t, "mkfs."+k.Name, "-q", device)
	shell(t, "mount", device, path)
	t.Cleanup(func() {
		check.Report(t, nodeops.Unmount(context.Background(), path))
	})
	return path, device
}

func TestPoolLock_StaysOnAPoolThatIsCounted(t *testing.T) {
	c := emptyPool(t)
	begun(t, c, 1)
	stale, err := os.Open(filepath.Join(c.Path, poolFile)) // as another process just before it locks the file
	check.OK(t, err)
	defer stale.Close()
	b := served(t, c)
	_, err = Open(t.Context(), []PoolConfig{c}, silent)
	says(t, err, backend.ErrUnavailable, "another process")
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
	if reason := reasonOf(t, b); reason != backend.WrongPool {
		t.Errorf("of the other, which held something, the reason is %q", reason)
	}
}

func TestEmptyPool_IsNotRecreatedInAnEmptyDirectory(t *testing.T) {
	c := emptyPool(t)
	c.Expect = expecting("p1", 7)
	c.Expect.Empty = true
	refuses(t, c, backend.NotMounted, "p1")
}

func TestEmptyPool_ReplacedInUseIsNotMissed(t *testing.T) {
	c := emptyPool(t)
	b := served(t, c)
	replacedBeneath(t, b, c)
	if _, err := b.Get(t.Context(), "a"); err != nil {
		t.Error(err)
	}
}

func TestPool_WithTrashReplacedInUseIsMissed(t *testing.T) {
	c := emptyPool(t)
	b := served(t, c)
	made(t, b, block("b"))
	check.OK(t, b.Delete(t.Context(), "b"))
	replacedBeneath(t, b, c)
	if reason := reasonOf(t, b); reason != backend.WrongPool {
		t.Errorf("the reason is %q", reason)
	}
}
