package v1beta1

import (
	"math"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
)

func bytes(n int64) *resource.Quantity { return resource.NewQuantity(n, resource.BinarySI) }

func TestBytes_AreReadAsPeopleWriteThem(t *testing.T) {
	for n, want := range map[int64]string{
		0:                    "0",
		-1:                   "-1",
		1023:                 "1023",
		1 << 10:              "1Ki",
		10<<10 - 1:           "10239",
		10<<10 + 1:           "10Ki",
		1<<20 + 1:            "1024Ki",
		64 << 20:             "64Mi",
		3 << 29:              "1536Mi",
		10 << 30:             "10Gi",
		499_963_174_912:      "465Gi",
		1 << 40:              "1Ti",
		12_345_678_901_234:   "11Ti",
		1 << 60:              "1Ei",
		math.MaxInt64:        "8191Pi",
		math.MaxInt64 - 1000: "8191Pi",
	} {
		if got := Readable(bytes(n)); got != want {
			t.Errorf("%d bytes read %s, want %s", n, got, want)
		}
	}
	if got := Readable(nil); got != "" {
		t.Errorf("what is not known reads %q", got)
	}
}

func TestColumns_FollowTheNumbers(t *testing.T) {
	v := VolumeStatus{Size: bytes(10 << 30), Used: bytes(1_234_567), Columns: VolumeColumns{Size: "old", Used: "old"}}
	v.SetColumns()
	if want := (VolumeColumns{Size: "10Gi", Used: "1205Ki"}); v.Columns != want {
		t.Errorf("a volume has the columns %+v, want %+v", v.Columns, want)
	}
	v.Used = nil
	v.SetColumns()
	if want := (VolumeColumns{Size: "10Gi"}); v.Columns != want {
		t.Errorf("a volume of unknown use has the columns %+v, want %+v", v.Columns, want)
	}
	s := SnapshotStatus{Size: bytes(1 << 30), Used: bytes(0)}
	s.SetColumns()
	if want := (SnapshotColumns{Size: "1Gi", Used: "0"}); s.Columns != want {
		t.Errorf("a snapshot has the columns %+v, want %+v", s.Columns, want)
	}
}

func TestColumns_OfANodeSumUpItsPools(t *testing.T) {
	s := StorageNodeStatus{Pools: []Pool{
		{Name: "fast", Capacity: *bytes(100 << 30), Promised: *bytes(40 << 30), Used: *bytes(20 << 30), Available: *bytes(55 << 30), Volumes: 4, SnapshotCost: SnapshotShared},
		{Name: "slow", Capacity: *bytes(300 << 30), Promised: *bytes(10 << 30), Used: *bytes(5 << 30), Available: *bytes(280 << 30), Volumes: 3, SnapshotCost: SnapshotFull},
		{Name: "gone", Volumes: 1, Message: "not mounted"},
	}}
	for range 2 { // a second time adds nothing
		s.SetColumns()
		want := StorageNodeColumns{Pools: "2/3", Capacity: "400Gi", Promised: "50Gi", Used: "25Gi", Available: "335Gi", Volumes: 8, Snapshots: "Shared,Full"}
		if s.Columns != want {
			t.Errorf("columns are %+v, want %+v", s.Columns, want)
		}
	}
	if got := s.Pools[0].Capacity.Value(); got != 100<<30 {
		t.Errorf("summing up changed the capacity of a pool to %d", got)
	}
	none := StorageNodeStatus{}
	none.SetColumns()
	if want := (StorageNodeColumns{Pools: "0/0", Capacity: "0", Promised: "0", Used: "0", Available: "0"}); none.Columns != want {
		t.Errorf("a node without pools has the columns %+v, want %+v", none.Columns, want)
	}
}
