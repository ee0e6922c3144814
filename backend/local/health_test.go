package local

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

// meetError causes an error in the ext4 of a pool.
func meetError(t *testing.T, pool string) {
	t.Helper()
	m := check.Got(nodeops.MountAt(pool))(t)
	hostfs.MeetError(t, m.Source)
}

// look checks the pools now, and returns whether the listener was notified.
func look(t *testing.T, b *Backend) (notified bool) {
	t.Helper()
	b.NotifyPools(func() { notified = true })
	defer b.NotifyPools(nil)
	for _, p := range b.pools() {
		b.examinePool(t.Context(), p)
	}
	return notified
}

func TestHealth_PoolReportsErrorsOfItsFileSystemAndContinues(t *testing.T) {
	path := hostfs.New(t, hostfs.Ext4, 256*mib)
	b := served(t, PoolConfig{Name: "pool", Engine: "image", Path: path, Reserved: "0"})
	v := made(t, b, block("a"))
	condition := func() backend.Condition {
		t.Helper()
		room := check.Got(b.Capacity(t.Context(), "pool"))(t)
		return room.Condition
	}
	look(t, b)
	if c := condition(); c.Abnormal {
		t.Errorf("a good pool is %+v", c)
	}
	meetError(t, path)
	if !look(t, b) || look(t, b) {
		t.Error("the listener was not notified, or twice")
	}
	if c := condition(); c.Reason != backend.PoolErrors || !strings.Contains(c.Message, "pool pool: the ext4 at "+path+" has had errors: 1,") {
		t.Errorf("it is %+v", c)
	}
	made(t, b, block("b"))
	if got, err := b.Get(t.Context(), v.ID); err != nil || got.Condition.Abnormal {
		t.Errorf("an image in it is %+v, %v", got, err) // it has a file system of its own
	}
	metric := `# HELP holdfast_pool_healthy 1 while the kernel has found no errors in the pool's file system, else 0.
# TYPE holdfast_pool_healthy gauge
holdfast_pool_healthy{pool="pool"} 0
`
	check.Report(t, testutil.CollectAndCompare(b.Collector(), strings.NewReader(metric), "holdfast_pool_healthy"))
	shell(t, "mount", "-o", "remount,errors=remount-ro", path)
	meetError(t, path)
	fails(b.Create(t.Context(), block("c")))(t, backend.ErrUnavailable, "read-only", path) // before the next examination
	b.pools()[0].failed.Store(false)
	look(t, b)
	fails(b.Create(t.Context(), block("c")))(t, backend.ErrUnavailable, "read-only", path)
}

func TestHealth_FaultSeenByAUserLastsUntilItIsGone(t *testing.T) {
	b := served(t, emptyPool(t))
	v := made(t, b, block("a"))
	c := backend.Condition{Abnormal: true, Reason: backend.NotGrown, Message: "it is small"}
	b.ObserveHealth(v.ID, c)
	b.ObserveHealth("other", c)
	look(t, b) // it is not in use, which does not repair it
	all, err := b.List(t.Context())
	if err != nil || len(all) != 1 || all[0].Condition != c {
		t.Fatalf("listed: %+v, %v", all, err)
	}
	metric := `# HELP holdfast_pool_unhealthy_volumes Volumes of the pool whose file systems have errors (FileSystemErrors), whose devices have had I/O errors (DeviceErrors) or which could not be grown (NotGrown).
# TYPE holdfast_pool_unhealthy_volumes gauge
holdfast_pool_unhealthy_volumes{pool="pool",reason="DeviceErrors"} 0
holdfast_pool_unhealthy_volumes{pool="pool",reason="FileSystemErrors"} 0
holdfast_pool_unhealthy_volumes{pool="pool",reason="NotGrown"} 1
`
	check.Report(t, testutil.CollectAndCompare(b.Collector(), strings.NewReader(metric), "holdfast_pool_unhealthy_volumes"))
	check.OK(t, b.Delete(t.Context(), v.ID))
	look(t, b)
	if again := made(t, b, block("a")); again.Condition.Abnormal {
		t.Errorf("another of its name is %+v", again)
	}
}

func TestHealth_FileSystemIsSmallOnceSeenSoTwice(t *testing.T) {
	b := served(t, PoolConfig{Name: "pool", Engine: "image", Path: hostfs.New(t, hostfs.XFS, 1024*mib), Reserved: "0"})
	spec := backend.VolumeSpec{Name: "a", FSType: "btrfs", Size: backend.Size{Required: 128 * mib}}
	v := made(t, b, spec)
	check.Got(b.Expand(t.Context(), v.ID, backend.Size{Required: 256 * mib}))(t)
	dir := use(t, v)
	is := func(want backend.HealthReason) {
		t.Helper()
		if got, err := b.Get(t.Context(), v.ID); err != nil || got.Condition.Reason != want {
			t.Errorf("it is %+v, %v, want reason %q", got, err, want)
		}
	}
	look(t, b) // as if it was just mounted and is growing
	is("")
	look(t, b)
	is(backend.NotGrown)
	m := check.Got(nodeops.MountAt(dir))(t)
	check.OK(t, nodeops.GrowMounted(t.Context(), nodeops.LoopUnder(m), dir, 0))
	look(t, b)
	is("")
}
