package local

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/hostfs"
)

func TestAGroupOfVolumesInUseHoldsOneInstantOnXFS(t *testing.T) { groupHoldsOneInstant(t, hostfs.XFS) }

func TestAGroupOfVolumesInUseHoldsOneInstantOnExt4(t *testing.T) {
	groupHoldsOneInstant(t, hostfs.Ext4)
}

// groupHoldsOneInstant writes the same counter to three volumes in turn, each write durable before the next. At any
// instant no volume is behind the one before it by more than the write that is under way.
func groupHoldsOneInstant(t *testing.T, k hostfs.Kind) {
	b := served(t, PoolConfig{Name: "pool", Path: hostfs.New(t, k, 8<<30)})
	var (
		sources []backend.ID
		files   []*os.File
	)
	for i := range 3 {
		v := made(t, b, backend.VolumeSpec{Name: fmt.Sprint("v", i), FSType: "ext4", Size: backend.Size{Required: 64 * mib}})
		sources = append(sources, v.ID)
		f, err := os.OpenFile(filepath.Join(use(t, v), "file"), os.O_WRONLY|os.O_CREATE|os.O_SYNC, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files = append(files, f)
	}
	var count atomic.Int64
	stop, stopped := make(chan struct{}), make(chan error)
	go func() { stopped <- writeCounters(files, &count, stop) }()
	for round := range 5 {
		for before := count.Load(); count.Load() < before+3; { // the writer is under way
			select {
			case err := <-stopped:
				t.Fatalf("the writer ended: %v", err)
			default:
			}
		}
		g, err := b.SnapshotGroup(t.Context(), backend.GroupSpec{Name: fmt.Sprint("g", round), Sources: sources})
		if err != nil {
			t.Fatal(err)
		}
		var seen []int
		for _, s := range g.Snapshots {
			seen = append(seen, counterIn(t, b, s))
		}
		if seen[0] == 0 || seen[1] > seen[0] || seen[2] > seen[1] || seen[2] < seen[0]-1 {
			t.Errorf("round %d: the volumes hold %v, which they never did at one instant", round, seen)
		}
	}
	close(stop)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func writeCounters(files []*os.File, count *atomic.Int64, stop <-chan struct{}) error {
	for n := int64(1); ; n++ {
		for _, f := range files {
			if _, err := f.WriteAt(fmt.Appendf(nil, "%020d", n), 0); err != nil {
				return err
			}
		}
		count.Store(n)
		select {
		case <-stop:
			return nil
		default:
		}
	}
}

// use mounts a volume's image until the test ends, as a node does.
func use(t *testing.T, v *backend.Volume) string {
	t.Helper()
	loop, err := nodeops.AttachLoop(t.Context(), v.Access.Image, nodeops.LoopOptions{Autoclear: true})
	if err != nil {
		t.Fatal(err)
	}
	defer loop.Close()
	dir := t.TempDir()
	if err := nodeops.MountFS(t.Context(), loop.Path, dir, v.FSType, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := nodeops.Unmount(context.Background(), dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func counterIn(t *testing.T, b *Backend, s *backend.Snapshot) (n int) {
	t.Helper()
	v, err := b.Restore(t.Context(), s.ID, backend.VolumeSpec{Name: "restored " + s.Name})
	if err != nil {
		t.Fatal(err)
	}
	mounted(t, v, func(dir string) {
		text, err := os.ReadFile(filepath.Join(dir, "file"))
		if err == nil {
			n, err = strconv.Atoi(string(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	return n
}
