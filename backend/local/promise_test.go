package local

import (
	"errors"
	"testing"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

func TestPromise_PoolIsPromisedToItsLastMiBAndNoFurther(t *testing.T) {
	b := served(t, roomy(t, hostfs.XFS, 1))
	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, backend.ErrExhausted) {
			t.Errorf("%s: got %v, want an error that is %q", what, err, backend.ErrExhausted)
		}
	}
	made(t, b, sized("a", 100*mib)) // thin: from now on more is free than can be promised
	before := capacityOf(t, b)
	if before.Promised != 100*mib {
		t.Errorf("promised %d, want %d", before.Promised, 100*mib)
	}
	_, err := b.Create(t.Context(), sized("b", before.Available+mib))
	refused("1 MiB more than there is", err)
	made(t, b, sized("b", before.Available-50*mib))
	_, err = b.Expand(t.Context(), "a", backend.Size{Required: 151 * mib})
	refused("growth by 1 MiB more than there is", err)
	check.Got(b.Expand(t.Context(), "a", backend.Size{Required: 150 * mib}))(t)
	if after := capacityOf(t, b); after.Available != 0 || after.Promised != before.Promised+before.Available {
		t.Errorf("of %+v all is promised, and it is %+v", before, after)
	}
	_, err = b.Create(t.Context(), sized("c", mib))
	refused("a volume where all is promised", err)
	_, err = b.Clone(t.Context(), "a", backend.VolumeSpec{Name: "c"})
	refused("a clone where all is promised", err)
	_, err = b.Snapshot(t.Context(), backend.SnapshotSpec{Name: "s", Source: "a"})
	refused("a snapshot where all is promised", err)
	_, err = b.Expand(t.Context(), "a", backend.Size{Required: 151 * mib})
	refused("growth where all is promised", err)
	all := before.Promised + before.Available
	deleted(t, b, "b")
	fails(b.Create(t.Context(), sized("c", all-150*mib+mib)))(t, backend.ErrExhausted, "c needs", "even if the 1 deleted volumes in the trash were removed")
	keeps(t, b, "b")
	deleted(t, b, "a")
	if after := capacityOf(t, b); after.Promised != all || after.Available != all {
		t.Errorf("all %d bytes are promised to the trash and available: %+v", all, after)
	}
	enough := "even if the 2 deleted volumes in the trash were removed"
	fails(b.Create(t.Context(), sized("c", all+mib)))(t, backend.ErrExhausted, "c needs", enough)
	keeps(t, b, "a", "b")
	made(t, b, sized("c", before.Available-50*mib+mib)) // 1 MiB too much even without b, which is removed first
	keeps(t, b)
	if after := capacityOf(t, b); after.Available+after.Promised != all {
		t.Errorf("of %d bytes there are promised and available %+v", all, after)
	}
}

func TestPromise_ReserveIsKeptFromFreeSpace(t *testing.T) {
	c := roomy(t, hostfs.XFS, 2)
	c.Reserved = "256Mi"
	b := served(t, c)
	v := made(t, b, sized("a", 200*mib))
	check.OK(t, fill(v.Access.Image, 150*mib, 0))
	usage, err := nodeops.Statfs(t.Context(), c.Path)
	check.OK(t, err)
	// The metadata of the file system is less than a tenth of the reserve.
	most := 2*usage.Available - 256*mib
	now := capacityOf(t, b)
	if now.Available > most+25*mib || now.Available < most-25*mib {
		t.Errorf("%d bytes are free, each may be promised twice, 256 MiB are reserved: available are %d, want %d", usage.Available, now.Available, most)
	}
	fails(b.Create(t.Context(), sized("b", now.Available+25*mib)))(t, backend.ErrExhausted, "256Mi reserved")
}
