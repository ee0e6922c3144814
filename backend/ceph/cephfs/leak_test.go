//go:build ceph

package cephfs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ceph/go-ceph/cephfs"

	"github.com/holdfast-storage/holdfast/backend"
	rig "github.com/holdfast-storage/holdfast/test/rig/ceph"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// TestOutages_LeakNothing makes and deletes volumes, copies and snapshots while the OSD and the monitor are killed and
// started again, and compares all directories, with the names of their attributes, and the number of objects of the data pool
// with what was there before.
func TestOutages_LeakNothing(t *testing.T) {
	const workers, between = 5, 5
	lives := 20 // which takes minutes on a machine that does something else, too
	if hostfs.All() {
		lives = 50
	}
	c := rig.Start(t, rig.Options{MDS: true})
	w := newWorldIn(t, c, 0)
	w.in.Patience, w.config.TrashRetention = 3*time.Second, backend.NoTrash
	w.reopen()
	ctx, cancel := context.WithTimeout(t.Context(), 2*rig.Patience)
	defer cancel()
	w.write(w.create("a", 16*mib), "file", []byte("one"))
	w.persist(ctx, func() error { return w.snapshotOf(ctx, "s", "a") })
	w.live(ctx, 0) // the first leaves what is never removed, such as Ceph's index of copies
	var before map[string]string
	wait.For(w, "an empty pool", func() error {
		before = w.content()
		for path := range before {
			if strings.HasPrefix(path, "/volumes/_deleting/") || before[objects] != "0" {
				return fmt.Errorf("there is %s, and %s objects are of no file", path, before[objects])
			}
		}
		return nil
	})
	var living sync.WaitGroup
	next, ended := make(chan int), make(chan struct{})
	for range workers {
		living.Go(func() {
			for i := range next {
				w.live(ctx, i)
				ended <- struct{}{}
			}
		})
	}
	go func() {
		for i := range lives {
			next <- i + 1
		}
		close(next)
		living.Wait()
		close(ended)
	}()
	kills, done := 0, 0
	for range ended {
		if done++; done%between == 0 {
			d := []rig.Daemon{rig.OSD, rig.Monitor}[kills%2]
			c.Kill(d)
			check.Report(t, errors.Join(c.Start(d), c.AwaitHealthy(ctx)))
			kills++
		}
	}
	t.Logf("daemons were killed %d times", kills)
	wait.For(w, "Ceph having removed what was deleted", func() error { return differences(before, w.content()) })
}

func differences(before, after map[string]string) error {
	var errs []error
	for _, path := range slices.Sorted(maps.Keys(after)) {
		if is, was := after[path], before[path]; is != was {
			errs = append(errs, fmt.Errorf("left is %s: %q, it was %q", path, is, was))
		}
	}
	for path := range before {
		if _, is := after[path]; !is {
			errs = append(errs, fmt.Errorf("%s is gone", path))
		}
	}
	return errors.Join(errs...)
}

// persist repeats a call as long as the cluster cannot be reached, as all callers do.
func (w *world) persist(ctx context.Context, f func() error) {
	w.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for last := ""; ; {
		err := f()
		if err == nil {
			return
		}
		if said, _, _ := strings.Cut(err.Error(), " has been running"); said != last {
			last = said
			w.Log(err)
		}
		if !errors.Is(err, backend.ErrUnavailable) && !errors.Is(err, backend.ErrBusy) {
			w.Error(err)
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			w.Error(err)
			return
		}
	}
}

func (w *world) snapshotOf(ctx context.Context, name string, source backend.ID) error {
	_, err := w.backend.Snapshot(ctx, backend.SnapshotSpec{Name: name, Source: source})
	return err
}

// live has a volume made, in one of all ways, and deletes it after its snapshot, or before.
func (w *world) live(ctx context.Context, i int) {
	name, snapshot := fmt.Sprintf("v%d", i), fmt.Sprintf("s%d", i)
	id := backend.ID(name)
	w.persist(ctx, func() (err error) {
		switch i % 3 {
		case 0:
			_, err = w.backend.Clone(ctx, "a", backend.VolumeSpec{Name: name})
		case 1:
			_, err = w.backend.Restore(ctx, "s", backend.VolumeSpec{Name: name})
		default:
			_, err = w.backend.Create(ctx, backend.VolumeSpec{Name: name, Size: backend.Size{Required: 16 * mib}})
		}
		return err
	})
	w.persist(ctx, func() error { return w.snapshotOf(ctx, snapshot, id) })
	remove := []func() error{
		func() error { return w.backend.Delete(ctx, id) },
		func() error { return w.backend.DeleteSnapshot(ctx, backend.ID(snapshot)) },
	}
	if i%2 == 0 {
		slices.Reverse(remove)
	}
	for _, f := range remove {
		w.persist(ctx, f)
	}
}

const (
	file    = "a file"
	objects = "objects of no file"
)

// content is all that is in the file system: directories, with the names of their attributes, files, and how many objects.
func (w *world) content() map[string]string {
	w.Helper()
	all := map[string]string{}
	m := w.fs()
	check.OK(w, walk(m, "/volumes", all))
	names := check.Got(w.cluster.Command(w.Context(), "rados", "--pool", rig.FileSystem+".data", "ls", "--all"))(w)
	// Each file has one object here. Ceph rewrites files of its own under other numbers, so that names say nothing.
	all[objects] = fmt.Sprint(len(slices.Collect(strings.Lines(names))) - len(slices.DeleteFunc(slices.Collect(maps.Values(all)), func(is string) bool { return is != file })))
	return all
}

func walk(m *cephfs.MountInfo, path string, all map[string]string) error {
	attributes, err := m.LlistXattr(path)
	if err != nil {
		return err
	}
	slices.Sort(attributes)
	all[path] = strings.Join(attributes, " ")
	dir, err := m.OpenDir(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	for {
		e, err := dir.ReadDir()
		if err != nil || e == nil {
			return err
		}
		switch name := e.Name(); {
		case name == "." || name == "..":
		case e.DType() == cephfs.DTypeDir:
			if err := walk(m, path+"/"+name, all); err != nil {
				return err
			}
		default:
			all[path+"/"+name] = file
		}
	}
}
