package apply

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestDisown_TakesTheOwnersFromWhatIsOwnedAndLeavesTheRest(t *testing.T) {
	started(t, func(t *testing.T, r *rig) {
		mine, theirs := configMap("mine", "1"), configMap("theirs", "1")
		mine.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Owner", Name: "a", UID: "1"}})
		theirs.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Owner", Name: "b", UID: "2"}})
		r.apply(mine, theirs)
		r.seen(mine)
		r.seen(theirs)
		found := r.set.OwnedBy("1")
		if len(found) != 1 || found[0].GetName() != "mine" {
			t.Fatalf("found %v", found)
		}
		check.OK(t, r.set.Disown(t.Context(), found[0]))
		live := r.live(mine)
		if len(live.GetOwnerReferences()) > 0 {
			t.Errorf("it is owned by %v", live.GetOwnerReferences())
		}
		r.seen(live)
		if found := r.set.OwnedBy("1"); len(found) > 0 {
			t.Errorf("found %v afterwards", found)
		}
		if found := r.set.OwnedBy("2"); len(found) != 1 {
			t.Errorf("of the other owner there are %v", found)
		}
		check.OK(t, r.client.Resource(configMaps.GroupVersion().WithResource("configmaps")).Namespace(namespace).Delete(t.Context(), "mine", metav1.DeleteOptions{}))
		if err := r.set.Disown(t.Context(), live); err != nil {
			t.Errorf("what is gone: %v", err)
		}
	})
}
