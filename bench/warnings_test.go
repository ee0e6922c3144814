package bench

import (
	"slices"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// warn is the n-th occurrence of an event about an object.
func warn(id, kind, name, message string, n int32) *core.Event {
	return &core.Event{
		ObjectMeta: metav1.ObjectMeta{UID: types.UID(id)}, Type: core.EventTypeWarning, Reason: "ProvisioningFailed", Message: message, Count: n,
		InvolvedObject: core.ObjectReference{Kind: kind, Name: name},
	}
}

func TestWarnings_OfManyObjectsAndTimesAreCountedByTheirMessage(t *testing.T) {
	s := newSeen("here")
	about := func(id, claim, message string, counts ...int32) {
		for _, n := range counts {
			s.warningEvent(warn(id, "Claim", claim, message, n), false, time.Time{})
		}
	}
	about("a", "claim-1-1", "no room for pvc-0a1b2c3d-0000-1111-2222-333344445555 of claim-1-1 in 25a647fd4feadd3f1877095d22a9ec48", 1, 2, 2, 5)
	about("b", "claim-1-2", "no room for pvc-ffffffff-0000-1111-2222-333344445555 of claim-1-2 in 0000000000111111111122222222223333333333", 1)
	series := warn("c", "Claim", "claim-1-2", "another thing", 0)
	series.Series = &core.EventSeries{Count: 3}
	s.warningEvent(series, false, time.Time{})
	normal := warn("d", "Claim", "claim-1-1", "all is well", 1)
	normal.Type = core.EventTypeNormal
	s.warningEvent(normal, false, time.Time{})
	s.warningEvent(warn("e", "Claim", "claim-1-1", "deleted", 1), true, time.Time{})
	want := []Warning{
		{Kind: "Claim", Reason: "ProvisioningFailed", Message: "no room for pvc-ID of NAME in ID", Objects: 2, Count: 6},
		{Kind: "Claim", Reason: "ProvisioningFailed", Message: "another thing", Objects: 1, Count: 3},
	}
	if got := s.warnings.all(); !slices.Equal(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if why := s.why("Claim", "claim-1-2"); why != "ProvisioningFailed: another thing" {
		t.Errorf("the reason of the claim is %q", why)
	}
}
