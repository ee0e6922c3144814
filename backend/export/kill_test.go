package export

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/local"
	"github.com/holdfast-storage/holdfast/crashpoint"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/crash"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

// These variables make the test below act as the process that is killed: they name the pool, the server's directories,
// and the operation.
const (
	killedPool      = "HOLDFAST_TEST_EXPORT_POOL"
	killedWork      = "HOLDFAST_TEST_EXPORT_WORK"
	killedOperation = "HOLDFAST_TEST_EXPORT_OPERATION"
)

// operation is what a server is killed in, and repeats after its restart.
type operation struct {
	name    string
	steps   []crashpoint.Step
	prepare func(*server)
	call    func(*server) error
	check   func(*server) // and deletes all volumes
	trash   bool          // deleted volumes are kept
}

var build = []crashpoint.Step{
	crashpoint.BuildBegun, crashpoint.BuildFilled, crashpoint.BuildCommitted,
	crashpoint.ExportMounted, crashpoint.ExportCopied, crashpoint.ExportRecorded, crashpoint.ExportPut,
}

var copying = []crashpoint.Step{crashpoint.CopyFrozen, crashpoint.CopyDone}

func stored(s *server) { s.write(s.create("a"), []byte("one")) }

// holds checks that volumes are served, with the content of "a" and its copies, and deletes them.
func holds(ids ...backend.ID) func(*server) {
	return func(s *server) {
		s.Helper()
		s.served(ids...)
		for _, id := range ids {
			if got := s.read(s.get(id)); string(got) != "one" {
				s.Errorf("%s holds %q", id, got)
			}
			s.remove(id)
		}
	}
}

var operations = []operation{{
	name: "create", steps: build,
	prepare: func(*server) {},
	call:    func(s *server) error { _, err := s.Create(s.Context(), s.spec("a")); return err },
	check:   func(s *server) { s.write(s.get("a"), []byte("one")); holds("a")(s) },
}, {
	name: "clone", steps: slices.Concat(copying, []crashpoint.Step{
		crashpoint.BuildCommitted, crashpoint.ExportRenewed, crashpoint.ExportMounted, crashpoint.ExportCopied,
	}),
	prepare: stored,
	call:    func(s *server) error { _, err := s.Clone(s.Context(), "a", backend.VolumeSpec{Name: "b"}); return err },
	check:   holds("a", "b"),
}, {
	name: "snapshot", steps: copying,
	prepare: stored,
	call: func(s *server) error {
		_, err := s.Snapshot(s.Context(), backend.SnapshotSpec{Name: "s", Source: "a"})
		return err
	},
	check: func(s *server) {
		s.write(s.get("a"), []byte("one")) // does not block
		check.OK(s.T, check.ErrorOf(s.Restore(s.Context(), "s", backend.VolumeSpec{Name: "b"})))
		holds("a", "b")(s)
		check.OK(s.T, s.DeleteSnapshot(s.Context(), "s"))
	},
}, {
	name: "expand", steps: []crashpoint.Step{crashpoint.ExpandGrown, crashpoint.ExpandRecorded, crashpoint.ExportGrown},
	prepare: stored,
	call: func(s *server) error {
		_, err := s.Expand(s.Context(), "a", backend.Size{Required: 2 * size})
		return err
	},
	check: func(s *server) {
		if got := sizeOf(s.T, s.target("a")); got < 2*size*8/10 {
			s.Errorf("its file system has %d bytes", got)
		}
		holds("a")(s)
	},
}, {
	name: "start", steps: []crashpoint.Step{crashpoint.ExportMounted, crashpoint.ExportRecorded, crashpoint.ExportPut},
	prepare: stored,
	call:    func(*server) error { return nil },
	check:   holds("a"),
}, {
	name: "delete", steps: []crashpoint.Step{
		crashpoint.ExportRemoved, crashpoint.ExportUnmounted, crashpoint.DeleteTrashed, crashpoint.DeletePartly,
		crashpoint.ExportEmptied, crashpoint.ExportCopied,
	},
	prepare: stored,
	call:    func(s *server) error { return s.Delete(s.Context(), "a") },
	check:   func(s *server) { s.served() },
}, {
	name: "undelete", trash: true,
	steps:   []crashpoint.Step{crashpoint.UndeleteRenamed, crashpoint.ExportRevived, crashpoint.ExportMounted, crashpoint.ExportPut},
	prepare: func(s *server) { stored(s); s.remove("a") },
	call: func(s *server) error {
		if _, err := s.Undelete(s.Context(), "a"); !errors.Is(err, backend.ErrExists) {
			return err
		}
		return nil // it is restored already
	},
	check: holds("a"),
}}

// kept is the trash retention of the operation's pool.
func (op operation) kept() time.Duration {
	if op.trash {
		return local.DefaultTrashRetention
	}
	return backend.NoTrash
}

func TestKill_CoversEveryStepOfAnExport(t *testing.T) {
	covered := map[crashpoint.Step]bool{}
	for _, op := range operations {
		for _, step := range op.steps {
			covered[step] = true
		}
	}
	for _, step := range crashpoint.ExportSteps {
		if !covered[step] {
			t.Errorf("no operation is killed at step %s", step)
		}
	}
}

func TestKill_AtAnyStepIsContinuedByTheNextServer(t *testing.T) {
	if os.Getenv(killedOperation) != "" {
		die(t)
		return
	}
	hostfs.RequireRoot(t)
	binary := crash.Binary(t)
	for i, op := range operations {
		for j, step := range op.steps {
			if (i+j)%3 != 0 && !hostfs.All() {
				continue
			}
			t.Run(fmt.Sprintf("%s killed at %s", op.name, step), func(t *testing.T) { kill(t, binary, op, step) })
		}
	}
}

// die acts as the process that is killed.
func die(t *testing.T) {
	s := &server{T: t, pool: local.PoolConfig{Name: "pool", Engine: "image", Path: os.Getenv(killedPool)}, work: os.Getenv(killedWork)}
	i := slices.IndexFunc(operations, func(op operation) bool { return op.name == os.Getenv(killedOperation) })
	s.pool.TrashRetention = operations[i].kept()
	s.makeDirs()
	s.begin()
	t.Fatalf("it lives, and was answered %v", operations[i].call(s))
}

func kill(t *testing.T, binary string, op operation, step crashpoint.Step) {
	s := onXFS(t)
	op.prepare(s)
	before := s.ledger.ids()
	s.end()
	s.pool.TrashRetention = op.kept()
	crash.At(t, binary, "TestKill_AtAnyStepIsContinuedByTheNextServer", step, killedPool+"="+s.pool.Path, killedWork+"="+s.work, killedOperation+"="+op.name)
	s.begin()
	for _, id := range before {
		if _, err := s.Get(t.Context(), id); err == nil && s.get(id).Condition.Abnormal {
			t.Errorf("after the restart %+v", s.get(id))
		}
	}
	for range 2 { // the response may have been lost again
		check.OK(t, op.call(s))
	}
	op.check(s)
	s.served()
	if got := s.ledger.ids(); len(got) > 0 {
		t.Errorf("identities are left: %v", got)
	}
	if got := s.loops(); len(got) > 0 {
		t.Errorf("devices are left: %v", got)
	}
	if all, err := s.List(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("volumes are left: %v, %v", all, err)
	}
}
