//go:build ceph

package rbd

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/holdfast-storage/holdfast/backend"
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

// costOf is the least number of requests of several calls: the pool is also looked after, and measured, every few seconds.
func costOf(t *testing.T, call func(i int) error) (least int) {
	t.Helper()
	for i := range 5 {
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
	for mode, most := range map[backend.Mode]int{backend.Block: 16, backend.Filesystem: 64} {
		is := costOf(t, func(i int) error {
			_, err := b.Create(t.Context(), backend.VolumeSpec{Name: fmt.Sprint(mode, i), Mode: mode, Size: backend.Size{Required: 1 << 30}})
			return err
		})
		t.Logf("a volume of mode %s costs %d requests, rbd create %d", mode, is, alone)
		if is > most {
			t.Errorf("a volume of mode %s costs %d requests, want %d at most", mode, is, most)
		}
	}
}
