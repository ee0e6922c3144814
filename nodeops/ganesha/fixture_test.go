package ganesha

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// patient is the timeout of what normally takes a moment.
const patient = 2 * time.Minute

func requireGanesha(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs NFS-Ganesha, which takes seconds to start; run without -short")
	}
	hostfs.RequireRoot(t)
	for _, name := range []string{"ganesha.nfsd", "dbus-daemon"} {
		if _, err := exec.LookPath(name); err != nil {
			hostfs.Skip(t, "ganesha", name+" is not installed; the Debian packages nfs-ganesha, nfs-ganesha-vfs and dbus-daemon bring it")
		}
	}
}

// running is a server that stops when the test ends.
type running struct {
	*Server
	t        *testing.T
	stopWith func(func(error)) // waits for the end of Run and checks its error
}

// stop stops a server, which must return no error.
func (r *running) stop() {
	r.stopWith(func(err error) { check.Report(r.t, err) })
}

// run starts a server with these exports.
func run(t *testing.T, exports ...Export) *running {
	t.Helper()
	return runWith(t, testConfig(t), exports...)
}

func runWith(t *testing.T, c Config, exports ...Export) *running {
	t.Helper()
	r := prepare(t, c, exports...)
	r.start()
	return r
}

// prepare returns a server that is not started.
func prepare(t *testing.T, c Config, exports ...Export) *running {
	t.Helper()
	s := check.Got(New(c))(t)
	for _, e := range exports {
		check.OK(t, s.Put(t.Context(), e))
	}
	return &running{Server: s, t: t}
}

func (r *running) start() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	var once sync.Once
	r.stopWith = func(judge func(error)) {
		once.Do(func() {
			cancel()
			judge(<-ended)
		})
	}
	r.t.Cleanup(r.stop)
	for !r.hasBegun() {
		runtime.Gosched()
	}
}

func (r *running) hasBegun() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.begun
}

func testConfig(t *testing.T) Config {
	t.Helper()
	requireGanesha(t)
	dir, err := os.MkdirTemp("", "holdfast-nfs-") // socket paths are limited to 107 bytes
	check.OK(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return Config{
		RunDir: filepath.Join(dir, "run"), RecoveryDir: filepath.Join(dir, "recovery"), Name: "nfs.test", Port: hostfs.FreePort(t),
		Grace: 10 * time.Second, Lease: 5 * time.Second, Interval: 50 * time.Millisecond, Patience: 20 * time.Second,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
}

// newExport returns an export of a new directory.
func newExport(t *testing.T, id uint16) Export {
	t.Helper()
	dir := check.Got(os.MkdirTemp("", "holdfast-export-"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return exportOf(id, dir)
}

func exportOf(id uint16, dir string) Export {
	return Export{ID: id, Path: dir, Pseudo: fmt.Sprintf("/volume-%d", id), Filesystem: fmt.Sprintf("%d.%d", id, id)}
}

func (r *running) put(e Export) {
	r.t.Helper()
	check.OK(r.t, r.Put(r.within(), e))
}

// up waits until Ganesha serves, and returns that process.
func (r *running) up() *process {
	r.t.Helper()
	for ctx := r.within(); ; {
		if err := r.Remove(ctx, 65000); err != nil { // it does not exist
			r.t.Fatal(err)
		}
		l := r.serving()
		if l == nil {
			continue
		}
		select {
		case <-l.ganesha.done: // and the server has not noticed yet
		case <-l.bus.done:
		default:
			return l
		}
	}
}

func (r *running) within() context.Context {
	ctx, cancel := context.WithTimeout(r.t.Context(), patient)
	r.t.Cleanup(cancel)
	return ctx
}

// is fails the test unless Ganesha and its configuration have exactly these exports.
func (r *running) is(exports ...Export) {
	r.t.Helper()
	l := r.up()
	ids := check.Got(l.admin.exportIDs(r.within()))(r.t)
	for _, e := range exports {
		body, err := l.admin.call(r.within(), "ExportMgr", "DisplayExport", e.ID)
		if err != nil {
			r.t.Errorf("export %d: %v", e.ID, err)
		} else if body[1] != e.Path {
			r.t.Errorf("export %d is of %v, want %s", e.ID, body[1], e.Path)
		}
	}
	if len(ids) != len(exports) {
		r.t.Errorf("exports %v are served, want those of %+v", ids, exports)
	}
	all := map[uint16]Export{}
	for _, e := range exports {
		all[e.ID] = e
	}
	check.Same(r.t, string(check.Got(os.ReadFile(r.file()))(r.t)), configuration(&r.config, all)) // what is served is on disk
}

// refused fails the test unless Ganesha refuses an export.
func (r *running) refused(e Export) {
	r.t.Helper()
	if err := r.Put(r.within(), e); !errors.Is(err, errRefused) {
		r.t.Errorf("export %d: got %v, want that Ganesha refuses it", e.ID, err)
	}
}

func command(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
}

// hearing is a log in which a test can wait for a line.
type hearing struct {
	mu    sync.Mutex
	lines []string
}

func (h *hearing) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, string(p))
	return len(p), nil
}

// hear lets a test read the whole log of a server.
func hear(t *testing.T, c *Config) *hearing {
	h := &hearing{}
	c.Log = slog.New(slog.NewTextHandler(io.MultiWriter(t.Output(), h), &slog.HandlerOptions{Level: slog.LevelDebug}))
	return h
}

// await returns the first line that contains a text.
func (h *hearing) await(t *testing.T, text string) string {
	t.Helper()
	wait.Until(t, "a line with "+text, func() bool { return h.index(text) >= 0 })
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lines[slices.IndexFunc(h.lines, func(line string) bool { return strings.Contains(line, text) })]
}

// index returns that of the first line that contains a text, or -1.
func (h *hearing) index(text string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.IndexFunc(h.lines, func(line string) bool { return strings.Contains(line, text) })
}

func (h *hearing) count(text string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, line := range h.lines {
		n += strings.Count(line, text)
	}
	return n
}

// holds fails unless a file has that content.
func holds(t testing.TB, path, want string) {
	t.Helper()
	check.Same(t, string(check.Got(os.ReadFile(path))(t)), want)
}
