//go:build ceph && crashpoints

package cephfs

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/ceph"
	"github.com/holdfast-storage/holdfast/crashpoint"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/crash"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// operation is what a process is killed in, and the next one repeats.
type operation struct {
	name    string
	steps   []crashpoint.Step
	prepare func(*world)
	call    func(*world) error
	check   func(*world) // leaves nothing but what is in the trash
	trash   time.Duration
}

const size = 16 * mib

var (
	build = []crashpoint.Step{crashpoint.BuildBegun, crashpoint.BuildFilled, crashpoint.BuildCommitted}
	copyS = []crashpoint.Step{crashpoint.CopyBegun, crashpoint.CopyDone}
	purge = []crashpoint.Step{crashpoint.DeleteTrashed, crashpoint.TrashTaken, crashpoint.DeletePartly}
)

// stored makes a volume "a" that holds "one".
func stored(w *world) { w.write(w.create("a", size), "file", []byte("one")) }

func snapshotted(w *world) {
	stored(w)
	check.OK(w, w.snapshot())
}

func (w *world) snapshot() error {
	_, err := w.backend.Snapshot(w.Context(), backend.SnapshotSpec{Name: "s", Source: "a"})
	return err
}

func (w *world) restore() error {
	_, err := w.backend.Restore(w.Context(), "s", backend.VolumeSpec{Name: "b"})
	return err
}

func (w *world) remove() error { return w.backend.Delete(w.Context(), "a") }

// holds checks what volumes hold, and deletes them and the snapshot.
func holds(ids ...backend.ID) func(*world) {
	return func(w *world) {
		w.Helper()
		for _, id := range ids {
			v, err := w.backend.Get(w.Context(), id)
			if err != nil || v.Condition.Abnormal {
				w.Fatalf("%s is %+v, %v", id, v, err)
			}
			if got := w.read(v, "file"); string(got) != "one" {
				w.Errorf("%s holds %q", id, got)
			}
			w.write(v, "file", []byte("two"))
			check.OK(w, w.backend.Delete(w.Context(), id))
		}
		check.OK(w, w.backend.DeleteSnapshot(w.Context(), "s"))
	}
}

func nothing(*world) {}

var operations = []operation{{
	name: "begin", steps: []crashpoint.Step{crashpoint.PoolBegun}, trash: backend.NoTrash,
	prepare: nothing, call: func(w *world) error { _, err := w.backend.List(w.Context()); return err }, check: nothing,
}, {
	name: "create", steps: build, trash: backend.NoTrash,
	prepare: nothing,
	call: func(w *world) error {
		_, err := w.backend.Create(w.Context(), backend.VolumeSpec{Name: "a", Size: backend.Size{Required: size}, Inodes: 9})
		return err
	},
	check: func(w *world) {
		v := check.Got(w.backend.Get(w.Context(), "a"))(w)
		w.write(v, "file", []byte("one"))
		holds("a")(w)
	},
}, {
	name: "snapshot", steps: build, trash: backend.NoTrash,
	prepare: stored, call: (*world).snapshot,
	check: func(w *world) {
		check.OK(w, w.restore())
		holds("a", "b")(w)
	},
}, {
	name: "restore", steps: slices.Concat(copyS, build), trash: backend.NoTrash,
	prepare: snapshotted, call: (*world).restore, check: holds("a", "b"),
}, {
	name: "clone", steps: slices.Concat([]crashpoint.Step{crashpoint.CopyFrozen}, copyS, build), trash: backend.NoTrash,
	prepare: stored,
	call: func(w *world) error {
		_, err := w.backend.Clone(w.Context(), "a", backend.VolumeSpec{Name: "b"})
		return err
	},
	check: holds("a", "b"),
}, {
	name: "expand", steps: []crashpoint.Step{crashpoint.ExpandGrown, crashpoint.ExpandRecorded}, trash: backend.NoTrash,
	prepare: stored,
	call: func(w *world) error {
		v, err := w.backend.Expand(w.Context(), "a", backend.Size{Required: 2 * size})
		if err == nil && v.Size != 2*size {
			err = fmt.Errorf("it has %d bytes", v.Size)
		}
		return err
	},
	check: holds("a"),
}, {
	name: "delete", steps: purge, trash: backend.NoTrash,
	prepare: stored, call: (*world).remove, check: nothing,
}, {
	name: "delete with snapshots", steps: purge, trash: backend.NoTrash,
	prepare: snapshotted, call: (*world).remove,
	check: func(w *world) {
		check.OK(w, w.restore())
		holds("b")(w)
	},
}, {
	name: "delete snapshot", steps: []crashpoint.Step{crashpoint.DeleteTrashed, crashpoint.DeletePartly}, trash: backend.NoTrash,
	prepare: snapshotted,
	call:    func(w *world) error { return w.backend.DeleteSnapshot(w.Context(), "s") },
	check:   holds("a"),
}, {
	name: "delete into the trash", steps: []crashpoint.Step{crashpoint.DeleteTrashed},
	prepare: stored, call: (*world).remove,
	check: func(w *world) {
		check.Got(w.backend.Undelete(w.Context(), "a"))(w)
		holds("a")(w)
	},
}, {
	name: "undelete", steps: []crashpoint.Step{crashpoint.UndeleteRenamed},
	prepare: func(w *world) {
		stored(w)
		check.OK(w, w.remove())
	},
	call: func(w *world) error {
		if _, err := w.backend.Undelete(w.Context(), "a"); !errors.Is(err, backend.ErrExists) {
			return err
		}
		return nil // it is back already
	},
	check: holds("a"),
}, {
	name: "expire", steps: []crashpoint.Step{crashpoint.TrashTaken, crashpoint.DeletePartly}, trash: time.Nanosecond,
	prepare: func(w *world) {
		w.config.TrashRetention = 0 // a day
		w.reopen()
		stored(w)
		check.OK(w, w.remove())
	},
	call:  func(w *world) error { _, err := w.backend.List(w.Context()); return err },
	check: nothing,
}}

// These are the pool of a process that is killed, and the key, which no configuration writes.
const (
	killedConfig = "HOLDFAST_TEST_CEPHFS_CONFIG"
	killedKey    = "HOLDFAST_TEST_CEPHFS_KEY"
)

func TestKill_AtAnyStepIsContinuedByTheNextProcess(t *testing.T) {
	if os.Getenv(killedOperation) != "" {
		die(t)
		return
	}
	cluster(t)
	passed := map[crashpoint.Step]bool{}
	for i, op := range operations {
		for j, step := range op.steps {
			passed[step] = true
			if (i+j)%3 != 0 && !hostfs.All() {
				continue
			}
			t.Run(fmt.Sprintf("%s killed at %s", op.name, step), func(t *testing.T) { kill(t, op, step) })
		}
	}
	for _, step := range crashpoint.CephFSSteps {
		if !passed[step] {
			t.Errorf("no operation is killed at step %s", step)
		}
	}
}

// die plays the process that is killed.
func die(t *testing.T) {
	w := &world{TB: t, log: &lines{}}
	check.OK(t, json.Unmarshal([]byte(os.Getenv(killedConfig)), &[]any{&w.in, &w.config}))
	w.in.Key = ceph.Key(os.Getenv(killedKey))
	w.open()
	i := slices.IndexFunc(operations, func(op operation) bool { return op.name == os.Getenv(killedOperation) })
	t.Fatalf("it lives, and was answered %v\n%s", operations[i].call(w), w.log)
}

// killed runs an operation in a process that dies at a step.
func (w *world) killed(op operation, step crashpoint.Step) {
	w.Helper()
	config, err := json.Marshal([]any{w.in, w.config})
	check.OK(w, err)
	crash.At(w, crash.Self, "TestKill_AtAnyStepIsContinuedByTheNextProcess", step, killedConfig+"="+string(config), killedKey+"="+string(w.in.Key), killedOperation+"="+op.name)
}

func kill(t *testing.T, op operation, step crashpoint.Step) {
	w := newWorld(t, 0)
	op.prepare(w)
	w.close()
	w.config.TrashRetention = op.trash
	w.killed(op, step)
	w.open()
	all := check.Got(w.backend.List(t.Context()))(t)
	for _, v := range all {
		if v.Condition.Abnormal {
			t.Errorf("after the restart %s is abnormal: %s", v.ID, v.Condition.Message)
		}
	}
	for range 2 { // the answer may have been lost once more
		check.OK(t, op.call(w))
	}
	op.check(w)
	if op.trash == 0 {
		w.config.TrashRetention = time.Nanosecond
		w.reopen()
	}
	w.empty()
}

// A copy goes on while no process serves the pool; who deletes its volume then finds it, and ends it.
func TestKill_ACopyThatIsNotWantedAnyMoreIsEnded(t *testing.T) {
	w := newWorld(t, 0)
	stored(w)
	w.config.TrashRetention = backend.NoTrash
	w.close()
	i := slices.IndexFunc(operations, func(op operation) bool { return op.name == "clone" })
	w.killed(operations[i], crashpoint.CopyBegun)
	w.open()
	for _, id := range []backend.ID{"b", "a"} {
		check.OK(t, w.backend.Delete(t.Context(), id))
	}
	w.empty()
}

// No caller repeats the request for the volume of a copy; it is completed all the same.
func TestKill_ACopyIsCompletedByTheNextProcess(t *testing.T) {
	w := newWorld(t, 0)
	stored(w)
	w.config.TrashRetention = backend.NoTrash
	w.close()
	i := slices.IndexFunc(operations, func(op operation) bool { return op.name == "clone" })
	w.killed(operations[i], crashpoint.CopyBegun)
	w.open()
	wait.For(w, "volume b being served", func() error { _, err := w.backend.Get(t.Context(), "b"); return err })
	holds("a", "b")(w)
	w.empty()
}
