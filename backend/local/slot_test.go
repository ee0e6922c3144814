package local

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// reachable opens pools whose directories a test makes available.
func reachable(t *testing.T, sites ...Site) *Backend {
	t.Helper()
	b := OpenReachable(t.Context(), sites, silent)
	t.Cleanup(func() { check.Report(t, b.Close(context.Background())) })
	return b
}

// gate is the availability of a pool's directory; closed at first.
type gate struct{ open atomic.Bool }

var errAway = errors.New("the disk is missing")

func (g *gate) reach(context.Context, backend.PoolExpectation) error {
	if g.open.Load() {
		return nil
	}
	return errAway
}

func named(t *testing.T, name string) PoolConfig {
	c := emptyPool(t)
	c.Name = name
	return c
}

func TestUnreachablePool_BlocksNoOther(t *testing.T) {
	b := reachable(t, Site{named(t, "near"), nil}, Site{named(t, "far"), (&gate{}).reach})
	v := made(t, b, block("a"))
	if v.Pool != "near" {
		t.Errorf("made in pool %s", v.Pool)
	}
	check.Got(b.Capacity(t.Context(), "near"))(t)
	fails(b.Capacity(t.Context(), "far"))(t, backend.ErrUnavailable, "far", errAway.Error())
	spec := block("b")
	spec.Pool = "far"
	fails(b.Create(t.Context(), spec))(t, backend.ErrUnavailable, "far", errAway.Error())
	if all, err := b.List(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("listed %v, %v", all, err)
	}
	if pools := b.Pools(); len(pools) != 2 || pools[1].Name != "far" || pools[1].Engine != "image" {
		t.Errorf("the pools are %+v", pools)
	}
	metric := `# HELP holdfast_pool_up 1 while the pool can be used, else 0.
# TYPE holdfast_pool_up gauge
holdfast_pool_up{pool="far"} 0
holdfast_pool_up{pool="near"} 1
`
	check.Report(t, testutil.CollectAndCompare(b.Collector(), strings.NewReader(metric), "holdfast_pool_up"))
}

func TestUnreachablePool_ThatDoesNotAnswerKeepsNoOtherClosed(t *testing.T) {
	release := make(chan struct{})
	hanging := Site{named(t, "hanging"), func(context.Context, backend.PoolExpectation) error {
		<-release
		return errAway
	}}
	b := reachable(t, hanging, Site{named(t, "near"), nil})
	t.Cleanup(func() { close(release) }) // before the backend is closed
	for start := time.Now(); ; b.tryAll(t.Context(), true) {
		_, err := b.Capacity(t.Context(), "near")
		if err == nil {
			break
		}
		if time.Since(start) > time.Minute {
			t.Fatal(err)
		}
	}
	fails(b.Capacity(t.Context(), "hanging"))(t, backend.ErrUnavailable, "hanging", "it is being opened")
}

func TestUnreachablePool_VolumeIsNeitherReportedGoneNorMadeElsewhere(t *testing.T) {
	far := named(t, "far")
	b := reachable(t, Site{far, (&gate{}).reach}, Site{named(t, "near"), nil})
	fails(b.Get(t.Context(), "a"))(t, backend.ErrNotFound, "volume a", "far is out of reach", errAway.Error())
	fails(b.GetSnapshot(t.Context(), "s"))(t, backend.ErrNotFound, "snapshot s", "far is out of reach")
	fails(b.GetGroup(t.Context(), "g"))(t, backend.ErrNotFound, "group g", "far is out of reach")
	fails(b.Create(t.Context(), block("a")))(t, backend.ErrUnavailable, "far", errAway.Error()) // it is the default all the same
	b.tryAll(t.Context(), true)
	if entries, err := os.ReadDir(far.Path); err != nil || len(entries) > 0 {
		t.Errorf("in its place the directory holds %v, %v", entries, err)
	}
}

func TestUnreachablePool_HasItsVolumesWhenItReturns(t *testing.T) {
	far := named(t, "far")
	first := open(t, far)
	made(t, first, block("a"))
	check.OK(t, first.Close(t.Context()))
	g := &gate{}
	b := reachable(t, Site{far, g.reach})
	b.tryAll(t.Context(), true)
	if _, err := b.Get(t.Context(), "a"); !errors.Is(err, backend.ErrNotFound) {
		t.Errorf("out of reach, and it has %v", err)
	}
	g.open.Store(true)
	b.tryAll(t.Context(), true)
	check.Got(b.Get(t.Context(), "a"))(t)
	check.Got(b.Capacity(t.Context(), ""))(t)
	fails(Open(t.Context(), []PoolConfig{far}, silent))(t, backend.ErrUnavailable, "another process")
}

func TestUnreachablePool_IncludesOneWithAnInvalidConfiguration(t *testing.T) {
	wrong := func(change func(*PoolConfig)) PoolConfig {
		c := named(t, "bad")
		change(&c)
		return c
	}
	near := named(t, "near")
	for what, c := range map[string]PoolConfig{
		"share":     wrong(func(c *PoolConfig) { c.Reserved = "150%" }),
		"engine":    wrong(func(c *PoolConfig) { c.Engine = "tape" }),
		"existing":  wrong(func(c *PoolConfig) { c.Path = filepath.Join(c.Path, "nowhere") }),
		"pool near": wrong(func(c *PoolConfig) { c.Path = near.Path }),
	} {
		t.Run(what, func(t *testing.T) {
			b := reachable(t, Site{near, nil}, Site{c, nil})
			made(t, b, block("volume for "+what))
			_, err := b.Capacity(t.Context(), "bad")
			says(t, err, backend.ErrUnavailable, what)
			if code := backend.CodeOf(err); code != backend.CodeUnavailable {
				t.Errorf("its code is %s, as if the request were wrong", code)
			}
		})
	}
}

func TestPools_HostMayHaveNone(t *testing.T) {
	b := reachable(t)
	if all, err := b.List(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("listed %v, %v", all, err)
	}
	fails(b.Create(t.Context(), block("a")))(t, backend.ErrInvalid, "no pool")
	fails(b.Capacity(t.Context(), ""))(t, backend.ErrNotFound, "no pool")
	check.Report(t, b.Delete(t.Context(), "a"))
}

func TestUnreachablePool_IncompleteGroupIsSweptWhenItReturns(t *testing.T) {
	far, near := named(t, "far"), named(t, "near")
	b := check.Got(Open(t.Context(), []PoolConfig{far, near}, silent))(t)
	v, other := made(t, b, block("a")), block("b")
	other.Pool = "near"
	g := check.Got(b.SnapshotGroup(t.Context(), backend.GroupSpec{Name: "g", Sources: []backend.ID{v.ID, made(t, b, other).ID}}))(t)
	check.OK(t, b.Close(t.Context()))
	// As if the group's record had never been written.
	check.OK(t, os.RemoveAll(filepath.Join(far.Path, string(groups), string(g.ID))))
	way := &gate{}
	b = reachable(t, Site{near, nil}, Site{far, way.reach})
	way.open.Store(true)
	b.tryAll(t.Context(), true)
	for _, p := range []PoolConfig{far, near} {
		if left, err := os.ReadDir(filepath.Join(p.Path, string(snapshots))); err != nil || len(left) > 0 {
			t.Errorf("left of the group in pool %s: %v, %v", p.Name, left, err)
		}
	}
	check.Got(b.Get(t.Context(), v.ID))(t)
}

func TestPool_WhoseDiskIsGoneIsNotUsable(t *testing.T) {
	b := served(t, emptyPool(t))
	p := b.pools()[0]
	check.OK(t, p.usable())
	b.slots[0].trying <- struct{}{} // so that no attempt to open the pool runs
	defer func() { <-b.slots[0].trying }()
	p.device = "8:1048575"
	says(t, p.usable(), backend.ErrUnavailable, "gone", p.Path)
}

func TestClose_DoesNotWaitForADiskThatHangs(t *testing.T) {
	never := make(chan struct{})
	started := make(chan struct{})
	b := newBackend(silent)
	hangs := func(context.Context, backend.PoolExpectation) error { close(started); <-never; return errAway }
	b.slots = []*slot{newSlot(Site{named(t, "far"), hangs}, nil, nil)}
	b.begin(t.Context(), nil)
	<-started
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	says(t, b.Close(ctx), backend.ErrUnavailable, "does not answer")
	close(never)
	b.keepers.Wait()
}

func TestOpened_WaitsForTheFirstAttemptAndNotForABrokenDisk(t *testing.T) {
	opening := func(sites ...Site) (b *Backend, end func()) {
		entered, release := make(chan struct{}), make(chan struct{})
		sites = append(sites, Site{named(t, "hanging"), func(context.Context, backend.PoolExpectation) error {
			select {
			case <-release:
			default:
				close(entered)
				<-release
			}
			return errAway
		}})
		ended, stop := context.WithCancel(t.Context())
		stop() // the start does not wait
		b = OpenReachable(ended, sites, silent)
		<-entered
		return b, func() {
			close(release)
			check.Report(t, b.Close(context.Background()))
		}
	}
	b, end := opening()
	if err := b.Opened(t.Context()); err == nil || !strings.Contains(err.Error(), "pool hanging is out of reach: it is being opened") {
		t.Errorf("while the only pool is being opened: %v", err)
	}
	end()
	b, end = opening(Site{named(t, "near"), nil})
	check.Report(t, b.Opened(t.Context())) // while one of two pools is being opened
	end()
	for name, sites := range map[string][]Site{"no pool": nil, "a missing disk": {{named(t, "far"), (&gate{}).reach}}} {
		if err := reachable(t, sites...).Opened(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
