package convert

import (
	"cmp"
	"reflect"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
)

func FuzzSnapshot(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		snapshotThere(t, &filler{data})
		snapshotBack(t, &filler{data})
		groupBack(t, &filler{data})
	})
}

func snapshotThere(t *testing.T, f *filler) {
	t.Helper()
	var o v1beta1.Snapshot
	f.fill(&o.Spec)
	f.fill(&o.Status)
	o.Spec.Deletion, o.Spec.SourceRef.Kind = nil, v1beta1.SourceVolume
	group := o.Spec.Group
	if group != nil {
		group = FromGroup(ToGroup(group))
	}
	if spec := FromSnapshotSpec(o.Spec.Node, ToSnapshotSpec(&o.Spec), group); !equality.Semantic.DeepEqual(spec, o.Spec) {
		t.Errorf("of the object's spec\n%+v came back\n%+v", o.Spec, spec)
	}
	want := &o.Status
	want.Phase, want.Error, want.Conditions, want.ObservedGeneration, want.Consistency, want.Columns = "", nil, nil, 0, "", v1beta1.SnapshotColumns{}
	want.Size, want.Used = cmp.Or(want.Size, v1beta1.Quantity(7)), cmp.Or(want.Used, v1beta1.Quantity(7))
	want.CreationTime = cmp.Or(want.CreationTime, &metav1.MicroTime{Time: time.Unix(7, 0)})
	var got v1beta1.SnapshotStatus
	if ShowSnapshot(&got, ToSnapshot(&o)); !equality.Semantic.DeepEqual(&got, want) {
		t.Errorf("of the object's status\n%+v came back\n%+v", want, got)
	}
}

func snapshotBack(t *testing.T, f *filler) {
	t.Helper()
	var want backend.Snapshot
	f.fill(&want)
	want.Name, want.Source, want.Size = cmp.Or(want.Name, "name"), cmp.Or(want.Source, "source"), want.Size+1
	if want.Shared {
		want.Node = "team.files.nfs.holdfast.dev"
	}
	want.Condition = condition(f)
	o := v1beta1.Snapshot{ObjectMeta: metav1.ObjectMeta{Name: string(want.ID)}, Spec: FoundSnapshot(want.Node, &want, nil)}
	ShowSnapshot(&o.Status, &want)
	o.Status.Conditions = []metav1.Condition{FromCondition(want.Condition)}
	if got := ToSnapshot(&o); !reflect.DeepEqual(got, &want) {
		t.Errorf("of the backend's snapshot\n%+v came back\n%+v", &want, got)
	}
}

func groupBack(t *testing.T, f *filler) {
	t.Helper()
	var want backend.GroupSpec
	f.fill(&want)
	if got := ToGroup(FromGroup(want)); !reflect.DeepEqual(got, want) {
		t.Errorf("of the group\n%+v came back\n%+v", want, got)
	}
}

func TestSnapshotFound_WithoutItsMetadataIsNamedByItsID(t *testing.T) {
	got := FoundSnapshot("node", &backend.Snapshot{ID: "s"}, nil)
	if want := (v1beta1.SnapshotSpec{Name: "s", SourceRef: v1beta1.FromVolume("unknown"), Node: "node"}); !reflect.DeepEqual(got, want) {
		t.Errorf("it is %+v", got)
	}
}

func TestSnapshotStatus_KeepsTheLastNumbersOfADamagedSnapshot(t *testing.T) {
	s := v1beta1.SnapshotStatus{Size: v1beta1.Quantity(5), FSType: "xfs"}
	if ShowSnapshot(&s, &backend.Snapshot{Pool: "fast"}); v1beta1.Bytes(s.Size) != 5 || s.FSType != "xfs" || s.Pool != "fast" {
		t.Errorf("it is %+v", s)
	}
}
