package ceph

import (
	"errors"
	"testing"

	"github.com/holdfast-storage/holdfast/backend"
)

func TestUsage_RoomEndsAtTheQuotaAndAtWhatIsFree(t *testing.T) {
	const gib = 1 << 30
	for name, test := range map[string]struct {
		is          Usage
		total, free int64
	}{
		"an empty pool":                      {Usage{Free: 10 * gib}, 10 * gib, 10 * gib},
		"a quota":                            {Usage{Free: 10 * gib, Quota: 4 * gib}, 4 * gib, 4 * gib},
		"a quota above what is there":        {Usage{Free: 10 * gib, Quota: 40 * gib}, 10 * gib, 10 * gib},
		"what was written":                   {Usage{Stored: 2 * gib, Free: 8 * gib}, 10 * gib, 8 * gib},
		"what was written in a quota":        {Usage{Stored: 3 * gib, Free: 20 * gib, Quota: 5 * gib}, 5 * gib, 2 * gib},
		"more stored than a quota allows":    {Usage{Stored: 6 * gib, Free: 20 * gib, Quota: 5 * gib}, 5 * gib, 0},
		"disks that another pool has filled": {Usage{Stored: 1 * gib, Free: 2 * gib, Quota: 10 * gib}, 3 * gib, 2 * gib},
		"a full cluster":                     {Usage{Stored: 10 * gib}, 10 * gib, 0},
		"a cluster that reports nothing":     {Usage{}, 0, 0},
	} {
		if got, want := test.is.Room(gib), (backend.Room{Total: test.total, Others: gib, Free: test.free}); got != want {
			t.Errorf("%s: the room is %+v, want %+v", name, got, want)
		}
	}
}

func TestUsage_OfAPoolThatIsNotReportedIsUnavailable(t *testing.T) {
	text := []byte(`{"pools":[{"name":"data","stats":{"stored":5,"max_avail":7,"quota_bytes":9}}]}`)
	if u, err := parseUsage(text, "data"); err != nil || u != (Usage{5, 7, 9}) {
		t.Errorf("%+v, %v", u, err)
	}
	for _, bad := range []string{string(text), "[", `{"pools":"none"}`} {
		if _, err := parseUsage([]byte(bad), "other"); !errors.Is(err, backend.ErrUnavailable) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
