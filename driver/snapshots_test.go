package driver

import (
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestSnapshot_RepeatGivesTheSameAnswer(t *testing.T) {
	r, _ := newMemoryRig(t)
	r.create("v")
	r.create("other")
	first := r.snapshot("s", "v")
	if second := r.snapshot("s", "v"); !proto.Equal(first, second) {
		t.Errorf("first %v, then %v", first, second)
	}
	want := &csi.Snapshot{
		SnapshotId: "s", SourceVolumeId: "v", SizeBytes: gib, ReadyToUse: true, CreationTime: first.GetCreationTime(),
		AccessibleTopology: []*csi.Topology{{Segments: map[string]string{TopologyKey: "node-a"}}},
	}
	if first.GetCreationTime() == nil || !proto.Equal(first, want) {
		t.Errorf("got %v, want %v", first, want)
	}
	got, err := r.GetSnapshot(r.ctx(), &csi.GetSnapshotRequest{SnapshotId: "s"})
	if err != nil || !proto.Equal(got.GetSnapshot(), first) {
		t.Errorf("got %v, %v", got, err)
	}
	_, err = r.CreateSnapshot(r.ctx(), &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: "other"})
	expectError(t, err, codes.AlreadyExists, "other")
}

func TestSnapshot_InvalidRequestIsRefusedByValue(t *testing.T) {
	r, _ := newMemoryRig(t)
	r.create("v")
	elsewhere := &csi.TopologyRequirement{Requisite: []*csi.Topology{{Segments: map[string]string{TopologyKey: "node-b"}}}}
	for name, test := range map[string]struct {
		req  *csi.CreateSnapshotRequest
		code codes.Code
		want string
	}{
		"no name":           {&csi.CreateSnapshotRequest{SourceVolumeId: "v"}, codes.InvalidArgument, "name"},
		"name with NUL":     {&csi.CreateSnapshotRequest{Name: "a\x00", SourceVolumeId: "v"}, codes.InvalidArgument, `\x00`},
		"long name":         {&csi.CreateSnapshotRequest{Name: strings.Repeat("n", 10000), SourceVolumeId: "v"}, codes.InvalidArgument, "10000"},
		"source gone":       {&csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: "gone"}, codes.NotFound, "gone"},
		"unknown parameter": {&csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: "v", Parameters: map[string]string{"force": "yes"}}, codes.InvalidArgument, "force"},
		"for another node":  {&csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: "v", AccessibilityRequirements: elsewhere}, codes.ResourceExhausted, "node-a"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := r.CreateSnapshot(r.ctx(), test.req)
			expectError(t, err, test.code, test.want)
		})
	}
	if all, err := r.ListSnapshots(r.ctx(), &csi.ListSnapshotsRequest{}); err != nil || len(all.GetEntries()) > 0 {
		t.Errorf("left behind: %v, %v", all, err)
	}
	_, err := r.CreateSnapshot(r.ctx(), &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: "v", Parameters: map[string]string{
		reserved + "volumesnapshot/name": "snap", reserved + "volumesnapshot/namespace": "default", reserved + "volumesnapshotcontent/name": "content",
	}})
	if err != nil {
		t.Errorf("what external-snapshotter adds is refused: %v", err)
	}
}

func TestSnapshot_ListIsByPageSourceAndID(t *testing.T) {
	r, _ := newMemoryRig(t)
	r.create("v")
	r.create("w")
	for _, name := range names("s", 5) {
		r.snapshot(name, "v")
	}
	r.snapshot("s-of-w", "w")
	list := func(req *csi.ListSnapshotsRequest) (ids []string, next string) {
		t.Helper()
		resp := check.Got(r.ListSnapshots(r.ctx(), req))(t)
		for _, e := range resp.GetEntries() {
			ids = append(ids, e.GetSnapshot().GetSnapshotId())
		}
		return ids, resp.GetNextToken()
	}
	for name, test := range map[string]struct {
		req  *csi.ListSnapshotsRequest
		want []string
	}{
		"all":                     {&csi.ListSnapshotsRequest{}, append(names("s", 5), "s-of-w")},
		"by source":               {&csi.ListSnapshotsRequest{SourceVolumeId: "w"}, []string{"s-of-w"}},
		"by id":                   {&csi.ListSnapshotsRequest{SnapshotId: "s-003"}, []string{"s-003"}},
		"by id and wrong source":  {&csi.ListSnapshotsRequest{SnapshotId: "s-003", SourceVolumeId: "w"}, nil},
		"by an id that is gone":   {&csi.ListSnapshotsRequest{SnapshotId: "gone"}, nil},
		"by a source that's gone": {&csi.ListSnapshotsRequest{SourceVolumeId: "gone"}, nil},
	} {
		if ids, _ := list(test.req); !slices.Equal(ids, test.want) {
			t.Errorf("%s: %v, want %v", name, ids, test.want)
		}
	}
	first, token := list(&csi.ListSnapshotsRequest{MaxEntries: 2, SourceVolumeId: "v"})
	second, last := list(&csi.ListSnapshotsRequest{StartingToken: token, SourceVolumeId: "v"})
	if got := slices.Concat(first, second); !slices.Equal(got, names("s", 5)) || last != "" {
		t.Errorf("pages showed %v and then %q", got, last)
	}
}

func TestSnapshot_DeletedIsGoneAndStaysGone(t *testing.T) {
	r, _ := newMemoryRig(t)
	r.create("v")
	r.snapshot("s", "v")
	for range 2 {
		check.Got(r.DeleteSnapshot(r.ctx(), &csi.DeleteSnapshotRequest{SnapshotId: "s"}))(t)
	}
	_, err := r.GetSnapshot(r.ctx(), &csi.GetSnapshotRequest{SnapshotId: "s"})
	expectError(t, err, codes.NotFound, "s")
}

func TestSnapshot_DamagedIsNotReady(t *testing.T) {
	c := &controller{Driver: &Driver{}}
	s := c.snapshot(&backend.Snapshot{ID: "s", Condition: backend.Condition{Abnormal: true}})
	if s.GetReadyToUse() {
		t.Error("a damaged snapshot is said to be ready")
	}
}
