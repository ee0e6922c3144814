//go:build ceph

package cephfs

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/ceph"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func reserve(t *testing.T, text string) ceph.Reserve {
	t.Helper()
	return check.Got(ceph.ParseReserve(text))(t)
}

func TestPromise_CountsQuotasForeignDataAndTheTrash(t *testing.T) {
	p := &pool{Config: Config{Name: "pool", Overcommit: 1}, reserve: reserve(t, "1Gi")}
	for name, c := range map[string]struct {
		survey survey
		want   int64
	}{
		"an empty pool":                   {survey{usage: usage{free: 10 * gib}}, 9 * gib},
		"a quota of the data pool":        {survey{usage: usage{free: 10 * gib, limit: 4 * gib}}, 3 * gib},
		"a quota above what is there":     {survey{usage: usage{free: 10 * gib, limit: 40 * gib}}, 9 * gib},
		"promises":                        {survey{usage: usage{free: 10 * gib}, promised: 2 * gib}, 7 * gib},
		"promises that were written":      {survey{usage: usage{stored: 2 * gib, free: 8 * gib}, own: 2 * gib, promised: 2 * gib}, 7 * gib},
		"data of others":                  {survey{usage: usage{stored: 3 * gib, free: 7 * gib}, own: 1 * gib, promised: 1 * gib}, 6 * gib},
		"a cluster that others have full": {survey{usage: usage{stored: 1 * gib, free: 2 * gib}, promised: 0}, 1 * gib},
		"more promised than there is":     {survey{usage: usage{free: 10 * gib}, promised: 20 * gib}, 0},
	} {
		if got := p.room(&c.survey, c.survey.left(), c.survey.promised); got != c.want {
			t.Errorf("%s: %d MiB can be promised, want %d", name, got/mib, c.want/mib)
		}
	}
	s := survey{usage: usage{stored: 3 * gib, free: 7 * gib}, own: 1 * gib}
	s.limitGroup(2 * gib)
	if s.total() != 4*gib || p.room(&s, s.left(), 0) != 0 {
		t.Errorf("with a quota of the group the total is %d MiB, and %d can be promised", s.total()/mib, p.room(&s, s.left(), 0)/mib)
	}
}

func TestUsage_OfAPoolThatIsNotReportedIsUnavailable(t *testing.T) {
	text := []byte(`{"pools":[{"name":"data","stats":{"stored":5,"max_avail":7,"quota_bytes":9}}]}`)
	if u, err := parseUsage(text, "data"); err != nil || u != (usage{5, 7, 9}) {
		t.Errorf("%+v, %v", u, err)
	}
	for _, bad := range []string{string(text), "[", `{"pools":"none"}`} {
		if _, err := parseUsage([]byte(bad), "other"); !errors.Is(err, backend.ErrUnavailable) {
			t.Errorf("%s: %v", bad, err)
		}
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
