//go:build ceph

package cephfs

import (
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/ceph"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestPromise_CountsDataOfOthersAndTheQuotaOfTheGroup(t *testing.T) {
	p := &pool{Config: Config{Name: "pool", Overcommit: 1}, reserve: check.Got(backend.ParseReserve("1Gi"))(t)}
	s := survey{Usage: ceph.Usage{Stored: 3 * gib, Free: 7 * gib}, own: 1 * gib, promised: 1 * gib}
	if got := p.room(&s, 0, s.promised); got != 6*gib {
		t.Errorf("%d MiB can be promised, want %d", got/mib, 6*gib/mib)
	}
	s.limitGroup(2 * gib)
	if s.Total() != 4*gib || p.room(&s, 0, 0) != 0 {
		t.Errorf("with a quota of the group the total is %d MiB, and %d can be promised", s.Total()/mib, p.room(&s, 0, 0)/mib)
	}
}

func TestPromise_KeepsToTheQuotaOfTheGroup(t *testing.T) {
	w := newWorld(t, 1*gib)
	c, err := w.backend.Capacity(t.Context(), "")
	if err != nil || c.Total < 1*gib || c.Available > 1*gib || c.Available < gib/2 {
		t.Fatalf("%+v, %v", c, err)
	}
	_, err = w.backend.Create(t.Context(), backend.VolumeSpec{Name: "a", Size: backend.Size{Required: c.Available + mib}})
	w.want(err, backend.ErrExhausted, "pool pool", "delete volumes")
	w.create("a", c.Available)
}

func TestSubvolume_NamesOfIDsAreReadBack(t *testing.T) {
	for n := range 12 {
		if id, ok := idOf(subvolume("a-1", n)); !ok || id != "a-1" {
			t.Errorf("%s is of %s, %t", subvolume("a-1", n), id, ok)
		}
	}
	for _, name := range []string{"", "A", "a.", "a.0", "a.01", "a.x", "a.1.2", ".snap", "a b", strings.Repeat("a", 64)} {
		if id, ok := idOf(name); ok {
			t.Errorf("%q is of %s", name, id)
		}
	}
}
