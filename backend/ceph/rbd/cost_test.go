//go:build ceph

package rbd

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ceph/go-ceph/rados"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/ceph"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// requests is how many requests the OSD has served.
func requests(t *testing.T) int {
	t.Helper()
	out := check.Got(small.Command(t.Context(), "ceph", "--admin-daemon", filepath.Join(small.Dir, "osd.0.asok"), "perf", "dump", "osd"))(t)
	var counters struct {
		OSD struct {
			Op int `json:"op"`
		} `json:"osd"`
	}
	check.OK(t, json.Unmarshal([]byte(out), &counters))
	return counters.OSD.Op
}

const rounds = 5

// costOf is the least number of requests of several calls: the pool is also looked after, and measured, every few seconds.
func costOf(t *testing.T, call func(i int) error) (least int) {
	t.Helper()
	for i := range rounds {
		before := requests(t)
		check.OK(t, call(i))
		if n := requests(t) - before; i == 0 || n < least {
			least = n
		}
	}
	return least
}

func TestCost_OfAVolumeIsBoundedInRequests(t *testing.T) {
	at, b, _ := openWith(t, Config{Name: "pool"}, "first")
	alone := costOf(t, func(i int) error {
		_, err := small.Command(context.Background(), "rbd", "create", "--size", "1G", fmt.Sprintf("%s/alone%d", at.Pool, i))
		return err
	})
	for mode, most := range map[backend.Mode]int{backend.Block: 12, backend.Filesystem: 16} {
		before := objectsIn(t, at)
		is := costOf(t, func(i int) error {
			_, err := b.Create(t.Context(), backend.VolumeSpec{Name: fmt.Sprint(mode, i), Mode: mode, Size: backend.Size{Required: 1 << 30}})
			return err
		})
		objects := (objectsIn(t, at) - before) / rounds
		t.Logf("a volume of mode %s costs %d requests, of which %d write an object each, rbd create %d", mode, is, objects, alone)
		if is > most+objects {
			t.Errorf("a volume of mode %s costs %d requests, want %d at most, and one for each of %d objects", mode, is, most, objects)
		}
	}
	all := 0
	listing := costOf(t, func(int) error {
		b.usages.keep(nil) // each is measured again
		listed, err := b.List(t.Context())
		all = len(listed)
		return err
	})
	if most := 3*all + 5; all == 0 || listing > most {
		t.Errorf("a list of %d volumes costs %d requests, want %d at most", all, listing, most)
	}
}

// objectsIn counts the objects that have the content of images.
func objectsIn(t *testing.T, at ceph.Config) (n int) {
	t.Helper()
	hands(t, at, func(pool *rados.IOContext) {
		check.OK(t, pool.ListObjects(func(name string) {
			if strings.HasPrefix(name, "rbd_data.") {
				n++
			}
		}))
	})
	return n
}
