package backend

import (
	"strings"
	"testing"
)

// TestRoom_IsPromisedByItsFormula has the numbers of docs/capacity.md, computed by hand.
func TestRoom_IsPromisedByItsFormula(t *testing.T) {
	const mib, gib = 1 << 20, 1 << 30
	empty := Room{Total: 10 * gib, Free: 10 * gib}
	for name, c := range map[string]struct {
		room       Room
		reserved   Reserve
		overcommit float64
		promised   int64
		want       int64
	}{
		"nothing":                            {room: empty, overcommit: 1, want: 10 * gib},
		"a promise":                          {room: empty, promised: 4*gib + mib, overcommit: 1, want: 6*gib - mib},
		"promises that were written":         {room: Room{Total: 10 * gib, Free: 8 * gib}, promised: 2 * gib, overcommit: 1, want: 8 * gib},
		"others' data":                       {room: Room{Total: 10 * gib, Others: 3 * gib, Free: 7 * gib}, promised: gib, overcommit: 1, want: 6 * gib},
		"a reserve":                          {room: empty, promised: gib, reserved: Reserve{bytes: 2 * gib}, overcommit: 1, want: 7 * gib},
		"a share reserved":                   {room: Room{Total: 10 * gib, Free: 5 * gib}, promised: 5 * gib, reserved: Reserve{share: 0.1}, overcommit: 1, want: 4 * gib},
		"overcommit, which is not of it":     {room: empty, promised: 3 * gib, reserved: Reserve{bytes: 2 * gib}, overcommit: 3, want: 25 * gib},
		"overcommit, not of others' data":    {room: Room{Total: 10 * gib, Others: gib, Free: 9 * gib}, promised: 8 * gib, overcommit: 2, want: 10 * gib},
		"half of it":                         {room: empty, reserved: Reserve{bytes: gib}, overcommit: 0.5, want: 4 * gib},
		"little free":                        {room: Room{Total: 10 * gib, Free: gib}, promised: 9 * gib, overcommit: 2, want: 2 * gib},
		"little free, less the reserve":      {room: Room{Total: 10 * gib, Free: gib}, promised: 9 * gib, reserved: Reserve{bytes: gib / 2}, overcommit: 2, want: 3 * gib / 2},
		"less free than reserved":            {room: Room{Total: 10 * gib, Free: gib}, reserved: Reserve{bytes: 2 * gib}, overcommit: 1, want: 0},
		"all promised":                       {room: empty, promised: 10 * gib, overcommit: 1, want: 0},
		"more promised than there is by now": {room: empty, promised: 11 * gib, overcommit: 1, want: 0},
		"a part of a MiB":                    {room: Room{Total: 10*gib + mib - 1, Free: 10*gib + mib - 1}, promised: gib, overcommit: 1, want: 9 * gib},
		"a byte too few":                     {room: empty, promised: gib + 1, overcommit: 1, want: 9*gib - mib},
		"no room":                            {overcommit: 1, want: 0},
	} {
		if got := c.room.Promisable(c.overcommit, c.reserved, c.promised); got != c.want {
			t.Errorf("%s: room for %d bytes, want %d", name, got, c.want)
		}
	}
}

func TestReserve_IsBytesOrAShare(t *testing.T) {
	const total = 1 << 40
	for text, want := range map[string]int64{
		"": total / 20, "5%": total / 20, "0": 0, "0%": 0, "12.5%": total / 8, "50%": total / 2, "100": 100, "1Ki": 1024, "2Mi": 2 << 20, "3G": 3e9, "10Gi": 10 << 30, "1073741824": 1 << 30,
	} {
		if r, err := ParseReserve(text); err != nil || r.Of(total) != want {
			t.Errorf("%q is %d of %d, %v", text, r.Of(total), total, err)
		}
	}
	for _, text := range []string{"100%", "-1%", "NaN%", "%", "-1", "some", "5 GB"} {
		if _, err := ParseReserve(text); err == nil || !strings.Contains(err.Error(), Quote(text)) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
