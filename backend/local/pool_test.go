package local

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

var silent = slog.New(slog.DiscardHandler)

// emptyPool is a new pool in a plain directory; block volumes in it need no root.
func emptyPool(t *testing.T) PoolConfig {
	return PoolConfig{Name: "pool", Engine: "image", Path: t.TempDir(), Reserved: "0"}
}

func served(t *testing.T, configs ...PoolConfig) *Backend {
	t.Helper()
	b := open(t, configs...)
	t.Cleanup(func() { b.Close(context.Background()) })
	return b
}

func block(name string) backend.VolumeSpec {
	return backend.VolumeSpec{Name: name, Mode: backend.Block, Size: backend.Size{Required: mib}}
}

func made(t *testing.T, b *Backend, spec backend.VolumeSpec) *backend.Volume {
	t.Helper()
	return check.Got(b.Create(t.Context(), spec))(t)
}

// says fails unless err is of the kind, if one is given, and its message contains the words.
func says(t *testing.T, err, kind error, words ...string) {
	t.Helper()
	if kind != nil && !errors.Is(err, kind) {
		t.Errorf("got %v, want an error that is %q", err, kind)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the error %q does not say %q", err, word)
		}
	}
}

// fails expects the error of a call: fails(b.Get(ctx, "a"))(t, backend.ErrNotFound, "a").
func fails[T any](_ T, err error) func(t *testing.T, kind error, words ...string) {
	return func(t *testing.T, kind error, words ...string) {
		t.Helper()
		says(t, err, kind, words...)
	}
}

// blockIn is a small volume of a pool.
func blockIn(pool, name string) backend.VolumeSpec {
	spec := block(name)
	spec.Pool = pool
	return spec
}

func TestPool_BelongsToOneProcess(t *testing.T) {
	c := emptyPool(t)
	served(t, c)
	fails(Open(t.Context(), []PoolConfig{c}, silent))(t, backend.ErrUnavailable, "pool", c.Path, "another process")
}

func TestPool_WhoseLockIsBeingReleasedIsAwaited(t *testing.T) {
	hostfs.NotInGate(t, "races two timers")
	c := emptyPool(t)
	check.OK(t, served(t, c).Close(t.Context()))
	held := check.Got(nodeops.Lock(func(flag int) (*os.File, error) { return os.OpenFile(filepath.Join(c.Path, poolFile), flag, 0) }, unix.LOCK_EX))(t)
	time.AfterFunc(lockWithin/10, func() { held.Close() })
	served(t, c)
}

func TestOpen_RefusesAnotherPool(t *testing.T) {
	write := func(name, content string) func(*testing.T, *PoolConfig) {
		return func(t *testing.T, c *PoolConfig) {
			check.OK(t, os.WriteFile(filepath.Join(c.Path, name), []byte(content), 0o600))
		}
	}
	for name, bad := range map[string]struct {
		spoil func(*testing.T, *PoolConfig)
		kind  error
		words []string
	}{
		"a directory with other things": {write("photos", ""), backend.ErrInvalid, []string{`"photos"`, "empty directory"}},
		"a truncated pool.json":         {write(poolFile, `{"versi`), backend.ErrUnavailable, []string{poolFile, "damaged"}},
		"a newer pool.json":             {write(poolFile, `{"version":9,"engine":"image"}`), backend.ErrUnavailable, []string{"version 9", "newer program"}},
		"a pool of another engine":      {write(poolFile, `{"version":1,"engine":"directory"}`), backend.ErrInvalid, []string{"engine=directory", "image"}},
		"a missing directory":           {func(_ *testing.T, c *PoolConfig) { c.Path += "/missing" }, os.ErrNotExist, []string{"missing", "existing directory"}},
		"an unknown engine":             {func(_ *testing.T, c *PoolConfig) { c.Engine = "zfs" }, backend.ErrInvalid, []string{`"zfs"`, "Image or Directory"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := emptyPool(t)
			bad.spoil(t, &c)
			fails(Open(t.Context(), []PoolConfig{c}, silent))(t, bad.kind, bad.words...)
		})
	}
}

func TestPools_MustDifferInNameAndPath(t *testing.T) {
	a, b := emptyPool(t), emptyPool(t)
	fails(Open(t.Context(), []PoolConfig{a, b}, silent))(t, backend.ErrInvalid, a.Path, b.Path)
	b.Name, b.Path = "other", a.Path
	fails(Open(t.Context(), []PoolConfig{a, b}, silent))(t, backend.ErrInvalid, "other")
}

func TestPools_OneNameIsOneVolumeInAll(t *testing.T) {
	b := served(t, named(t, "slow"), named(t, "fast"))
	if v := made(t, b, block("a")); v.Pool != "slow" {
		t.Errorf("the default pool is %s, want the first", v.Pool)
	}
	fails(b.Create(t.Context(), blockIn("fast", "a")))(t, backend.ErrExists, "pool slow", "fast")
	fails(b.Clone(t.Context(), "a", backend.VolumeSpec{Name: "b", Pool: "fast"}))(t, backend.ErrInvalid, "slow", "fast")
}

func TestPools_GroupMaySpanSeveralAndAMemberOutlivesThePoolOfItsRecord(t *testing.T) {
	slow, fast, other := named(t, "slow"), named(t, "fast"), named(t, "slow") // whose disk is replaced
	b := open(t, slow, fast)
	again := func(configs ...PoolConfig) {
		t.Helper()
		check.OK(t, b.Close(t.Context()))
		b = open(t, configs...)
	}
	onlyWAL := func(what string) (s *backend.Snapshot) {
		t.Helper()
		all, err := b.ListSnapshots(t.Context())
		if err != nil || len(all) != 1 || all[0].Source != "wal" {
			t.Fatalf("%s has the snapshots %v, %v, want that of wal", what, all, err)
		}
		return all[0]
	}
	spec := backend.GroupSpec{Name: "g", Sources: []backend.ID{made(t, b, blockIn("slow", "data")).ID, made(t, b, blockIn("fast", "wal")).ID}}
	g := check.Got(b.SnapshotGroup(t.Context(), spec))(t)
	// The group's record is in the pool of "data". Without that pool the group is unknown, and nothing is removed.
	again(fast)
	onlyWAL("the pool alone")
	again(slow, fast)
	if g := check.Got(b.GetGroup(t.Context(), g.ID))(t); len(g.Snapshots) != 2 {
		t.Errorf("the group is %+v", g)
	}
	again(other, fast)
	again(other, fast)
	s := onlyWAL("the pool without that of the record")
	check.Got(b.Restore(t.Context(), s.ID, backend.VolumeSpec{Name: "again"}))(t)
	// Its group cannot be deleted any more.
	check.Report(t, b.DeleteSnapshot(t.Context(), s.ID))
	check.Report(t, b.Close(t.Context()))
}

func TestPools_GroupWhoseDeletionFailedInOneIsDeletedByARepeat(t *testing.T) {
	b := served(t, named(t, "slow"), named(t, "fast"))
	var sources []backend.ID
	for _, spec := range []backend.VolumeSpec{blockIn("slow", "data"), blockIn("fast", "other"), blockIn("slow", "wal")} {
		sources = append(sources, made(t, b, spec).ID)
	}
	g := check.Got(b.SnapshotGroup(t.Context(), backend.GroupSpec{Name: "g", Sources: sources}))(t)
	p := check.Got(b.pool("fast", backend.ErrUnavailable))(t)
	device := p.device
	p.device = "8:1048575"
	says(t, b.DeleteGroup(t.Context(), g.ID), backend.ErrUnavailable, "gone")
	p.device = device
	wait.Until(t, "the pool being served again", func() bool { return len(b.pools()) == 2 }) // where it was looked at in between
	left := func() (n int) {
		for _, p := range b.pools() {
			n += len(p.each(snapshots))
		}
		return n
	}
	if n := left(); n != 1 {
		t.Errorf("%d snapshots are left, want that of the pool that cannot be used", n)
	}
	if err := b.DeleteGroup(t.Context(), g.ID); err != nil || left() != 0 {
		t.Errorf("%d snapshots are left: %v", left(), err)
	}
}

func TestGroup_OfASourceThatIsNotThereWaitsForNoOther(t *testing.T) {
	b := served(t, emptyPool(t))
	made(t, b, block("a"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := backend.Do(ctx, &b.ops, "a", "clone that holds b", func(ctx context.Context) (any, error) {
		return b.SnapshotGroup(ctx, backend.GroupSpec{Name: "g", Sources: []backend.ID{"a", "b"}})
	})
	says(t, err, backend.ErrNotFound, "volume b")
}

func TestPool_BrokenVolumeIsListedAndHidesNoOther(t *testing.T) {
	for name, spoil := range map[string]struct {
		do    func(dir string) error
		words []string
		keep  bool // it cannot be deleted
	}{
		"truncated metadata": {do: func(dir string) error { return os.Truncate(filepath.Join(dir, metaFile), 10) }, words: []string{metaFile, "damaged"}},
		"empty metadata":     {do: func(dir string) error { return os.Truncate(filepath.Join(dir, metaFile), 0) }, words: []string{metaFile, "damaged"}},
		"missing metadata":   {do: func(dir string) error { return os.Remove(filepath.Join(dir, metaFile)) }, words: []string{metaFile}},
		"newer metadata": {do: func(dir string) error {
			return os.WriteFile(filepath.Join(dir, metaFile), []byte(`{"version":9}`), 0o600)
		}, words: []string{"version 9", "knows 1"}, keep: true},
		"another's metadata": {do: func(dir string) error {
			return os.WriteFile(filepath.Join(dir, metaFile), []byte(`{"version":1,"id":"other"}`), 0o600)
		}, words: []string{`"other"`}},
		"a cut image":     {do: func(dir string) error { return os.Truncate(filepath.Join(dir, "image"), 4096) }, words: []string{"4Ki of 1Mi"}},
		"a missing image": {do: func(dir string) error { return os.Remove(filepath.Join(dir, "image")) }, words: []string{"image cannot be read"}},
		"a link for an image": {do: func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, "image")), os.Symlink("/etc/passwd", filepath.Join(dir, "image")))
		}, words: []string{"not a file", "L"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := emptyPool(t)
			b := open(t, c)
			made(t, b, block("broken"))
			made(t, b, block("sound"))
			check.OK(t, b.Close(t.Context()))
			check.OK(t, spoil.do(filepath.Join(c.Path, "volumes", "broken")))
			b = served(t, c)
			all, err := b.List(t.Context())
			if err != nil || len(all) != 2 || all[0].ID != "broken" || !all[0].Condition.Abnormal || all[1].Condition.Abnormal {
				t.Fatalf("listed %+v, %v", all, err)
			}
			says(t, errors.New(all[0].Condition.Message), nil, spoil.words...)
			err = b.Delete(t.Context(), "broken")
			if spoil.keep {
				says(t, err, backend.ErrPrecondition, "newer program")
			} else if err != nil {
				t.Errorf("it cannot be deleted: %v", err)
			}
			check.Got(os.Stat("/etc/passwd"))(t)
		})
	}
}

func TestPool_ReadOnlyRefusesAndReportsIt(t *testing.T) {
	path := hostfs.New(t, hostfs.XFS, 1<<30)
	b := served(t, PoolConfig{Name: "pool", Engine: "image", Path: path})
	v := made(t, b, block("a"))
	shell(t, "mount", "-o", "remount,ro", path)
	fails(b.Create(t.Context(), block("b")))(t, backend.ErrUnavailable, "pool", "read-only", path)
	says(t, b.Delete(t.Context(), v.ID), backend.ErrUnavailable, "read-only")
	fails(b.Expand(t.Context(), v.ID, backend.Size{Required: 2 * mib}))(t, backend.ErrUnavailable, "read-only")
	if got, err := b.Get(t.Context(), v.ID); err != nil || !got.Condition.Abnormal {
		t.Errorf("got %+v, %v", got, err)
	}
	shell(t, "mount", "-o", "remount,rw", path)
	made(t, b, block("b"))
}

func TestPool_FullRefusesThickVolumesAndKeepsNothing(t *testing.T) {
	path := hostfs.New(t, hostfs.XFS, 1<<30)
	b := served(t, PoolConfig{Name: "pool", Engine: "image", Path: path, Overcommit: 10, Reserved: "0"})
	thick := block("thick")
	thick.Provisioning, thick.Size.Required = backend.Thick, 600*mib
	v := made(t, b, thick)
	if v.Used < 600*mib {
		t.Errorf("a thick volume of 600 MiB takes %d bytes", v.Used)
	}
	thick.Name = "second"
	fails(b.Create(t.Context(), thick))(t, backend.ErrExhausted, "second")
	copied := backend.VolumeSpec{Name: "copy", Provisioning: backend.Thick}
	fails(b.Clone(t.Context(), v.ID, copied))(t, backend.ErrExhausted, "copy")
	if left, _ := os.ReadDir(filepath.Join(path, ".tmp")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if c, _ := b.Capacity(t.Context(), ""); c.Promised != v.Size {
		t.Errorf("promised %d, want %d", c.Promised, v.Size)
	}
}

func TestThickOnXFS_HasSpaceOfItsOwn(t *testing.T)   { thickSharesNothing(t, hostfs.XFS) }
func TestThickOnBtrfs_HasSpaceOfItsOwn(t *testing.T) { thickSharesNothing(t, hostfs.Btrfs) }
func TestThickOnExt4_HasSpaceOfItsOwn(t *testing.T)  { thickSharesNothing(t, hostfs.Ext4) }

// thickSharesNothing checks that no other file shares blocks of a thick volume.
func thickSharesNothing(t *testing.T, k hostfs.Kind) {
	b := served(t, PoolConfig{Name: "pool", Engine: "image", Path: hostfs.New(t, k, 1<<30)})
	const size = 16 * mib
	ctx := t.Context()
	spec := func(name string, size int64, p backend.Provisioning) backend.VolumeSpec {
		return backend.VolumeSpec{Name: name, Mode: backend.Block, Provisioning: p, Size: backend.Size{Required: size}}
	}
	thin, thick := made(t, b, spec("thin", size, backend.Thin)), made(t, b, spec("thick", size, backend.Thick))
	for _, v := range []*backend.Volume{thin, thick} {
		writeImage(t, v, []byte(strings.Repeat("holdfast", size/2/8)))
	}
	for _, from := range []backend.ID{"thin", "thick"} {
		check.Got(b.Snapshot(t.Context(), backend.SnapshotSpec{Name: "of " + string(from), Source: from}))(t)
	}
	for _, test := range []struct {
		name string
		make func() (*backend.Volume, error)
	}{
		{"a new volume", func() (*backend.Volume, error) { return b.Create(ctx, spec("a", size, backend.Thick)) }},
		{"one that grew", func() (*backend.Volume, error) { return b.Expand(ctx, "a", backend.Size{Required: 2 * size}) }},
		{"a clone of a thin one", func() (*backend.Volume, error) { return b.Clone(ctx, "thin", spec("b", size, backend.Thick)) }},
		{"a larger clone of a thick one", func() (*backend.Volume, error) { return b.Clone(ctx, "thick", spec("c", 2*size, backend.Thick)) }},
		{"a restored thin one", func() (*backend.Volume, error) {
			return b.Restore(ctx, idOf(t, "of thin"), spec("d", size, backend.Thick))
		}},
		{"a larger restored thick one", func() (*backend.Volume, error) {
			return b.Restore(ctx, idOf(t, "of thick"), spec("e", 2*size, backend.Thick))
		}},
	} {
		v, err := test.make()
		if err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		f := check.Got(os.Open(v.Access.Image))(t)
		own, err := nodeops.Unshared(f)
		f.Close()
		if err != nil || own < v.Size || v.Used < v.Size {
			t.Errorf("%s, thick and of %d bytes, takes %d and has %d for itself, %v", test.name, v.Size, v.Used, own, err)
		}
	}
}

func idOf(t *testing.T, name string) backend.ID {
	t.Helper()
	return check.Got(backend.IDFor(name))(t)
}

func TestPromise_ExcludesForeignDataAndTheReserve(t *testing.T) {
	path := hostfs.New(t, hostfs.XFS, 2<<30)
	check.OK(t, os.Mkdir(filepath.Join(path, "pool"), 0o755))
	c := PoolConfig{Name: "pool", Engine: "image", Path: filepath.Join(path, "pool"), Reserved: "100Mi"}
	b := open(t, c)
	before := check.Got(b.Capacity(t.Context(), ""))(t)
	check.OK(t, b.Close(t.Context()))
	const foreign = 500 * mib
	check.OK(t, fill(filepath.Join(path, "foreign"), foreign, 0))
	after := check.Got(served(t, c).Capacity(t.Context(), ""))(t)
	if lost := before.Available - after.Available; lost < foreign || lost > foreign+50*mib {
		t.Errorf("%d bytes of others took %d from what is available", foreign, lost)
	}
	if before.Available > before.Total-100*mib {
		t.Errorf("of %d bytes with 100 MiB reserved %d are available", before.Total, before.Available)
	}
}

func TestPromise_OvercommitExceedsTheSpace(t *testing.T) {
	b := served(t, PoolConfig{Name: "pool", Engine: "image", Path: hostfs.New(t, hostfs.XFS, 1<<30), Overcommit: 3})
	made(t, b, sized("a", 1<<30))
	made(t, b, sized("b", 1<<30))
	fails(b.Create(t.Context(), sized("c", 1<<30)))(t, backend.ErrExhausted, "overcommit 3", "needs 1Gi of pool pool")
}

func TestTrash_DeletedVolumeIsKeptForItsRetentionAndCanBeRestored(t *testing.T) {
	c := emptyPool(t)
	c.TrashRetention = time.Hour
	b := open(t, c)
	v := made(t, b, block("a"))
	writeImage(t, v, []byte("precious"))
	check.OK(t, b.Delete(t.Context(), v.ID))
	if got, _ := b.Capacity(t.Context(), ""); got.Promised != v.Size {
		t.Errorf("with a volume of %d in the trash %d bytes are promised", v.Size, got.Promised)
	}
	check.OK(t, b.Close(t.Context()))
	b = served(t, c) // the trash is kept over a restart
	all, err := b.Trash(t.Context())
	if err != nil || len(all) != 1 || all[0].ID != v.ID || all[0].Expires.Sub(all[0].Deleted) != time.Hour {
		t.Fatalf("the trash holds %+v, %v", all, err)
	}
	check.Got(b.Undelete(t.Context(), v.ID))(t)
	back, err := b.Get(t.Context(), v.ID)
	if err != nil || string(readImage(t, back, 8)) != "precious" {
		t.Errorf("restored %+v, %v", back, err)
	}
	check.OK(t, b.Delete(t.Context(), v.ID))
	b.pools()[0].emptyTrash(t.Context(), time.Now().Add(2*time.Hour))
	if got, _ := b.Capacity(t.Context(), ""); got.Promised != 0 {
		t.Errorf("after the retention %d bytes are promised", got.Promised)
	}
	if left, _ := os.ReadDir(filepath.Join(c.Path, ".trash")); len(left) > 0 {
		t.Errorf("after the retention the trash holds %v", left)
	}
}

func TestTrash_AWrongClockDoesNotEmptyIt(t *testing.T) {
	c := emptyPool(t)
	c.TrashRetention = 24 * time.Hour
	b := open(t, c)
	made(t, b, block("a"))
	check.OK(t, b.Delete(t.Context(), "a"))
	check.OK(t, b.Close(t.Context()))
	trash := filepath.Join(c.Path, ".trash")
	before := filepath.Join(trash, timedName(volumes, "a", time.Unix(1000, 0))) // the host had booted without the time
	check.OK(t, os.Rename(onlyIn(t, trash), before))
	b = served(t, c)
	p := b.pools()[0]
	keeps(t, b, "a") // from the start
	p.emptyTrash(t.Context(), time.Now().Add(backend.SeenAtLeast-time.Minute))
	keeps(t, b, "a") // until it was seen for an hour
	p.emptyTrash(t.Context(), time.Now().Add(backend.SeenAtLeast))
	keeps(t, b)
}

// onlyIn returns the path of the only entry of a directory.
func onlyIn(t *testing.T, dir string) string {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil || len(all) != 1 {
		t.Fatalf("%s has %v, %v", dir, all, err)
	}
	return filepath.Join(dir, all[0].Name())
}

func TestTrash_ServingProcessNoticesTheRestoreOfAnother(t *testing.T) {
	c := emptyPool(t)
	c.TrashRetention = time.Hour
	b := served(t, c)
	made(t, b, block("a"))
	check.OK(t, b.Delete(t.Context(), "a"))
	other := check.Got(Peek(t.Context(), []PoolConfig{c}, silent))(t)
	defer other.Close(t.Context())
	check.Got(other.Undelete(t.Context(), "a"))(t)
	check.Got(b.Get(t.Context(), "a"))(t)
	if got, _ := b.Capacity(t.Context(), ""); got.Promised != mib {
		t.Errorf("promised %d at once, want %d", got.Promised, mib)
	}
	keeps(t, b)
	if got, _ := b.Capacity(t.Context(), ""); got.Promised != mib {
		t.Errorf("promised %d, want %d", got.Promised, mib)
	}
}

func TestPools_AreMeasured(t *testing.T) {
	b := served(t, emptyPool(t))
	v := made(t, b, block("a"))
	check.Got(b.Snapshot(t.Context(), backend.SnapshotSpec{Name: "s", Source: v.ID}))(t)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(b.Collector())
	want := `
# HELP holdfast_pool_promised_bytes Bytes promised to volumes, snapshots and trash.
# TYPE holdfast_pool_promised_bytes gauge
holdfast_pool_promised_bytes{pool="pool"} 2.097152e+06
# HELP holdfast_pool_snapshots Snapshots of the pool.
# TYPE holdfast_pool_snapshots gauge
holdfast_pool_snapshots{pool="pool"} 1
# HELP holdfast_pool_volumes Volumes of the pool.
# TYPE holdfast_pool_volumes gauge
holdfast_pool_volumes{pool="pool"} 1
`
	check.Report(t, testutil.GatherAndCompare(registry, strings.NewReader(want), "holdfast_pool_volumes", "holdfast_pool_snapshots", "holdfast_pool_promised_bytes"))
	if n, err := testutil.GatherAndCount(registry); err != nil || n != 15 {
		t.Errorf("%d metrics, %v", n, err)
	}
}

func TestDamagedEntry_IsWholeAgainWhenItCanBeRead(t *testing.T) {
	c := emptyPool(t)
	b := open(t, c)
	v := made(t, b, block("a"))
	check.OK(t, b.Close(t.Context()))
	meta := filepath.Join(c.Path, "volumes", string(v.ID), metaFile)
	content := check.Got(os.ReadFile(meta))(t)
	check.OK(t, os.WriteFile(meta, []byte("{"), 0o600))
	b = served(t, c)
	for _, healed := range []bool{false, true} {
		if healed {
			check.OK(t, os.WriteFile(meta, content, 0o600))
		}
		all, err := b.List(t.Context())
		if err != nil || len(all) != 1 || all[0].Condition.Abnormal == healed || healed && all[0].Size != v.Size {
			t.Errorf("healed: %t, and listed is %+v (%v)", healed, all, err)
		}
	}
}
