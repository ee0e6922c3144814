//go:build ceph

package rbd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ceph/go-ceph/rados"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/ceph"
	rig "github.com/holdfast-storage/holdfast/test/rig/ceph"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// TestOutages_LeakNothing makes and deletes volumes, copies, snapshots and groups while the OSD and the monitor are killed
// and started again, and compares all objects of the pool, and all entries of their omaps, with what was there before.
func TestOutages_LeakNothing(t *testing.T) {
	const lives, workers, between = 50, 5, 6
	at := newPool(t, 0)
	at.Patience = 3 * time.Second
	b, _ := open(t, at, Config{TrashRetention: backend.NoTrash})
	ctx, cancel := context.WithTimeout(t.Context(), rig.Patience)
	defer cancel()
	persist(ctx, t, func() error { return created(ctx, b, "a") })
	persist(ctx, t, func() error { return snapshotOf(ctx, b, "s", "a") })
	live(ctx, t, b, 0) // the first leaves what is never removed, such as the note in an image that it was copied
	emptied(ctx, t, b)
	before := contentOf(t, at)
	var (
		done atomic.Int64
		wait sync.WaitGroup
	)
	next := make(chan int)
	progress := make(chan struct{}, lives)
	for range workers {
		wait.Go(func() {
			for i := range next {
				live(ctx, t, b, i)
				done.Add(1)
				progress <- struct{}{}
			}
		})
	}
	killing := make(chan int)
	go func() {
		kills := 0
		defer func() { killing <- kills }()
		for range progress {
			if done.Load()%between == 0 {
				restart(t, []rig.Daemon{rig.OSD, rig.Monitor}[kills%2])
				kills++
			}
		}
	}()
	for i := range lives {
		next <- i + 1
	}
	close(next)
	wait.Wait()
	close(progress)
	t.Logf("daemons were killed %d times", <-killing)
	emptied(ctx, t, b)
	after := contentOf(t, at)
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if _, was := before[name]; !was {
			t.Errorf("object %s is left, with %v", name, after[name])
		} else if !slices.Equal(before[name], after[name]) {
			t.Errorf("object %s has %v, and had %v", name, after[name], before[name])
		}
	}
	for name := range before {
		if _, is := after[name]; !is {
			t.Errorf("object %s is gone", name)
		}
	}
}

// restart kills a daemon while it is used.
func restart(t *testing.T, d rig.Daemon) {
	small.Kill(d)
	check.Report(t, errors.Join(small.Start(d), small.AwaitHealthy(context.Background())))
}

// persist repeats a call as long as the cluster cannot be reached, as all callers do.
func persist(ctx context.Context, t *testing.T, f func() error) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		if !errors.Is(err, backend.ErrUnavailable) && !errors.Is(err, backend.ErrBusy) {
			t.Error(err)
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Error(err)
			return
		}
	}
}

// emptied removes at once what would be removed later: images that copies needed which are gone by now.
func emptied(ctx context.Context, t *testing.T, b *Backend) {
	t.Helper()
	persist(ctx, t, func() error {
		if err := b.emptyTrash(ceph.Background(ctx), time.Now()); err != nil {
			return err
		}
		_, err := call(ctx, b, "looking for what is left", func(s *session) (any, error) {
			entries, err := s.ledger.all()
			for key, p := range entries {
				if p.State == removing {
					err = errors.Join(err, fmt.Errorf("%w: %s is still there", backend.ErrBusy, key))
				}
			}
			return nil, err
		})
		return err
	})
}

func snapshotOf(ctx context.Context, b *Backend, name string, source backend.ID) error {
	_, err := b.Snapshot(ctx, backend.SnapshotSpec{Name: name, Source: source})
	return err
}

// live has a volume made, in one of all ways, copied and deleted.
func live(ctx context.Context, t *testing.T, b *Backend, i int) {
	name, snapshot := fmt.Sprintf("v%d", i), fmt.Sprintf("s%d", i)
	id := backend.ID(name)
	spec := backend.VolumeSpec{Name: name}
	for _, step := range []func() error{
		func() (err error) {
			switch i % 3 {
			case 0:
				_, err = b.Clone(ctx, "a", spec)
			case 1:
				_, err = b.Restore(ctx, "s", spec)
			default:
				err = created(ctx, b, name)
			}
			return err
		},
		func() error { return snapshotOf(ctx, b, snapshot, id) },
		func() error { return b.Delete(ctx, id) },
		func() error { return b.DeleteSnapshot(ctx, backend.ID(snapshot)) },
	} {
		persist(ctx, t, step)
	}
}

// contentOf lists the objects of a pool, each with the keys of its omap. Which names Ceph gives to the content of images is
// a part of it.
func contentOf(t *testing.T, at ceph.Config) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	hands(t, at, func(ioctx *rados.IOContext) {
		var names []string
		check.OK(t, ioctx.ListObjects(func(name string) { names = append(names, name) }))
		for _, name := range names {
			const page = 1000
			values, err := ioctx.GetAllOmapValues(name, "", "", page)
			if absent(err) {
				continue // what snapshots had of it is being removed
			}
			check.OK(t, err)
			all[name] = slices.Sorted(maps.Keys(values))
		}
	})
	return all
}
