package driver

import (
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func (r *rig) group(name string, sources ...string) *csi.VolumeGroupSnapshot {
	r.Helper()
	resp := check.Got(r.CreateVolumeGroupSnapshot(r.ctx(), &csi.CreateVolumeGroupSnapshotRequest{Name: name, SourceVolumeIds: sources}))(r)
	return resp.GetGroupSnapshot()
}

func members(g *csi.VolumeGroupSnapshot) (ids []string) {
	for _, s := range g.GetSnapshots() {
		ids = append(ids, s.GetSnapshotId())
	}
	return ids
}

func TestGroup_IsTakenOnceAndFoundAgain(t *testing.T) {
	r, _ := newMemoryRig(t)
	r.create("v")
	r.create("w")
	g := r.group("g", "w", "v")
	if again := r.group("g", "v", "w"); !proto.Equal(g, again) {
		t.Errorf("first %v, then %v", g, again)
	}
	var sources []string
	for _, s := range g.GetSnapshots() {
		sources = append(sources, s.GetSourceVolumeId())
		if s.GetGroupSnapshotId() != g.GetGroupSnapshotId() || !s.GetReadyToUse() || s.GetCreationTime() == nil {
			t.Errorf("member %v of group %s", s, g.GetGroupSnapshotId())
		}
	}
	if !slices.Equal(sources, []string{"v", "w"}) || !g.GetReadyToUse() || g.GetCreationTime() == nil {
		t.Errorf("got %v", g)
	}
	got, err := r.GetVolumeGroupSnapshot(r.ctx(), &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: "g", SnapshotIds: members(g)})
	if err != nil || !proto.Equal(got.GetGroupSnapshot(), g) {
		t.Errorf("got %v, %v", got, err)
	}
	_, err = r.DeleteSnapshot(r.ctx(), &csi.DeleteSnapshotRequest{SnapshotId: members(g)[0]})
	expectError(t, err, codes.FailedPrecondition, "group g")
}

func TestGroup_InvalidRequestIsRefusedByValue(t *testing.T) {
	r, _ := newMemoryRig(t)
	r.create("v")
	r.create("w")
	r.group("taken", "v")
	for name, test := range map[string]struct {
		req  *csi.CreateVolumeGroupSnapshotRequest
		code codes.Code
		want string
	}{
		"no name":           {&csi.CreateVolumeGroupSnapshotRequest{SourceVolumeIds: []string{"v"}}, codes.InvalidArgument, "name"},
		"no volumes":        {&csi.CreateVolumeGroupSnapshotRequest{Name: "g"}, codes.InvalidArgument, "no volumes"},
		"one volume twice":  {&csi.CreateVolumeGroupSnapshotRequest{Name: "g", SourceVolumeIds: []string{"v", "v"}}, codes.InvalidArgument, "twice"},
		"a volume gone":     {&csi.CreateVolumeGroupSnapshotRequest{Name: "g", SourceVolumeIds: []string{"v", "gone"}}, codes.NotFound, "gone"},
		"other volumes":     {&csi.CreateVolumeGroupSnapshotRequest{Name: "taken", SourceVolumeIds: []string{"w"}}, codes.AlreadyExists, "w"},
		"unknown parameter": {&csi.CreateVolumeGroupSnapshotRequest{Name: "g", SourceVolumeIds: []string{"v"}, Parameters: map[string]string{"x": ""}}, codes.InvalidArgument, `"x"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := r.CreateVolumeGroupSnapshot(r.ctx(), test.req)
			expectError(t, err, test.code, test.want)
		})
	}
}

func TestGroup_IsDeletedWholeOrNotAtAll(t *testing.T) {
	r, _ := newMemoryRig(t)
	r.create("v")
	r.create("w")
	g := r.group("g", "v", "w")
	remove := func(members ...string) error {
		_, err := r.DeleteVolumeGroupSnapshot(r.ctx(), &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: "g", SnapshotIds: members})
		return err
	}
	expectError(t, remove(members(g)[0]), codes.InvalidArgument, "g", members(g)[1])
	expectError(t, remove("v", "w"), codes.InvalidArgument, members(g)[0])
	if _, err := r.GetSnapshot(r.ctx(), &csi.GetSnapshotRequest{SnapshotId: members(g)[0]}); err != nil {
		t.Fatalf("a refused delete took a member: %v", err)
	}
	for range 2 {
		check.OK(t, remove(members(g)...))
	}
	for _, id := range members(g) {
		_, err := r.GetSnapshot(r.ctx(), &csi.GetSnapshotRequest{SnapshotId: id})
		expectError(t, err, codes.NotFound, id)
	}
	_, err := r.GetVolumeGroupSnapshot(r.ctx(), &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: "g"})
	expectError(t, err, codes.NotFound, "g")
}
