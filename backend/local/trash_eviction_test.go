package local

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

// roomy is a pool on a file system of its own, without a reserve.
func roomy(t *testing.T, k hostfs.Kind, overcommit float64) PoolConfig {
	return PoolConfig{Name: "pool", Engine: "image", Path: hostfs.New(t, k, 2<<30), Overcommit: overcommit, Reserved: "0"}
}

func sized(name string, bytes int64) backend.VolumeSpec {
	return backend.VolumeSpec{Name: name, Mode: backend.Block, Size: backend.Size{Required: bytes / mib * mib}}
}

func capacityOf(t *testing.T, b *Backend) backend.Capacity {
	t.Helper()
	return check.Got(b.Capacity(t.Context(), ""))(t)
}

func deleted(t *testing.T, b *Backend, ids ...backend.ID) {
	t.Helper()
	for _, id := range ids {
		check.OK(t, b.Delete(t.Context(), id))
	}
}

// keeps fails unless the trash has exactly these, the last deleted first.
func keeps(t *testing.T, b *Backend, ids ...backend.ID) {
	t.Helper()
	all := check.Got(b.Trash(t.Context()))(t)
	var have []backend.ID
	for _, v := range all {
		have = append(have, v.ID)
	}
	if fmt.Sprint(have) != fmt.Sprint(ids) {
		t.Errorf("the trash keeps %v, want %v", have, ids)
	}
}

// written creates a volume and fills it with data.
func written(t *testing.T, b *Backend, spec backend.VolumeSpec) *backend.Volume {
	t.Helper()
	v := made(t, b, spec)
	f := check.Got(os.OpenFile(v.Access.Image, os.O_WRONLY, 0))(t)
	defer f.Close()
	data := make([]byte, mib)
	for i := range data {
		data[i] = byte(i*7 + 1)
	}
	for at := int64(0); at < v.Size; at += mib {
		check.Got(f.WriteAt(data, at))(t)
	}
	check.OK(t, f.Sync())
	return v
}

func TestTrash_OldestIsGivenUpWhenRoomIsNeededAndNoMore(t *testing.T) {
	b := served(t, roomy(t, hostfs.XFS, 1))
	room := capacityOf(t, b).Available
	for _, name := range []string{"a", "b", "c"} {
		made(t, b, sized(name, room/4))
	}
	deleted(t, b, "b", "a", "c")
	if c := capacityOf(t, b); c.Available < room-8*mib || c.Largest != c.Available {
		t.Errorf("%d bytes are available and the largest volume has %d; without the trash it was %d", c.Available, c.Largest, room)
	}
	room -= 32 * mib // used by directories
	made(t, b, sized("fits", room/8))
	keeps(t, b, "c", "a", "b")
	made(t, b, sized("new", room/4))
	keeps(t, b, "c", "a")
	check.Got(b.Expand(t.Context(), "new", backend.Size{Required: room * 7 / 16 / mib * mib}))(t)
	keeps(t, b, "c")
	check.Got(b.Clone(t.Context(), "new", backend.VolumeSpec{Name: "copy"}))(t)
	keeps(t, b)
	if _, err := b.Undelete(t.Context(), "c"); !errors.Is(err, backend.ErrNotFound) {
		t.Errorf("what gave way is undeleted: %v", err)
	}
}

func TestTrash_GivesWayToASnapshot(t *testing.T) {
	b := served(t, roomy(t, hostfs.XFS, 1))
	room := capacityOf(t, b).Available
	written(t, b, sized("a", 64*mib))
	made(t, b, sized("b", room-96*mib))
	deleted(t, b, "b")
	made(t, b, sized("c", 16*mib))
	made(t, b, sized("d", room/2))
	keeps(t, b)
	made(t, b, sized("e", room/2-120*mib))
	deleted(t, b, "e", "c")
	check.Got(b.Snapshot(t.Context(), backend.SnapshotSpec{Name: "s", Source: "a"}))(t)
	made(t, b, sized("f", room/2-160*mib))
	keeps(t, b, "c")
}

func TestTrash_IsNotTakenForRoomTwice(t *testing.T) {
	b := served(t, roomy(t, hostfs.XFS, 1))
	room := capacityOf(t, b).Available
	for i := range 8 {
		made(t, b, sized(fmt.Sprintf("old%d", i), room/8))
	}
	for i := range 8 {
		deleted(t, b, backend.ID(fmt.Sprintf("old%d", i)))
	}
	var all sync.WaitGroup
	granted := make([]bool, 32)
	for i := range granted {
		all.Go(func() {
			_, err := b.Create(t.Context(), sized(fmt.Sprintf("new%d", i), room/8-mib))
			if granted[i] = err == nil; err != nil && !errors.Is(err, backend.ErrExhausted) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	n := 0
	for _, ok := range granted {
		if ok {
			n++
		}
	}
	if c := capacityOf(t, b); n != 8 || c.Promised > room {
		t.Errorf("%d volumes were made where 8 have room, and %d of %d bytes are promised", n, c.Promised, room)
	}
	keeps(t, b)
}

func TestTrash_IsRestoredOrGivenUpAndNeverHalf(t *testing.T) {
	b := served(t, roomy(t, hostfs.XFS, 1))
	room := capacityOf(t, b).Available
	for range 20 {
		v := made(t, b, sized("a", room*6/10))
		writeImage(t, v, []byte("precious"))
		deleted(t, b, "a")
		var restored, created error
		var both sync.WaitGroup
		both.Go(func() { _, restored = b.Undelete(t.Context(), "a") })
		both.Go(func() { _, created = b.Create(t.Context(), sized("b", room*6/10)) })
		both.Wait()
		back, err := b.Get(t.Context(), "a")
		switch {
		case restored == nil && errors.Is(created, backend.ErrExhausted) && err == nil:
			if got := string(readImage(t, back, 8)); got != "precious" {
				t.Fatalf("restored it holds %q", got)
			}
		case errors.Is(restored, backend.ErrNotFound) && created == nil && errors.Is(err, backend.ErrNotFound):
		default:
			t.Fatalf("restored: %v, created: %v, found: %v", restored, created, err)
		}
		deleted(t, b, "a", "b")
		b.pools()[0].emptyTrash(t.Context(), time.Now().Add(48*time.Hour))
	}
}

func TestTrash_OnXFSGivesTheFreeSpaceThatIsNeeded(t *testing.T) { freeSpaceIsGiven(t, hostfs.XFS) }

func TestTrash_OnBtrfsGivesTheFreeSpaceThatIsNeeded(t *testing.T) { freeSpaceIsGiven(t, hostfs.Btrfs) }

func TestTrash_OnExt4GivesTheFreeSpaceThatIsNeeded(t *testing.T) { freeSpaceIsGiven(t, hostfs.Ext4) }

// freeSpaceIsGiven overcommits a pool, so that free space is the limit, not the promised sizes.
func freeSpaceIsGiven(t *testing.T, k hostfs.Kind) {
	b := served(t, roomy(t, k, 2))
	for _, name := range []string{"a", "b", "c"} {
		written(t, b, sized(name, 400*mib))
	}
	deleted(t, b, "a", "b")
	free := capacityOf(t, b).Available
	if free < 2*800*mib {
		t.Errorf("%d bytes are available with 800 MiB in the trash and overcommit 2", free)
	}
	made(t, b, sized("d", free-1000*mib)) // 600 MiB more than without the trash, of which one frees 800
	keeps(t, b, "b")
}

func TestTrash_DoesNotGiveWhatSnapshotsKeep(t *testing.T) {
	b := served(t, roomy(t, hostfs.XFS, 2))
	before := capacityOf(t, b).Available
	v := written(t, b, sized("a", 800*mib))
	check.Got(b.Snapshot(t.Context(), backend.SnapshotSpec{Name: "s", Source: v.ID}))(t)
	deleted(t, b, "a")
	c := capacityOf(t, b)
	if c.Available > before-2*780*mib {
		t.Errorf("%d bytes are available, %d before 800 MiB were written that a snapshot keeps", c.Available, before)
	}
	_, err := b.Create(t.Context(), sized("b", c.Available+200*mib))
	says(t, err, backend.ErrExhausted, "even if the 1 deleted volumes in the trash were removed")
	keeps(t, b, "a")
	check.OK(t, b.DeleteSnapshot(t.Context(), "s"))
	p := b.pools()[0]
	late, tick := time.After(20*time.Second), time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for capacityOf(t, b).Available < before-100*mib { // the kernel removes the snapshot in the background
		check.OK(t, p.survey(t.Context()))
		select {
		case <-late:
			t.Fatalf("%d bytes are available when the snapshot is gone", capacityOf(t, b).Available)
		case <-tick.C:
		}
	}
	made(t, b, sized("b", c.Available+200*mib))
	keeps(t, b)
}

func TestTrash_OfAVolumeAndItsCloneGivesWhatTheyShare(t *testing.T) {
	b := served(t, roomy(t, hostfs.XFS, 2))
	written(t, b, sized("a", 800*mib))
	check.Got(b.Clone(t.Context(), "a", backend.VolumeSpec{Name: "b"}))(t)
	deleted(t, b, "a", "b")
	made(t, b, sized("c", 2*1500*mib))
	keeps(t, b)
}

func TestTrash_GivesWayWhenTheFileSystemRunsFull(t *testing.T) {
	c := roomy(t, hostfs.XFS, 1)
	top := c.Path
	c.Path, c.Reserved = filepath.Join(top, "pool"), "400Mi"
	check.OK(t, os.Mkdir(c.Path, 0o755))
	b := served(t, c)
	for _, name := range []string{"a", "b", "empty"} {
		written(t, b, sized(name, 300*mib))
	}
	deleted(t, b, "a", "b")
	p := b.pools()[0]
	relieved := func() {
		t.Helper()
		check.OK(t, p.evictForReserve(t.Context()))
	}
	relieved()
	keeps(t, b, "b", "a")
	usage := check.Got(p.measure(t.Context()))(t)
	theirs := check.Got(os.Create(filepath.Join(top, "theirs")))(t)
	defer theirs.Close()
	check.OK(t, unix.Fallocate(int(theirs.Fd()), 0, 0, usage.Available-300*mib)) // other programs use the reserve
	relieved()
	keeps(t, b, "b")
}

func TestTrash_RemovalBlocksNoCaller(t *testing.T) {
	b := served(t, emptyPool(t))
	made(t, b, block("a"))
	deleted(t, b, "a")
	p := b.pools()[0]
	held := p.claim(p.trashed()[0]) // as during the removal of a large directory
	if held == nil {
		t.Fatal("it cannot be claimed")
	}
	p.evicting.Lock()
	made(t, b, block("b"))
	if c := capacityOf(t, b); c.Promised != 2*mib {
		t.Errorf("promised %d during the removal, want %d", c.Promised, 2*mib)
	}
	keeps(t, b)
	fails(b.Undelete(t.Context(), "a"))(t, backend.ErrNotFound, "a")
	p.evicting.Unlock()
	p.purgeClaimed(t.Context(), held)
	if c := capacityOf(t, b); c.Promised != mib {
		t.Errorf("promised %d afterwards, want %d", c.Promised, mib)
	}
}

func TestTrash_ThatAnotherProcessRestoredIsNotGivenUp(t *testing.T) {
	c := roomy(t, hostfs.XFS, 1)
	b := served(t, c)
	room := capacityOf(t, b).Available
	made(t, b, sized("a", room*6/10))
	deleted(t, b, "a")
	other := check.Got(Peek(t.Context(), []PoolConfig{c}, silent))(t)
	defer other.Close(t.Context())
	check.Got(other.Undelete(t.Context(), "a"))(t)
	fails(b.Create(t.Context(), sized("b", room*6/10)))(t, backend.ErrExhausted, "b needs")
	check.Got(b.Get(t.Context(), "a"))(t)
}

func TestTrash_KeepsNoSnapshotsAndNothingEphemeral(t *testing.T) {
	b := served(t, emptyPool(t))
	spec := block("pod")
	spec.Ephemeral = true
	made(t, b, spec)
	made(t, b, block("a"))
	check.Got(b.Snapshot(t.Context(), backend.SnapshotSpec{Name: "s", Source: "a"}))(t)
	deleted(t, b, "pod")
	check.OK(t, b.DeleteSnapshot(t.Context(), "s"))
	keeps(t, b)
	if c := capacityOf(t, b); c.Promised != mib {
		t.Errorf("promised %d, want %d", c.Promised, mib)
	}
}

func TestTrash_NoneIsKeptWhereThePoolSaysSo(t *testing.T) {
	c := emptyPool(t)
	b := open(t, c)
	made(t, b, block("a"))
	deleted(t, b, "a")
	keeps(t, b, "a") // the default is a day
	check.OK(t, b.Close(t.Context()))
	c.TrashRetention = backend.NoTrash
	b = served(t, c)
	keeps(t, b)
	made(t, b, block("a"))
	deleted(t, b, "a")
	if left, err := os.ReadDir(filepath.Join(c.Path, trashDir)); err != nil || len(left) > 0 {
		t.Errorf("the trash holds %v, %v", left, err)
	}
}

func TestTrash_OfADirectoryKeepsItsQuota(t *testing.T) {
	b := served(t, PoolConfig{Name: "pool", Engine: "directory", Path: hostfs.New(t, hostfs.Btrfs, 2<<30)})
	v := made(t, b, backend.VolumeSpec{Name: "a", Size: backend.Size{Required: 64 * mib}})
	deleted(t, b, v.ID)
	back, err := b.Undelete(t.Context(), "a")
	if err != nil || back.Condition.Abnormal {
		t.Fatalf("restored %+v, %v", back, err)
	}
	if err := fill(filepath.Join(back.Access.Directory, "f"), 65*mib, 0); err == nil {
		t.Error("65 MiB fit into 64 MiB")
	}
}
