package disk

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/local"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

const (
	mib  = int64(1) << 20
	size = 320 * mib
	pool = "fast"
)

// fixture is a host, and what a test does with its disks.
type fixture struct {
	*testing.T
	*Host
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	hostfs.RequireRoot(t)
	f := &fixture{T: t, Host: newHost(t, t.TempDir())}
	t.Cleanup(func() {
		places, _ := filepath.Glob(f.Place("*")) // the pattern is valid
		for _, p := range append(places, filepath.Join(f.records(), ".peek")) {
			check.Report(t, nodeops.Unmount(context.Background(), p))
		}
	})
	return f
}

// onDisk is a host whose pool is mounted from a disk.
func onDisk(t *testing.T) (f *fixture, device string) {
	t.Helper()
	f, device = newFixture(t), hostfs.Disk(t, size)
	f.mount(pool, device)
	return f, device
}

func newHost(t *testing.T, dir string) *Host {
	return &Host{Dir: dir, Node: "node-a", Cluster: cluster("c1"), Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
}

func cluster(id string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return id, nil }
}

func paths(p ...string) nodeops.DeviceSelector { return nodeops.DeviceSelector{Paths: p} }

// mount retries, as an agent does, while another program has one of the disks open: mount and udev open all of them.
func (f *fixture) mount(p string, devices ...string) {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), time.Minute)
	defer cancel()
	every := time.NewTicker(10 * time.Millisecond)
	defer every.Stop()
	for {
		err := f.Mount(f.Context(), p, paths(devices...), backend.PoolExpectation{})
		if err == nil {
			return
		}
		if ctx.Err() != nil || !strings.Contains(err.Error(), "has it open") {
			f.Fatal(err)
		}
		<-every.C
	}
}

// fails expects an error that contains the words.
func (f *fixture) fails(err error, words ...string) {
	f.Helper()
	if err == nil {
		f.Fatalf("no error; want one that says %q", words)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			f.Errorf("%v: it does not say %q", err, w)
		}
	}
}

// refused expects that the disk is not mounted, for a reason that contains the words.
func (f *fixture) refused(p string, which nodeops.DeviceSelector, words ...string) {
	f.Helper()
	f.fails(f.Mount(f.Context(), p, which, backend.PoolExpectation{}), words...)
	if m, err := nodeops.MountAt(f.Place(p)); err != nil || m != nil {
		f.Errorf("refused, and %+v is mounted, %v", m, err)
	}
}

func (f *fixture) unmount(p string) {
	f.Helper()
	check.OK(f.T, nodeops.Unmount(f.Context(), f.Place(p)))
}

// isOn fails unless a pool is on that device.
func (f *fixture) isOn(p, device string) {
	f.Helper()
	if m, err := nodeops.MountAt(f.Place(p)); err != nil || m == nil || m.Source != device {
		f.Errorf("at %s is mounted %+v, %v; want %s", f.Place(p), m, err, device)
	}
}

func (f *fixture) put(p, name string) {
	f.Helper()
	check.OK(f.T, os.WriteFile(filepath.Join(f.Place(p), name), []byte(name), 0o600))
}

// keeps fails unless a pool has the file.
func (f *fixture) keeps(p, name string) {
	f.Helper()
	check.Got(os.Stat(filepath.Join(f.Place(p), name)))(f.T)
}

func shell(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
}

func TestDisk_EmptyOneBecomesAPoolAndIsRecognizedAgain(t *testing.T) {
	f, device := onDisk(t)
	f.isOn(pool, device)
	head, err := nodeops.ReadXFSHead(device)
	if err != nil || head == nil || head.Label != "hf-fast" {
		t.Errorf("the disk says %+v, %v", head, err)
	}
	if features, err := nodeops.Probe(f.Place(pool)); err != nil || !features.Reflink {
		t.Errorf("%+v, %v", features, err)
	}
	b := check.Got(local.Open(t.Context(), []local.PoolConfig{{Name: pool, Path: f.Place(pool)}}, f.Log))(t)
	check.OK(t, b.Close(t.Context()))
	f.put(pool, "data")
	f.mount(pool, device) // a restart
	mounts := string(check.Got(os.ReadFile("/proc/self/mounts"))(t))
	if stack := strings.Count(mounts, f.Place(pool)+" "); stack != 1 {
		t.Errorf("mounted %d times", stack)
	}
	f.unmount(pool) // a reboot
	f.mount(pool, device)
	f.keeps(pool, "data")
}

func TestDisk_MissingIsNotReplaced(t *testing.T) {
	f := newFixture(t)
	device, other := hostfs.Disk(t, size), hostfs.Disk(t, size)
	f.mount(pool, device, other)
	f.put(pool, "data")
	f.unmount(pool)
	file := hostfs.Detach(t, device)
	f.refused(pool, paths(other, device), "missing", f.file(pool), device, "node-a")
	if head, err := nodeops.ReadXFSHead(other); err != nil || head != nil {
		t.Errorf("the other disk was formatted: %+v, %v", head, err)
	}
	if entries, err := os.ReadDir(f.Place(pool)); err != nil || len(entries) > 0 {
		t.Errorf("the bare directory holds %v, %v", entries, err)
	}
	f.fails(f.Directory(pool, f.Place(pool), backend.PoolExpectation{}), "not mounted")
	other = filepath.Join(filepath.Dir(file), "other")
	check.OK(t, os.WriteFile(other, make([]byte, mib), 0o600))
	hostfs.Attach(t, other) // on the first free loop device, perhaps of another name
	back := hostfs.Attach(t, file)
	f.mount(pool, back)
	f.keeps(pool, "data")
	check.Report(t, f.Directory(pool, f.Place(pool), backend.PoolExpectation{}))
}

func TestDisk_WithAForeignMarkOrNoneIsNotUsed(t *testing.T) {
	f, device := onDisk(t)
	m := check.Got(readMark(f.Place(pool)))(t)
	for _, change := range []func(*mark){
		func(m *mark) { m.Cluster = "c2" }, func(m *mark) { m.Pool = "slow" }, func(m *mark) { m.UUID = newUUID("c1", pool) },
	} {
		theirs := m
		change(&theirs)
		check.OK(t, theirs.write(f.Place(pool)))
		f.unmount(pool)
		f.refused(pool, paths(device), theirs.String(), m.String())
		shell(t, "mount", device, f.Place(pool))
	}
	m.Node = "node-b" // where it was formatted
	check.OK(t, m.write(f.Place(pool)))
	f.mount(pool, device)
	f.put(pool, "data")
	check.OK(t, os.Remove(filepath.Join(f.Place(pool), markFile)))
	f.unmount(pool)
	f.refused(pool, paths(device), "which pool it is for", `"pool":"fast"`)
}

func TestDisk_CopyIsNotMistakenForIt(t *testing.T) {
	f := newFixture(t)
	device, other := hostfs.Disk(t, size), hostfs.Disk(t, size)
	f.mount(pool, device)
	f.unmount(pool)
	shell(t, "dd", "if="+device, "of="+other, "bs=1M", "status=none")
	f.refused(pool, paths(device, other), device, other, "copy")
	check.OK(t, os.Remove(f.file(pool)))
	f.refused(pool, paths(device, other), device, other, "remove one")
}

func TestDisk_DamagedRecordIsReported(t *testing.T) {
	for _, content := range []string{"{", "{}", `{"pool": "slow", "uuid": "u", "cluster": "c1"}`} {
		f := newFixture(t)
		check.OK(t, os.MkdirAll(f.records(), 0o700))
		check.OK(t, os.WriteFile(f.file(pool), []byte(content), 0o600))
		f.refused(pool, paths(hostfs.Disk(t, size)), "damaged", f.file(pool))
		if err := f.Directory(pool, f.Place(pool), backend.PoolExpectation{}); !errors.Is(err, backend.ErrUnavailable) {
			t.Errorf("a directory: %v", err)
		}
	}
}

func TestDisk_ThatFailsInUseIsRemountedWhenUnused(t *testing.T) {
	f, device := onDisk(t)
	f.put(pool, "data")
	used := check.Got(os.Open(filepath.Join(f.Place(pool), "data")))(t)
	defer used.Close()
	shell(t, "xfs_io", "-x", "-c", "shutdown -f", f.Place(pool))
	f.fails(f.Mount(t.Context(), pool, paths(device), backend.PoolExpectation{}), "drain node node-a")
	used.Close()
	f.mount(pool, device)
	f.keeps(pool, "data")
}

func TestDisk_DirectoryIsCreatedBeneathTheHostsOwnOnly(t *testing.T) {
	h := newHost(t, t.TempDir())
	check.OK(t, h.Directory(pool, h.Place(pool), backend.PoolExpectation{}))
	if info, err := os.Stat(h.Place(pool)); err != nil || !info.IsDir() {
		t.Errorf("not made: %v", err)
	}
	elsewhere := filepath.Join(t.TempDir(), "srv")
	check.OK(t, h.Directory(pool, elsewhere, backend.PoolExpectation{}))
	if _, err := os.Stat(elsewhere); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("made elsewhere: %v", err)
	}
	check.OK(t, h.Directory(pool, h.Dir+"-other/x", backend.PoolExpectation{}))
	if _, err := os.Stat(h.Dir + "-other"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("made beside: %v", err)
	}
}
