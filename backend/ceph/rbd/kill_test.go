//go:build ceph

package rbd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ceph/go-ceph/rados"
	"github.com/ceph/go-ceph/rbd"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/ceph"
	"github.com/holdfast-storage/holdfast/crashpoint"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/crash"
)

// crashing makes the test below play the process that is killed: it is what that process is to do. The pool is in another
// variable, which has the key, too.
const (
	crashing     = "HOLDFAST_TEST_CRASHING"
	crashingPool = "HOLDFAST_TEST_POOL"
)

// operation is a call and the steps it passes.
type operation struct {
	name    string
	steps   []crashpoint.Step
	config  Config
	prepare func(context.Context, *Backend) error
	call    func(context.Context, *Backend) error
	leaves  []string // of what prepare and call make: images, and what is in the trash with a + before it
}

const size = 16 * mib

func created(ctx context.Context, b *Backend, names ...string) error {
	for _, name := range names {
		if _, err := b.Create(ctx, backend.VolumeSpec{Name: name, Mode: backend.Block, Size: backend.Size{Required: size}}); err != nil {
			return err
		}
	}
	return nil
}

func snapped(ctx context.Context, b *Backend) error {
	if err := created(ctx, b, "a"); err != nil {
		return err
	}
	_, err := b.Snapshot(ctx, backend.SnapshotSpec{Name: "s", Source: "a"})
	return err
}

var built = []crashpoint.Step{crashpoint.ImagePromised, crashpoint.ImageFilled, crashpoint.ImageReady}

var operations = []operation{{
	name: "create", steps: built,
	prepare: func(context.Context, *Backend) error { return nil },
	call:    func(ctx context.Context, b *Backend) error { return created(ctx, b, "a") },
	leaves:  []string{"volume.a"},
}, {
	name: "create with a file system", steps: built,
	prepare: func(context.Context, *Backend) error { return nil },
	call: func(ctx context.Context, b *Backend) error {
		_, err := b.Create(ctx, backend.VolumeSpec{Name: "a", Size: backend.Size{Required: size}})
		return err
	},
	leaves: []string{"volume.a"},
}, {
	name: "snapshot", steps: append([]crashpoint.Step{crashpoint.ImageSnapped, crashpoint.ImageCloned}, built...),
	prepare: func(ctx context.Context, b *Backend) error { return created(ctx, b, "a") },
	call:    snapped,
	leaves:  []string{"snapshot.s", "volume.a"},
}, {
	name: "restore", steps: built,
	prepare: snapped,
	call: func(ctx context.Context, b *Backend) error {
		_, err := b.Restore(ctx, "s", backend.VolumeSpec{Name: "r", Size: backend.Size{Required: 2 * size}})
		return err
	},
	leaves: []string{"snapshot.s", "volume.a", "volume.r"},
}, {
	name: "clone", steps: append([]crashpoint.Step{crashpoint.ImageSnapped, crashpoint.ImageCloned}, built...),
	prepare: func(ctx context.Context, b *Backend) error { return created(ctx, b, "a") },
	call: func(ctx context.Context, b *Backend) error {
		_, err := b.Clone(ctx, "a", backend.VolumeSpec{Name: "c"})
		return err
	},
	leaves: []string{"volume.a", "volume.c"},
}, {
	name: "expand", steps: []crashpoint.Step{crashpoint.ImageGrown, crashpoint.ImageRecorded},
	prepare: func(ctx context.Context, b *Backend) error { return created(ctx, b, "a") },
	call: func(ctx context.Context, b *Backend) error {
		_, err := b.Expand(ctx, "a", backend.Size{Required: 2 * size})
		return err
	},
	leaves: []string{"volume.a"},
}, {
	name: "delete", steps: []crashpoint.Step{crashpoint.ImageTrashed, crashpoint.ImageGiven, crashpoint.ImageRemoved},
	config:  Config{TrashRetention: backend.NoTrash},
	prepare: func(ctx context.Context, b *Backend) error { return created(ctx, b, "a") },
	call:    func(ctx context.Context, b *Backend) error { return b.Delete(ctx, "a") },
}, {
	name: "delete into the trash", steps: []crashpoint.Step{crashpoint.ImageTrashed},
	prepare: func(ctx context.Context, b *Backend) error { return created(ctx, b, "a") },
	call:    func(ctx context.Context, b *Backend) error { return b.Delete(ctx, "a") },
	leaves:  []string{"+volume.a"},
}, {
	name: "delete snapshot", steps: []crashpoint.Step{crashpoint.ImageTrashed, crashpoint.ImageGiven, crashpoint.ImageRemoved},
	prepare: snapped,
	call:    func(ctx context.Context, b *Backend) error { return b.DeleteSnapshot(ctx, "s") },
	leaves:  []string{"volume.a"},
}, {
	name: "undelete", steps: []crashpoint.Step{crashpoint.ImageRevived},
	prepare: func(ctx context.Context, b *Backend) error {
		return errors.Join(created(ctx, b, "a"), b.Delete(ctx, "a"))
	},
	call: func(ctx context.Context, b *Backend) error {
		if _, err := b.Undelete(ctx, "a"); err != nil && !errors.Is(err, backend.ErrExists) {
			return err
		}
		return nil
	},
	leaves: []string{"volume.a"},
}}

// TestKill_AtAnyStepConverges kills a process at every named step, on a real Ceph, and sees that the same call of the next
// process succeeds and that nothing but what it makes is left: no image, snapshot, entry of the trash or of the ledger.
func TestKill_AtAnyStepConverges(t *testing.T) {
	if name := os.Getenv(crashing); name != "" {
		beKilled(t, name)
		return
	}
	pool := newPool(t, 0)
	var spaces []string
	passed := map[crashpoint.Step]bool{}
	for _, o := range operations {
		for _, step := range o.steps {
			passed[step] = true
			t.Run(o.name+" at "+string(step), func(t *testing.T) {
				at := pool
				at.Namespace = namespace(t, pool, fmt.Sprintf("n%d", len(spaces)))
				spaces = append(spaces, at.Namespace)
				killAt(t, at, o, step)
			})
		}
	}
	for _, step := range crashpoint.ImageSteps {
		if !passed[step] {
			t.Errorf("no operation is killed at step %s", step)
		}
	}
}

// shownPool is what the killed process is given. The key must be written as it is.
type shownPool struct {
	Config ceph.Config
	Secret string
}

func killAt(t *testing.T, at ceph.Config, o operation, step crashpoint.Step) {
	kill(t, at, o, step)
	b, end := open(t, at, o.config)
	for range 2 {
		if err := o.call(t.Context(), b); err != nil {
			t.Fatalf("the same call after the restart: %v", err)
		}
	}
	for _, v := range check.Got(b.List(t.Context()))(t) {
		if v.Mode == backend.Filesystem {
			hasFileSystem(t, at, v)
		}
	}
	end()
	checkLeft(t, at, o)
}

// kill kills a process that has the pool.
func kill(t *testing.T, at ceph.Config, o operation, step crashpoint.Step) {
	t.Helper()
	b, end := open(t, at, o.config)
	check.OK(t, o.prepare(t.Context(), b))
	end()
	given, err := json.Marshal(shownPool{at, string(at.Key)})
	check.OK(t, err)
	crash.At(t, crash.Self, "TestKill_AtAnyStepConverges", step, crashing+"="+o.name, crashingPool+"="+string(given))
}

func beKilled(t *testing.T, name string) {
	var given shownPool
	check.OK(t, json.Unmarshal([]byte(os.Getenv(crashingPool)), &given))
	given.Config.Key = ceph.Key(given.Secret)
	o := operations[slices.IndexFunc(operations, func(o operation) bool { return o.name == name })]
	b, _ := open(t, given.Config, o.config)
	check.OK(t, o.call(t.Context(), b))
}

// checkLeft compares all that is in the pool with what should be.
func checkLeft(t *testing.T, at ceph.Config, o operation) {
	t.Helper()
	hands(t, at, func(ioctx *rados.IOContext) {
		names := check.Got(rbd.GetImageNames(ioctx))(t)
		var left []string
		var promised []string
		for _, name := range names {
			image := check.Got(rbd.OpenImageReadOnly(ioctx, name, rbd.NoSnapshot))(t)
			snaps := check.Got(image.GetSnapshotNames())(t)
			for _, s := range snaps {
				// What copies need of a source is kept by Ceph under names of its own.
				kind := check.Got(image.GetSnapNamespaceType(s.Id))(t)
				if want := strings.HasPrefix(name, "snapshot.") && s.Name == contentSnapshot; kind == rbd.SnapNamespaceTypeUser && !want {
					t.Errorf("image %s has the snapshot %s", name, s.Name)
				}
			}
			image.Close()
			promised = append(promised, name)
			left = append(left, name)
		}
		trash := check.Got(rbd.GetTrashList(ioctx))(t)
		entries := check.Got((&ledger{ioctx: ioctx}).all())(t)
		for _, d := range trash {
			promised = append(promised, trashKey(d.Id))
			if entries[trashKey(d.Id)].State != aborted {
				left = append(left, "+"+d.Name)
			}
		}
		slices.Sort(left)
		slices.Sort(promised)
		if !slices.Equal(left, o.leaves) {
			t.Errorf("the pool holds %v, want %v", left, o.leaves)
		}
		checkLedger(t, ioctx, promised)
	})
}

func checkLedger(t *testing.T, ioctx *rados.IOContext, want []string) {
	t.Helper()
	l := &ledger{ioctx: ioctx}
	entries, err := l.all()
	check.OK(t, err)
	var keys []string
	var total int64
	for key, p := range entries {
		keys = append(keys, key)
		total += p.Charge
		if p.State == building || p.State == removing {
			t.Errorf("the ledger has %s as %s", key, p.State)
		}
	}
	slices.Sort(keys)
	sum, err := l.promised()
	if err != nil || sum != total || !slices.Equal(keys, want) {
		t.Errorf("the ledger promises %d, %v, of which are counted %d, to %v, want %v", sum, err, total, keys, want)
	}
	objects := map[string]bool{}
	check.OK(t, ioctx.ListObjects(func(name string) { objects[name] = true }))
	for name := range objects {
		if id, found := strings.CutPrefix(name, "rbd_id."); found && !slices.Contains(want, id) {
			t.Errorf("object %s is left of an image", name)
		}
	}
	headers := 0
	for name := range objects {
		if strings.HasPrefix(name, "rbd_header.") {
			headers++
		}
	}
	if headers != len(want) {
		t.Errorf("%d images have headers, want %d: %s", headers, len(want), fmt.Sprint(want))
	}
}

// An image that was being made is in the trash for an hour, and is charged for none of it.
func TestAborted_ImageIsRemovedAnHourLater(t *testing.T) {
	at := newPool(t, 0)
	kill(t, at, operations[0], crashpoint.ImageFilled)
	b, end := open(t, at, Config{})
	defer end()
	if all, err := b.List(t.Context()); err != nil || len(all) != 0 {
		t.Fatalf("there are %+v, %v", all, err)
	}
	if trash, err := b.Trash(t.Context()); err != nil || len(trash) != 0 {
		t.Errorf("it can be restored: %+v, %v", trash, err)
	}
	if is, err := b.Capacity(t.Context(), ""); err != nil || is.Promised != 0 {
		t.Errorf("promised are %d, %v", is.Promised, err)
	}
	for _, test := range []struct {
		after time.Duration
		left  bool
	}{{0, true}, {abortedFor / 2, true}, {2 * abortedFor, false}} {
		check.Report(t, b.emptyTrash(ceph.Background(t.Context()), time.Now().Add(test.after)))
		if listed, err := small.Command(t.Context(), "rbd", "trash", "ls", "--all", at.Pool); err != nil || strings.Contains(listed, "volume.a") != test.left {
			t.Errorf("after %s the trash of Ceph has %q, %v", test.after, listed, err)
		}
	}
}
