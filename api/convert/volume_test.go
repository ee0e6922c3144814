package convert

import (
	"cmp"
	"reflect"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
)

func FuzzVolume(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		volumeSpecThere(t, &filler{data})
		volumeSpecBack(t, &filler{data})
		volumeThere(t, &filler{data})
		volumeBack(t, &filler{data})
	})
}

func volumeSpecThere(t *testing.T, f *filler) {
	t.Helper()
	var want v1beta1.VolumeSpec
	f.fill(&want)
	if want.Labels != nil {
		want.Labels[v1beta1.ClaimNameLabel], want.Labels[v1beta1.ClaimNamespaceLabel] = f.string(), f.string()
	}
	want.ClaimRef = v1beta1.ReferenceTo(v1beta1.ClaimOf(want.Labels))
	want.Deletion, want.PopulatedBy = nil, ""
	if want.ServerRef != nil {
		want.ServerRef = v1beta1.ReferenceTo("team/files")
	}
	if got := FromVolumeSpec(want.Node, ToVolumeSpec(&want), ToSource(want.SourceRef)); !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("of the object's spec\n%+v came back\n%+v", want, got)
	}
}

func volumeSpecBack(t *testing.T, f *filler) {
	t.Helper()
	var want backend.VolumeSpec
	f.fill(&want)
	want.Nodes, want.NodesYield, want.Ephemeral, want.Incomplete = nil, false, false, false
	if want.Server != "" {
		want.Server = "team/files"
	}
	o := FromVolumeSpec("node", want, nil)
	if got := ToVolumeSpec(&o); !reflect.DeepEqual(got, want) {
		t.Errorf("of the backend's spec\n%+v came back\n%+v", want, got)
	}
}

// volumeThere converts a status there and back, without the fields that the backend does not write.
func volumeThere(t *testing.T, f *filler) {
	t.Helper()
	var o v1beta1.Volume
	f.fill(&o.Status)
	want := &o.Status
	want.Phase, want.Error, want.Attached, want.Copy, want.Conditions, want.ObservedGeneration, want.Columns = "", nil, nil, nil, nil, 0, v1beta1.VolumeColumns{}
	for _, q := range []**resource.Quantity{&want.Size, &want.FSSize, &want.Used} {
		*q = cmp.Or(*q, v1beta1.Quantity(7))
	}
	want.CreationTime = cmp.Or(want.CreationTime, &metav1.MicroTime{Time: time.Unix(7, 0)})
	if a := want.Access; a != nil && a.NFS != nil {
		a.NFS.Server = cmp.Or(a.NFS.Server, "server")
	} else if a != nil {
		a.Image = cmp.Or(a.Image, "/image")
	}
	var got v1beta1.VolumeStatus
	if ShowVolume(&got, ToVolume(&o), "elsewhere"); !equality.Semantic.DeepEqual(&got, want) {
		t.Errorf("of the object's status\n%+v came back\n%+v", want, got)
	}
}

func volumeBack(t *testing.T, f *filler) {
	t.Helper()
	var want backend.Volume
	f.fill(&want)
	want.Name, want.Size = cmp.Or(want.Name, "name"), want.Size+1
	want.Reach, want.Incomplete, want.AttachedTo, want.Detached = backend.ItsHost, false, "", false // a condition, an annotation and a VolumeAttachment say so, which others write
	if want.Server = ""; want.Shared {
		want.Server, want.Reach = "team/files", backend.ManyHosts
		want.Node = v1beta1.NodeOfServer(want.Server)
	}
	if want.Access.NFS != nil {
		want.Access.NFS.Server = cmp.Or(want.Access.NFS.Server, "server")
	}
	want.Condition = condition(f)
	o := v1beta1.Volume{ObjectMeta: metav1.ObjectMeta{Name: string(want.ID)}, Spec: FoundVolume(want.Node, &want)}
	ShowVolume(&o.Status, &want, "elsewhere")
	o.Status.Conditions = []metav1.Condition{FromCondition(want.Condition)}
	if got := ToVolume(&o); !reflect.DeepEqual(got, &want) {
		t.Errorf("of the backend's volume\n%+v came back\n%+v", &want, got)
	}
}

func TestVolume_OfACephPoolIsReachedByItsEngine(t *testing.T) {
	for fsType, want := range map[string]backend.Reach{"ext4": backend.OneHost, "": backend.OneHost, v1beta1.CephFSType: backend.ManyHosts} {
		found := FoundVolume(v1beta1.NodeOfCephPool("p"), &backend.Volume{ID: "v", FSType: fsType})
		if found.Shared || fsType == v1beta1.CephFSType && found.FSType != "" {
			t.Errorf("%q: found as %+v", fsType, found)
		}
		o := v1beta1.Volume{Spec: found, Status: v1beta1.VolumeStatus{FSType: fsType}}
		if v := ToVolume(&o); v.Reach != want || v.Shared || v.Server != "" {
			t.Errorf("%q is reached by %d, shared %t, server %q", fsType, v.Reach, v.Shared, v.Server)
		}
	}
}

// condition returns a condition that a backend may report.
func condition(f *filler) backend.Condition {
	reasons := []backend.HealthReason{backend.Damaged, backend.DeviceErrors, backend.FileSystemErrors, backend.NotGrown, backend.PoolErrors}
	if i := f.number() % 5; i < 4 {
		return backend.Condition{Abnormal: true, Reason: reasons[i], Message: f.string()}
	}
	return backend.Condition{}
}

func TestVolumeSpec_LosesOnlyWhatTheOtherSideDoesNotKnow(t *testing.T) {
	half := resource.MustParse("500m")
	o := v1beta1.VolumeSpec{
		Name: "a", Node: "node", ClaimRef: v1beta1.ReferenceTo("by/hand"), Deletion: &v1beta1.DeletionRequest{UID: "uid"},
		Size: v1beta1.VolumeSize{Required: &half, Limit: v1beta1.Quantity(0)},
	}
	want := v1beta1.VolumeSpec{Name: "a", Node: "node", Size: v1beta1.VolumeSize{Required: v1beta1.Quantity(1)}}
	if got := FromVolumeSpec("node", ToVolumeSpec(&o), nil); !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("the object came back as %+v", got)
	}
	there := FromVolumeSpec("node", backend.VolumeSpec{Name: "a", Nodes: []string{"node", "other"}, Ephemeral: true}, nil)
	if got := ToVolumeSpec(&there); !reflect.DeepEqual(got, backend.VolumeSpec{Name: "a"}) {
		t.Errorf("the backend's came back as %+v", got)
	}
}

func TestVolumeStatus_KeepsTheLastNumbersOfADamagedVolume(t *testing.T) {
	created := metav1.NewMicroTime(time.Unix(1, 2000))
	s := v1beta1.VolumeStatus{Size: v1beta1.Quantity(5), Mode: v1beta1.ModeBlock, CreationTime: &created}
	ShowVolume(&s, &backend.Volume{Pool: "fast", Mode: backend.Filesystem, Created: time.Unix(9, 0)}, "")
	if v1beta1.Bytes(s.Size) != 5 || s.Mode != v1beta1.ModeBlock || !s.CreationTime.Time.Equal(created.Time) || s.Pool != "fast" || s.Used == nil {
		t.Errorf("it is %+v", s)
	}
}

func TestVolumeStatus_HasATimeInWholeMicroseconds(t *testing.T) {
	var s, now v1beta1.VolumeStatus
	if ShowVolume(&s, &backend.Volume{Created: time.Unix(1, 2345)}, ""); !s.CreationTime.Time.Equal(time.Unix(1, 2000)) {
		t.Errorf("it was made at %v", s.CreationTime)
	}
	if ShowVolume(&now, &backend.Volume{}, ""); time.Since(now.CreationTime.Time) > time.Hour {
		t.Errorf("without a time it was made at %v", now.CreationTime)
	}
}

func TestVolumeFound_BecomesTheSameRequest(t *testing.T) {
	v := &backend.Volume{
		ID: "a", Name: "A", Pool: "fast", Size: 5, Mode: backend.Filesystem, FSType: "xfs", Provisioning: backend.Thick, MkfsOptions: []string{"-m"},
		Inodes: 7, Labels: map[string]string{v1beta1.ClaimNameLabel: "data", v1beta1.ClaimNamespaceLabel: "shop"}, OnNodeLoss: backend.DeleteOnNodeLoss,
		Source: &backend.Source{Kind: backend.SourceSnapshot, ID: "s"},
	}
	want := v1beta1.VolumeSpec{
		Name: "A", ClaimRef: v1beta1.ReferenceTo("shop/data"), Node: "node", Pool: "fast", Size: v1beta1.VolumeSize{Required: v1beta1.Quantity(5)}, Mode: v1beta1.ModeFilesystem,
		FSType: v1beta1.XFS, Provisioning: v1beta1.Thick, MkfsOptions: []string{"-m"}, Inodes: 7, Labels: v.Labels, OnNodeLoss: v1beta1.DeleteOnNodeLoss,
		SourceRef: &v1beta1.SourceReference{Kind: v1beta1.SourceSnapshot, Name: "s"},
	}
	if got := FoundVolume("node", v); !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("the request is %+v", got)
	}
}

func TestVolumeFound_WithoutItsMetadataIsNamedByItsID(t *testing.T) {
	got := FoundVolume("team.files.nfs.holdfast.dev", &backend.Volume{ID: "a"})
	if want := (v1beta1.VolumeSpec{Name: "a", Node: "team.files.nfs.holdfast.dev", Shared: true}); !reflect.DeepEqual(got, want) {
		t.Errorf("it is %+v", got)
	}
}

func TestAccess_ToWhatAServerExportsIsAtItsAddress(t *testing.T) {
	exported := backend.Access{NFS: &backend.NFS{Path: "/a"}}
	elsewhere := backend.Access{NFS: &backend.NFS{Server: "10.0.0.9", Path: "/a"}}
	for name, test := range map[string]struct {
		access  backend.Access
		address string
		want    *v1beta1.VolumeNFS
	}{
		"at its address":                 {exported, "10.0.0.7", &v1beta1.VolumeNFS{Server: "10.0.0.7", Path: "/a"}},
		"at another port":                {backend.Access{NFS: &backend.NFS{Port: 3049, Path: "/a"}}, "10.0.0.7", &v1beta1.VolumeNFS{Server: "10.0.0.7", Port: 3049, Path: "/a"}},
		"at the one it knows":            {elsewhere, "10.0.0.7", &v1beta1.VolumeNFS{Server: "10.0.0.9", Path: "/a"}},
		"nowhere as long as it has none": {exported, "", nil},
		"nowhere if not exported":        {backend.Access{}, "10.0.0.7", nil},
	} {
		var s v1beta1.VolumeStatus
		ShowVolume(&s, &backend.Volume{Access: test.access}, test.address)
		o := s.Access
		switch {
		case (o == nil) != (test.want == nil):
			t.Errorf("%s: %+v", name, o)
		case o != nil && (*o.NFS != *test.want || o.Image != "" || o.Directory != ""):
			t.Errorf("%s: %+v", name, o)
		}
	}
	var s v1beta1.VolumeStatus
	if ShowVolume(&s, &backend.Volume{Access: backend.Access{Image: "/i"}}, ""); s.Access.Image != "/i" || s.Access.NFS != nil {
		t.Errorf("of a node it is %+v", s.Access)
	}
}

func TestToVolume_HasTheSourceThatItWasMadeFromOnDisk(t *testing.T) {
	o := &v1beta1.Volume{Spec: v1beta1.VolumeSpec{SourceRef: &v1beta1.SourceReference{Kind: v1beta1.SourceSnapshot, Name: "s"}, PopulatedBy: v1beta1.PopulatedByPod}}
	if v := ToVolume(o); v.Source != nil {
		t.Errorf("made empty by its agent, for a pod to populate it, it is from %v", v.Source)
	}
}
