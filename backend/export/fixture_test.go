package export

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/local"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/nodeops/ganesha"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

const (
	mib  = int64(1) << 20
	size = 300 * mib // valid for xfs
)

// recorder is an exporter that records its exports in files, so that they outlive the process, as those of a running
// server do. It reports what a real server would not accept.
type recorder struct {
	dir string

	mu     sync.Mutex
	refuse func(id uint16) error
	hangs  map[string]chan struct{} // blocks calls until it is closed
	calls  []string
}

func (r *recorder) Put(_ context.Context, e ganesha.Export) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, "put "+e.Pseudo)
	if hangs := r.hangs[e.Pseudo]; hangs != nil {
		r.mu.Unlock()
		<-hangs
		r.mu.Lock()
	}
	if r.refuse != nil {
		if err := r.refuse(e.ID); err != nil {
			return err
		}
	}
	m, unknown := nodeops.MountAt(e.Path)
	data, err := json.Marshal(e)
	if err := errors.Join(e.Check(), unknown, err); err != nil {
		return err
	}
	if m == nil {
		return fmt.Errorf("nothing is mounted at %s", e.Path)
	}
	return os.WriteFile(filepath.Join(r.dir, fmt.Sprint(e.ID)), data, 0o600)
}

func (r *recorder) Remove(_ context.Context, id uint16) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, fmt.Sprint("remove ", id))
	if r.refuse != nil {
		if err := r.refuse(id); err != nil {
			return err
		}
	}
	if err := os.Remove(filepath.Join(r.dir, fmt.Sprint(id))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// exports returns the exports, by the path that clients mount.
func (r *recorder) exports(t *testing.T) map[string]ganesha.Export {
	t.Helper()
	all := map[string]ganesha.Export{}
	for _, entry := range check.Got(os.ReadDir(r.dir))(t) {
		data, err := os.ReadFile(filepath.Join(r.dir, entry.Name()))
		if errors.Is(err, fs.ErrNotExist) { // it has ended since
			continue
		}
		check.OK(t, err)
		var e ganesha.Export
		check.OK(t, json.Unmarshal(data, &e))
		if other, twice := all[e.Pseudo]; twice {
			t.Errorf("%s is exported as %d and %d", e.Pseudo, other.ID, e.ID)
		}
		all[e.Pseudo] = e
	}
	return all
}

func (r *recorder) refuses(f func(uint16) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuse = f
}

func (r *recorder) called() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// server is a host with a pool, on which export backends are opened and closed.
type server struct {
	*testing.T
	pool   local.PoolConfig
	work   string
	record *recorder
	change func(*Config)
	local  *local.Backend
	*Backend
}

// newServer starts on a new file system; everything is removed when the test ends.
func newServer(t *testing.T, engine string, k hostfs.Kind, size int64) *server {
	t.Helper()
	pool := filepath.Join(hostfs.New(t, k, size), "pool")
	check.OK(t, os.Mkdir(pool, 0o755))
	s := &server{T: t, pool: local.PoolConfig{Name: "pool", Engine: engine, Path: pool}, work: t.TempDir()}
	s.makeDirs()
	s.begin()
	t.Cleanup(s.end)
	return s
}

func (s *server) makeDirs() {
	s.record = &recorder{dir: filepath.Join(s.work, "exporter")}
	for _, dir := range []string{s.record.dir, s.stateDir()} {
		check.OK(s.T, os.MkdirAll(dir, 0o700))
	}
}

func (s *server) stateDir() string { return filepath.Join(s.work, "state") }

// config is for a pool that is open.
func (s *server) config(pool *local.Backend) Config {
	c := Config{
		Storage: pool, ExportsDir: filepath.Join(s.work, "exports"), StateDir: s.stateDir(), Exporter: s.record,
		RetryEvery: 20 * time.Millisecond, Log: slog.New(slog.DiscardHandler),
	}
	if s.change != nil {
		s.change(&c)
	}
	return c
}

func (s *server) begin() {
	s.Helper()
	check.OK(s.T, s.tryBegin())
}

func (s *server) openLocal() (*local.Backend, error) {
	return local.Open(context.Background(), []local.PoolConfig{s.pool}, slog.New(slog.DiscardHandler))
}

func (s *server) tryBegin() (err error) {
	if s.local, err = s.openLocal(); err != nil {
		return err
	}
	if s.Backend, err = Open(context.Background(), s.config(s.local)); err != nil {
		return errors.Join(err, s.local.Close(context.Background()))
	}
	return nil
}

// end stops the server, if it runs.
func (s *server) end() {
	s.Helper()
	if s.Backend == nil {
		return
	}
	check.Report(s.T, errors.Join(s.Close(context.Background()), s.local.Close(context.Background())))
	s.Backend = nil
	for _, m := range s.mounts() {
		s.Errorf("%s is still mounted", m)
	}
}

func (s *server) restart() {
	s.Helper()
	s.end()
	s.begin()
}

func (s *server) restartWith(change func(*Config)) {
	s.Helper()
	s.end()
	s.change = change
	s.begin()
}

// whileDown restarts the server, and does something to its pool before it starts.
func (s *server) whileDown(do func(*local.Backend) error) {
	s.Helper()
	s.end()
	pool := check.Got(s.openLocal())(s.T)
	check.OK(s.T, errors.Join(do(pool), pool.Close(s.Context())))
	s.begin()
}

// startFails fails unless the server does not start, for that reason.
func (s *server) startFails(kind error, words ...string) {
	s.Helper()
	err := s.tryBegin()
	s.Backend = nil
	check.Fails(s.T, err, kind, words...)
}

// mounts returns what is mounted for exports.
func (s *server) mounts() (targets []string) {
	s.Helper()
	for _, m := range check.Got(nodeops.Mounts())(s.T) {
		if name, ok := strings.CutPrefix(m.Target, filepath.Join(s.work, "exports")+"/"); ok {
			targets = append(targets, name)
		}
	}
	return targets
}

// loops returns the devices that are attached to images of the pool.
func (s *server) loops() (devices []string) {
	s.Helper()
	for _, image := range check.Got(filepath.Glob(filepath.Join(s.pool.Path, "*", "*", "image")))(s.T) {
		devices = append(devices, check.Got(nodeops.LoopsOf(image))(s.T)...)
	}
	return devices
}

func (s *server) spec(name string) backend.VolumeSpec {
	spec := backend.VolumeSpec{Name: name, Size: backend.Size{Required: size}}
	if s.pool.Engine == "image" {
		spec.FSType = "xfs"
	}
	return spec
}

func (s *server) create(name string, change ...func(*backend.VolumeSpec)) *backend.Volume {
	s.Helper()
	spec := s.spec(name)
	for _, f := range change {
		f(&spec)
	}
	return check.Got(s.Create(s.Context(), spec))(s.T)
}

func (s *server) remove(id backend.ID) {
	s.Helper()
	check.OK(s.T, s.Delete(s.Context(), id))
}

func (s *server) get(id backend.ID) *backend.Volume {
	s.Helper()
	return check.Got(s.Get(s.Context(), id))(s.T)
}

// served fails unless exactly these volumes are mounted, exported and healthy.
func (s *server) served(ids ...backend.ID) {
	s.Helper()
	exports := s.record.exports(s.T)
	mounts := s.mounts()
	if len(exports) != len(ids) || len(mounts) != len(ids) {
		s.Errorf("exported are %v, mounted %v, want %v", exports, mounts, ids)
	}
	for _, id := range ids {
		v := s.get(id)
		e, ok := exports["/"+string(id)]
		if v.Access.NFS == nil || v.Access.NFS.Path != "/"+string(id) || v.Condition.Abnormal || !ok || e.Path != s.target(id) {
			s.Errorf("volume %+v is exported as %+v", v, e)
		}
	}
}

// isNotServed fails unless a volume is abnormal, for that reason, and cannot be used.
func (s *server) isNotServed(id backend.ID, words ...string) {
	s.Helper()
	v := s.get(id)
	if !v.Condition.Abnormal || v.Access != (backend.Access{}) {
		s.Errorf("volume %+v is served", v)
	}
	for _, word := range words {
		if !strings.Contains(v.Condition.Message, word) {
			s.Errorf("%q is not in: %s", word, v.Condition.Message)
		}
	}
}

func (s *server) becomesHealthy(id backend.ID) {
	s.Helper()
	wait.Until(s.T, "volume "+string(id), func() bool { return !s.get(id).Condition.Abnormal })
}

// inside returns the path of a file of a volume at its mount point.
func (s *server) inside(v *backend.Volume, name string) string {
	s.Helper()
	if v.Access.NFS == nil {
		s.Fatalf("volume %s is not exported: %+v", v.ID, v.Condition)
	}
	return filepath.Join(s.record.exports(s.T)[v.Access.NFS.Path].Path, name)
}

func (s *server) write(v *backend.Volume, content []byte) {
	s.Helper()
	f := check.Got(os.OpenFile(s.inside(v, "file"), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600))(s.T)
	defer f.Close()
	check.OK(s.T, errors.Join(check.ErrorOf(f.Write(content)), f.Sync()))
}

func (s *server) read(v *backend.Volume) []byte {
	s.Helper()
	return check.Got(os.ReadFile(s.inside(v, "file")))(s.T)
}

// unmountByHand unmounts a volume once: what the backend mounts again in the same moment stays.
func (s *server) unmountByHand(id backend.ID) {
	s.Helper()
	wait.Until(s.T, "unmount", func() bool {
		err := unix.Unmount(s.target(id), 0)
		if err != nil && !errors.Is(err, unix.EBUSY) { // a check of the backend has it open
			s.Fatal(err)
		}
		return err == nil
	})
}

// calls waits until the exporter has had exactly these calls.
func (s *server) calls(want ...string) {
	s.Helper()
	wait.For(s.T, "calls of the exporter", func() error {
		if called := s.record.called(); !slices.Equal(called, want) {
			return fmt.Errorf("it was called with %q, not %q; mounted are %v", called, want, s.mounts())
		}
		return nil
	})
}
