package rbd

import "testing"

func TestRoom_IsPromisedUpToTheQuotaAndWhatIsFree(t *testing.T) {
	const gib, kept = 1 << 30, 1 << 30
	for name, test := range map[string]struct {
		is         room
		overcommit float64
		promised   int64
		want       int64
	}{
		"an empty pool":                      {room{free: 10 * gib}, 1, 0, 9 * gib},
		"a quota":                            {room{free: 10 * gib, quota: 4 * gib}, 1, 0, 3 * gib},
		"a quota above what is there":        {room{free: 10 * gib, quota: 40 * gib}, 1, 0, 9 * gib},
		"promises":                           {room{free: 10 * gib}, 1, 2 * gib, 7 * gib},
		"promises that were written":         {room{stored: 2 * gib, free: 8 * gib}, 1, 2 * gib, 7 * gib},
		"promises above a quota":             {room{free: 10 * gib, quota: 4 * gib}, 1, 5 * gib, 0},
		"data of others, beside promises":    {room{stored: 6 * gib, free: 4 * gib}, 1, 2 * gib, 3 * gib},
		"data of others in a quota":          {room{stored: 3 * gib, free: 20 * gib, quota: 5 * gib}, 1, 0, 1 * gib},
		"more stored than a quota allows":    {room{stored: 6 * gib, free: 20 * gib, quota: 5 * gib}, 1, 0, 0},
		"disks that another pool has filled": {room{stored: 1 * gib, free: 2 * gib, quota: 10 * gib}, 1, 1 * gib, 1 * gib},
		"a full cluster":                     {room{stored: 10 * gib}, 1, 1 * gib, 0},
		"more promised than there is":        {room{free: 10 * gib}, 1, 20 * gib, 0},
		"overcommit":                         {room{free: 10 * gib}, 2, 4 * gib, 15 * gib},
		"overcommit where little is free":    {room{stored: 8 * gib, free: 2 * gib}, 2, 4 * gib, 3 * gib},
		"half of it":                         {room{free: 10 * gib}, 0.5, 0, 4 * gib},
		"what is no whole MiB":               {room{free: 2*gib + 1<<19}, 1, 0, 1 * gib},
		"a cluster that reports nothing":     {room{}, 1, 0, 0},
	} {
		if got := test.is.available(kept, test.overcommit, test.promised); got != test.want {
			t.Errorf("%s: %d MiB can be promised, want %d", name, got>>20, test.want>>20)
		}
	}
}
