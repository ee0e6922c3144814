package convert

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
)

func FuzzPool(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		poolThere(t, &filler{data})
		poolBack(t, &filler{data})
	})
}

// poolThere converts a status there and back, without the fields that the backend does not write.
func poolThere(t *testing.T, f *filler) {
	t.Helper()
	var want, got v1beta1.Pool
	f.fill(&want)
	want.Name, want.Path, want.Engine, want.Reason, want.Message, want.Volumes, want.Snapshots = "", "", "", "", "", 0, 0
	if want.ID == "" {
		want.Generation = 0
	}
	if ShowCapacity(&got, ToCapacity(&want)); !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("of the pool's status\n%+v came back\n%+v", want, got)
	}
}

func poolBack(t *testing.T, f *filler) {
	t.Helper()
	var want backend.Capacity
	f.fill(&want)
	want.Condition = backend.Condition{}
	if want.Identity.ID == "" {
		want.Identity.Generation = 0
	}
	var o v1beta1.Pool
	if ShowCapacity(&o, want); !reflect.DeepEqual(ToCapacity(&o), want) {
		t.Errorf("of the backend's pool\n%+v came back\n%+v", want, ToCapacity(&o))
	}
}

func TestPool_KeepsAnIdentityThatIsKnown(t *testing.T) {
	p := v1beta1.Pool{ID: "a", Generation: 3}
	if ShowCapacity(&p, backend.Capacity{Total: 5}); p.ID != "a" || p.Generation != 3 || p.Capacity.Value() != 5 {
		t.Errorf("it is %+v", p)
	}
}

func TestPool_UnreachableHasTheReasonOfItsBackend(t *testing.T) {
	for want, reason := range map[string]backend.PoolReason{
		v1beta1.ReasonNotMounted: backend.NotMounted, v1beta1.ReasonWrongPool: backend.WrongPool, v1beta1.ReasonNoDisk: backend.NoDisk, v1beta1.ReasonPoolFailing: "",
	} {
		if got := FromPoolError(backend.BecauseOf(reason, errors.New("away"))); got != want {
			t.Errorf("%q became %s", reason, got)
		}
	}
}

func TestTrashedVolume_IsShownInWholeSeconds(t *testing.T) {
	got := FromTrashed(backend.Trashed{
		ID: "a", Name: "A", Pool: "fast", Size: 5, Labels: map[string]string{v1beta1.ClaimNameLabel: "data", v1beta1.ClaimNamespaceLabel: "shop"},
		Deleted: time.Unix(1, 5), Expires: time.Unix(2, 5), Incomplete: true,
	})
	want := v1beta1.TrashedVolume{
		Name: "a", ClaimRef: v1beta1.ReferenceTo("shop/data"), Pool: "fast", Size: *v1beta1.Quantity(5), DeletionTime: metav1.Unix(1, 0), ExpirationTime: metav1.Unix(2, 0),
		Incomplete: true,
	}
	if !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("it is %+v", got)
	}
}
