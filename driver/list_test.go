package driver

import (
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// listPage returns the ids of one page and the token of the next.
func (r *rig) listPage(most int32, token string) (ids []string, next string) {
	r.Helper()
	resp := check.Got(r.ListVolumes(r.ctx(), &csi.ListVolumesRequest{MaxEntries: most, StartingToken: token}))(r)
	for _, e := range resp.GetEntries() {
		ids = append(ids, e.GetVolume().GetVolumeId())
	}
	return ids, resp.GetNextToken()
}

func TestList_PagesShowEveryVolumeOnce(t *testing.T) {
	r, _ := newMemoryRig(t)
	want := names("v", 10)
	for _, name := range want {
		r.create(name)
	}
	for _, most := range []int32{0, 1, 3, 5, 10, 11} {
		var got []string
		for token := ""; len(got) <= len(want); {
			ids, next := r.listPage(most, token)
			if most > 0 && len(ids) > int(most) {
				t.Fatalf("a page of %d has %d entries", most, len(ids))
			}
			got = append(got, ids...)
			if token = next; token == "" {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages of %d showed %v", most, got)
		}
	}
}

func TestList_PagesStayStableWhileVolumesComeAndGo(t *testing.T) {
	r, _ := newMemoryRig(t)
	for _, name := range names("v", 9) {
		r.create(name)
	}
	first, token := r.listPage(3, "")
	// The last entry seen goes, with others on both sides, and new ones come on both sides.
	for _, id := range []string{"v-000", "v-002", "v-004"} {
		check.Got(r.DeleteVolume(r.ctx(), &csi.DeleteVolumeRequest{VolumeId: id}))(t)
	}
	r.create("a-before")
	r.create("v-0035")
	second, token := r.listPage(3, token)
	third, token := r.listPage(3, token)
	got := slices.Concat(first, second, third)
	want := []string{"v-000", "v-001", "v-002", "v-003", "v-0035", "v-005", "v-006", "v-007", "v-008"}
	if !slices.Equal(got, want) || token != "" {
		t.Errorf("pages showed %v and then %q, want %v", got, token, want)
	}
}

func TestList_UnknownTokenIsAborted(t *testing.T) {
	r, _ := newMemoryRig(t)
	for _, token := range []string{"invalid-token", "3", "after:", "after:../x", "AFTER:v"} {
		_, err := r.ListVolumes(r.ctx(), &csi.ListVolumesRequest{StartingToken: token})
		expectError(t, err, codes.Aborted, token)
		_, err = r.ListSnapshots(r.ctx(), &csi.ListSnapshotsRequest{StartingToken: token})
		expectError(t, err, codes.Aborted, token)
		_, err = r.ControllerListVolumeHealth(r.ctx(), &csi.ControllerListVolumeHealthRequest{StartingToken: token})
		expectError(t, err, codes.Aborted, token)
	}
	_, err := r.ListVolumes(r.ctx(), &csi.ListVolumesRequest{MaxEntries: -1})
	expectError(t, err, codes.InvalidArgument, "-1")
}

func TestList_DamagedVolumeHidesNoOther(t *testing.T) {
	b := newScripted()
	b.list = func() ([]*backend.Volume, error) {
		return []*backend.Volume{
			{ID: "a", Size: gib}, {ID: "b", Condition: backend.Condition{Abnormal: true, Message: "meta.json is truncated"}}, {ID: "c", Size: gib},
		}, nil
	}
	r := newRig(t, b)
	if ids, _ := r.listPage(0, ""); !slices.Equal(ids, []string{"a", "b", "c"}) {
		t.Errorf("listed %v", ids)
	}
}

func TestCapacity_IsThatOfThePoolHere(t *testing.T) {
	r, _ := newMemoryRig(t)
	r.create("v")
	sharedMode := withMode(csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER, mountCapability(""))
	elsewhere := &csi.Topology{Segments: map[string]string{TopologyKey: "node-b"}}
	const left = 1<<40 - 4*gib // rounded down from 1<<40 - gib
	for name, test := range map[string]struct {
		req  *csi.GetCapacityRequest
		want int64
	}{
		"default pool":       {&csi.GetCapacityRequest{}, left},
		"named pool":         {&csi.GetCapacityRequest{Parameters: map[string]string{"pool": "memory"}}, left},
		"this node":          {&csi.GetCapacityRequest{AccessibleTopology: r.driver.topology("")}, left},
		"Kubernetes' keys":   {&csi.GetCapacityRequest{Parameters: map[string]string{reserved + "provisioner-secret-name": "x"}}, left},
		"without a mode yet": {&csi.GetCapacityRequest{VolumeCapabilities: []*csi.VolumeCapability{{}}}, left},
		"another node":       {&csi.GetCapacityRequest{AccessibleTopology: elsewhere}, 0},
		"no such pool here":  {&csi.GetCapacityRequest{AccessibleTopology: r.driver.topology(""), Parameters: map[string]string{"pool": "fats"}}, 0},
		"shared volumes":     {&csi.GetCapacityRequest{VolumeCapabilities: []*csi.VolumeCapability{sharedMode}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			resp, err := r.GetCapacity(r.ctx(), test.req)
			if err != nil || resp.GetAvailableCapacity() != test.want {
				t.Fatalf("got %v, %v, want %d", resp, err, test.want)
			}
			if test.want > 0 && (resp.GetMaximumVolumeSize().GetValue() != left || resp.GetMinimumVolumeSize().GetValue() != 1<<20) {
				t.Errorf("sizes from %v to %v", resp.GetMinimumVolumeSize(), resp.GetMaximumVolumeSize())
			}
		})
	}
	_, err := r.GetCapacity(r.ctx(), &csi.GetCapacityRequest{Parameters: map[string]string{"pool": "fats"}})
	expectError(t, err, codes.InvalidArgument, "fats", "memory")
	_, err = r.GetCapacity(r.ctx(), &csi.GetCapacityRequest{Parameters: map[string]string{"iops": "1"}})
	expectError(t, err, codes.InvalidArgument, "iops")
}

func TestCapacity_ChangesSeldomAndHidesNoClaimOfARoundSize(t *testing.T) {
	answers := map[string]bool{}
	for made := range int64(50) {
		left := int64(1<<40) - made*gib
		r := capacityResponse(backend.Capacity{Available: left, Largest: left})
		answers[r.String()] = true
		if is := r.GetAvailableCapacity(); is > left || left-is > left/128 || is != r.GetMaximumVolumeSize().GetValue() {
			t.Errorf("%d bytes are left, and the answer is %v", left, r)
		}
	}
	if n := len(answers); n > 14 {
		t.Errorf("50 volumes of 1 GiB in a pool of 1 TiB change the answer %d times", n-1)
	}
	for _, unit := range []int64{1, 1 << 20, gib, 1 << 40} {
		for n := range int64(256) {
			claim := (n + 1) * unit
			if is := capacityResponse(backend.Capacity{Largest: claim + unit/3}).GetMaximumVolumeSize().GetValue(); is < claim || is > claim+unit/3 {
				t.Errorf("a claim of %d bytes fits, and the largest is said to be %d", claim, is)
			}
		}
	}
}

func TestCapacity_OvercommitIsNotNegative(t *testing.T) {
	b := newScripted()
	b.capacity = func() (backend.Capacity, error) {
		return backend.Capacity{Total: gib, Promised: 2 * gib, Available: -gib, Largest: -gib}, nil
	}
	r := newRig(t, b)
	resp, err := r.GetCapacity(r.ctx(), &csi.GetCapacityRequest{})
	if err != nil || resp.GetAvailableCapacity() != 0 || resp.GetMaximumVolumeSize().GetValue() != 0 || resp.GetMaximumVolumeSize() == (*wrapperspb.Int64Value)(nil) {
		t.Errorf("got %v, %v", resp, err)
	}
}
