package nodeops

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/nfsserver"
)

const testPort = 20049

// bounded fails a test that hangs.
func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func moment(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	t.Cleanup(cancel)
	return ctx
}

// unmountAtEnd unmounts what is still mounted when the test ends, also if its server is silent.
func unmountAtEnd(t *testing.T, target string) {
	t.Cleanup(func() {
		if m, err := MountAt(target); m != nil || err != nil {
			check.Report(t, errors.Join(err, unix.Unmount(target, unix.MNT_DETACH)))
		}
	})
}

func mountServed(t *testing.T, path string, options ...string) (target string) {
	t.Helper()
	target = t.TempDir()
	unmountAtEnd(t, target)
	check.OK(t, MountNFS(bounded(t), served(path, options...), target))
	return target
}

func served(path string, options ...string) NFS {
	return NFS{Server: nfsserver.Address, Address: nfsserver.Address, Port: testPort, Path: path, Options: options}
}

func TestNFSVolume_IsMountedFromEachNamespaceAndAMissingOneIsNamed(t *testing.T) {
	nfsserver.Start(t, testPort, "v")
	for _, namespaces := range []string{"", "/proc/self/ns"} {
		check.Report(t, CheckNFSClient(namespaces)) // it lacks nothing
	}
	for _, namespaces := range []string{"", "/proc/1/ns"} {
		n, target := served("/v"), t.TempDir()
		n.Namespaces = namespaces
		unmountAtEnd(t, target)
		check.OK(t, MountNFS(bounded(t), n, target))
		write(t, filepath.Join(target, "file"), "content")
	}
	dir := t.TempDir()
	check.Fails(t, MountNFS(bounded(t), served("/missing"), dir), nil, "127.0.0.1:/missing", "does not have the volume")
	check.Fails(t, MountNFS(bounded(t), served("/v", "nconnect=many"), dir), nil, "nconnect=many")
}

func TestNFSVolume_IsMountedAsRequested(t *testing.T) {
	_, dirs := nfsserver.Start(t, testPort, "v", "w")
	target := mountServed(t, "/v", "nosuid", "timeo=50")
	write(t, filepath.Join(target, "file"), "content")
	holds(t, filepath.Join(dirs[0], "file"), "content")
	m, err := MountAt(target)
	if err != nil || m.FSType != "nfs4" || m.Source != "127.0.0.1:/v" || m.Root != "/" || m.ReadOnly {
		t.Fatalf("it is %+v, %v", m, err)
	}
	if u, err := StatfsShared(bounded(t), m); err != nil || u.Type != "nfs" || u.Total == 0 {
		t.Errorf("its usage is %+v, %v", u, err)
	}
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || !strings.Contains(string(table), "vers=4.2") || !strings.Contains(string(table), ",hard,") || !strings.Contains(string(table), "timeo=50,retrans=2") {
		t.Errorf("the options are not in %s, %v", table, err)
	}
	check.OK(t, os.Mkdir(filepath.Join(target, "inner"), 0o755))
	for source, want := range map[string]string{target: "127.0.0.1:/v", filepath.Join(target, "inner"): "127.0.0.1:/v/inner"} {
		bound := t.TempDir()
		unmountAtEnd(t, bound)
		check.OK(t, BindShared(bounded(t), source, bound, true, nil))
		if m, err := MountAt(bound); err != nil || m.Source != want || m.Root != "/" || !m.ReadOnly {
			t.Errorf("bound it is %+v, %v, want %s", m, err, want)
		}
		check.Fails(t, os.WriteFile(filepath.Join(bound, "more"), nil, 0o600), unix.EROFS)
		check.Report(t, UnmountShared(bounded(t), bound, time.Minute, 0))
	}
	check.Report(t, SetTopGroup(bounded(t), m, 4711))
	if info, err := os.Stat(target); err != nil || info.Mode()&os.ModeSetgid == 0 {
		t.Errorf("the top is %v, %v", info, err)
	}
	check.Report(t, UnmountShared(bounded(t), target, time.Minute, 0))
	unmounted(t, target)
}

// Of its own accord the kernel sends 128 READs for 16 MiB.
func TestNFSVolume_IsReadInTheLargestPieces(t *testing.T) {
	_, dirs := nfsserver.Start(t, testPort, "v")
	target := mountServed(t, "/v")
	check.OK(t, RaiseReadAhead(target))
	write(t, filepath.Join(dirs[0], "file"), strings.Repeat("holdfast", 16<<20/8))
	f := check.Got(os.Open(filepath.Join(target, "file")))(t)
	defer f.Close()
	check.Got(io.Copy(io.Discard, f))(t) // by small calls
	_, ours, _ := strings.Cut(read(t, "/proc/self/mountstats"), " mounted on "+target+" ")
	_, calls, _ := strings.Cut(ours, "READ: ")
	reads, _, _ := strings.Cut(calls, " ")
	if n, err := strconv.Atoi(reads); err != nil || n > 40 {
		t.Errorf("the kernel sent %s READs for 16 MiB, %v", reads, err)
	}
}

// Only the clients of a server that does not answer wait, and what was unmounted does not reappear.
func TestNFSVolume_OfASilentServerIsUnmounted(t *testing.T) {
	s, dirs := nfsserver.Start(t, testPort, "v", "w")
	target, bound, late := mountServed(t, "/v"), t.TempDir(), t.TempDir()
	unmountAtEnd(t, bound)
	check.OK(t, BindShared(bounded(t), target, bound, false, nil))
	write(t, filepath.Join(bound, "file"), "content")
	syncAt(t, bound)
	m := check.Got(MountAt(bound))(t)
	s.Stop()
	for range 3 {
		check.Fails(t, check.ErrorOf(StatfsShared(moment(t), m)), context.DeadlineExceeded, "127.0.0.1:/v")
	}
	if err := BindShared(moment(t), target, late, false, nil); err == nil {
		t.Log("a bind did not need the server")
	} else if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a bind: %v", err)
	}
	if err := MountNFS(moment(t), served("/w"), late); !errors.Is(err, context.DeadlineExceeded) && !strings.Contains(err.Error(), "still waits") {
		t.Errorf("mounting: %v", err)
	}
	for _, dir := range []string{late, bound, target} {
		check.Report(t, UnmountShared(bounded(t), dir, time.Second, 0))
		unmounted(t, dir)
	}
	s.On()
	target = mountServed(t, "/v")
	holds(t, filepath.Join(target, "file"), "content")
	holds(t, filepath.Join(dirs[0], "file"), "content")
	for _, dir := range []string{late, bound} {
		unmounted(t, dir)
	}
}

func TestNFSVolume_WritesContinueWhenItsServerReturns(t *testing.T) {
	s, dirs := nfsserver.Start(t, testPort, "v")
	target := mountServed(t, "/v")
	s.Stop()
	done := make(chan error, 1)
	go func() { done <- os.WriteFile(filepath.Join(target, "file"), []byte("content"), 0o600) }()
	select {
	case err := <-done:
		t.Fatalf("it was written without its server: %v", err)
	case <-moment(t).Done():
	}
	s.On()
	select {
	case err := <-done:
		check.OK(t, err)
	case <-bounded(t).Done():
		t.Fatal("it is not written, though its server is back")
	}
	holds(t, filepath.Join(dirs[0], "file"), "content")
}

func TestNFSVolume_InUseIsUnmountedOnlyWhenItsServerIsSilent(t *testing.T) {
	s, _ := nfsserver.Start(t, testPort, "v")
	target := mountServed(t, "/v")
	write(t, filepath.Join(target, "file"), "content")
	syncAt(t, target)
	f := check.Got(os.Open(filepath.Join(target, "file")))(t)
	defer f.Close()
	check.Fails(t, UnmountShared(bounded(t), target, time.Minute, 0), unix.EBUSY) // while its server answers
	s.Stop()
	check.Fails(t, UnmountShared(bounded(t), target, time.Second, time.Hour), nil, "has not answered for") // while its server may come back
	if m, err := MountAt(target); m == nil || err != nil {
		t.Fatalf("before the server is given up there is %+v, %v", m, err)
	}
	check.Report(t, UnmountShared(bounded(t), target, time.Second, 0)) // when its server is given up
	unmounted(t, target)
	s.On()
}
