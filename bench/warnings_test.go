package bench

import (
	"slices"
	"testing"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// warn is the n-th occurrence of an event about a claim.
func warn(id, claim, message string, n int32) *core.Event {
	return &core.Event{
		ObjectMeta: metav1.ObjectMeta{UID: types.UID(id)}, Type: core.EventTypeWarning, Reason: "ProvisioningFailed", Message: message, Count: n,
		InvolvedObject: core.ObjectReference{Kind: "PersistentVolumeClaim", Name: claim},
	}
}

func TestWarnings_SameMessageOfManyObjectsIsOne(t *testing.T) {
	w := newWarnings()
	w.add(warn("a", "claim-1-1", `no room for pvc-0a1b2c3d-0000-1111-2222-333344445555 of claim-1-1 in 25a647fd4feadd3f1877095d22a9ec48`, 1))
	w.add(warn("b", "claim-1-2", `no room for pvc-ffffffff-0000-1111-2222-333344445555 of claim-1-2 in 0000000000111111111122222222223333333333`, 1))
	w.add(warn("c", "claim-1-2", "another thing", 1))
	want := []Warning{
		{Kind: "PersistentVolumeClaim", Reason: "ProvisioningFailed", Message: "no room for pvc-ID of NAME in ID", Objects: 2, Count: 2},
		{Kind: "PersistentVolumeClaim", Reason: "ProvisioningFailed", Message: "another thing", Objects: 1, Count: 1},
	}
	if got := w.all(); !slices.Equal(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func TestWarnings_RepeatedEventCountsItsCount(t *testing.T) {
	w := newWarnings()
	for _, n := range []int32{1, 2, 2, 5} {
		w.add(warn("a", "claim-1-1", "no room", n))
	}
	w.add(warn("b", "claim-1-1", "no room", 1))
	series := warn("c", "claim-1-1", "no room", 0)
	series.Series = &core.EventSeries{Count: 3}
	w.add(series)
	if got := w.all(); len(got) != 1 || got[0].Count != 9 || got[0].Objects != 1 {
		t.Errorf("got %+v, want 5 + 1 + 3 times of one object", got)
	}
}

func TestWarnings_OtherEventsAreNotCounted(t *testing.T) {
	s := newSeen("here")
	normal := warn("a", "claim-1-1", "all is well", 1)
	normal.Type = core.EventTypeNormal
	s.warningEvent(event{kind: watch.Added, object: normal})
	s.warningEvent(event{kind: watch.Deleted, object: warn("b", "claim-1-1", "no room", 1)})
	if got := s.warnings.all(); len(got) != 0 {
		t.Errorf("got %+v", got)
	}
	s.warningEvent(event{kind: watch.Modified, object: warn("b", "claim-1-1", "no room", 1)})
	if got := s.warnings.all(); len(got) != 1 {
		t.Errorf("got %+v", got)
	}
	if why := s.why("PersistentVolumeClaim", "claim-1-1"); why != "ProvisioningFailed: no room" {
		t.Errorf("the reason of the claim is %q", why)
	}
}
