package disk

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

var remembered = backend.PoolExpectation{PoolIdentity: backend.PoolIdentity{ID: "p1"}, Remedy: "kubectl patch it"}

// notMounted expects an error with that reason and the words.
func notMounted(t *testing.T, err error, words ...string) {
	t.Helper()
	if backend.PoolReasonOf(err) != backend.NotMounted || !errors.Is(err, backend.ErrUnavailable) {
		t.Fatalf("got %v", err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%v: it does not say %q", err, w)
		}
	}
}

func TestKnownPool_EmptyDiskIsNotFormattedForIt(t *testing.T) {
	f := newFixture(t)
	device := hostfs.Disk(t, size)
	for what, e := range map[string]backend.PoolExpectation{
		"by its ID": remembered, "by its volumes": {Existed: true, Remedy: "kubectl patch it"}, "not yet": {Unread: true, Remedy: "kubectl patch it"},
	} {
		notMounted(t, f.Mount(t.Context(), pool, paths(device), e), "node-a", "put its disk back", "kubectl patch it")
		if head, err := nodeops.ReadXFSHead(device); err != nil || head != nil {
			t.Errorf("%s: the disk was formatted: %+v, %v", what, head, err)
		}
		if _, err := os.Stat(f.file(pool)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: a disk is on record: %v", what, err)
		}
	}
}

func TestKnownPool_DiskWithoutARecordIsFoundForIt(t *testing.T) {
	f, device := onDisk(t)
	f.put(pool, "data")
	f.unmount(pool)
	check.OK(t, os.Remove(f.file(pool)))
	check.OK(t, f.Mount(t.Context(), pool, paths(device), remembered))
	f.keeps(pool, "data")
}

func TestKnownPool_MissingDiskIsReplacedOnlyWhenThePoolIsGivenUp(t *testing.T) {
	f := newFixture(t)
	device, other := hostfs.Disk(t, size), hostfs.Disk(t, size)
	f.mount(pool, device)
	f.unmount(pool)
	hostfs.Detach(t, device)
	notMounted(t, f.Mount(t.Context(), pool, paths(other), remembered), "missing", "kubectl patch it")
	check.OK(t, f.Mount(t.Context(), pool, paths(other), backend.PoolExpectation{Given: "p1"}))
	if r, err := f.recorded(pool); err != nil || r == nil || r.Device != other {
		t.Errorf("on record is %+v, %v", r, err)
	}
}

func TestKnownPool_DirectoryIsNotCreatedForIt(t *testing.T) {
	h := newHost(t, t.TempDir())
	check.OK(t, h.Directory(pool, h.Place(pool), remembered))
	if _, err := os.Stat(filepath.Join(h.Dir, "pools")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("made: %v", err)
	}
}
