package admin

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func (r *rig) restores(node string) []v1beta1.RestoreRequest {
	r.Helper()
	return check.Got(r.kinds.StorageNodes().Get(r.Context(), node, metav1.GetOptions{}))(r).Spec.Restore
}

func (r *rig) requestsRestores(node string, all ...v1beta1.RestoreRequest) {
	r.Helper()
	r.change(node, func(n *v1beta1.StorageNode) { n.Spec.Restore = all })
}

// beginRestore restores pvc-1 beside the test.
func (r *rig) beginRestore() (ended <-chan error) {
	done := make(chan error, 1)
	go func() { done <- r.Restore(r.Context(), "pvc-1", "") }()
	return done
}

func inPhase(phase v1beta1.Phase) func(*v1beta1.Volume) {
	return func(v *v1beta1.Volume) { v.Status.Phase = phase }
}

func TestRestore_BringsTheVolumeBackAndSaysWhatComesNext(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agent("")
		r.node("a")
		r.node("b", inTrash("pvc-1", "shop/orders", time.Now()), inTrash("pvc-2", "", time.Now()))
		r.requestsRestores("b", v1beta1.RestoreRequest{Name: "pvc-1", Error: "no room"}) // one that has failed is replaced
		r.must(r.Restore(r.Context(), "pvc-1", ""))
		r.says("volume pvc-1 (1Gi) is back on b in pool fast", "holdfast volumes adopt pvc-1 --claim shop/orders")
		if !r.has("pvc-1") || len(r.restores("b")) > 0 {
			r.Error("it is not back, or the request is still there")
		}
	})
}

func TestRestore_OfWhatIsNotThereAloneOrWholeIsRefused(t *testing.T) {
	inBubble(t, func(r *rig) {
		part := inTrash("pvc-1", "shop/orders", time.Now())
		part.Incomplete = true
		r.node("a", part, inTrash("pvc-2", "", time.Now()), inTrash("pvc-3", "", time.Now()))
		r.node("b", inTrash("pvc-3", "", time.Now()))
		r.volume("pvc-2", func(v *v1beta1.Volume) { v.Spec.Node, v.Status.Phase = "b", v1beta1.PhaseLost })
		for name, says := range map[string][]string{
			"pvc-1": {"pvc-1", "trash of a", "before all of its content had been copied", "copy its source again"},
			"pvc-2": {"exists, on b (Lost)"},
			"pvc-3": {"2 nodes, a and b", "--node"},
			"pvc-9": {"no volume pvc-9", "holdfast volumes trash"},
		} {
			r.refuses(r.Restore(r.Context(), name, ""), says...)
		}
		r.refuses(r.Restore(r.Context(), "pvc-3", "c"), "--node c", "no such StorageNode")
		r.door.refused["impersonate"] = "alice cannot impersonate"
		r.refuses(r.Restore(r.Context(), "pvc-3", "b"), "verb impersonate on serviceaccounts")
		r.untouched()
		r.door.refused = nil
		r.agent("")
		r.must(r.Restore(r.Context(), "pvc-3", "b"))
		r.says("is back on b")
	})
}

func TestRestore_IsRequestedByTheControllerInTheNameOfTheUserBesideOtherRequests(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.node("a", inTrash("pvc-1", "", time.Now()))
		other := v1beta1.RestoreRequest{Name: "pvc-0", RequestedBy: "bob"}
		r.requestsRestores("a", other)
		r.change("a", func(n *v1beta1.StorageNode) {
			n.Status.Conditions = []metav1.Condition{{Type: v1beta1.ReadyCondition, Status: metav1.ConditionUnknown, Message: "its Lease has run out"}}
		})
		begun := time.Now()
		r.refuses(r.Restore(r.Context(), "pvc-1", ""), "has not finished in time", "a does not renew its Lease (its Lease has run out)", "the request stays")
		all := r.restores("a")
		if len(all) != 2 || all[0] != other || all[1].Name != "pvc-1" || all[1].RequestedBy != user || !all[1].RequestedAt.Time.Equal(begun) {
			r.Errorf("requested are %+v", all)
		}
		r.refuses(r.Restore(r.Context(), "pvc-1", ""), "has not finished in time")
		r.wrote("PATCH storagenodes/a as system:serviceaccount:storage:holdfast-controller") // once
	})
}

func TestRestore_RefusedByTheNodeIsReportedAndReverted(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agent("pool fast has 1Gi left, and 2Gi are needed")
		r.node("a", inTrash("pvc-1", "", time.Now()))
		for range 2 { // an earlier error does not affect the next attempt
			r.refuses(r.Restore(r.Context(), "pvc-1", ""), "a could not restore volume pvc-1", "1Gi left, and 2Gi are needed", "withdrawn")
			if all := r.restores("a"); len(all) > 0 {
				r.Errorf("still requested are %+v", all)
			}
		}
	})
}

// fullTrash is as much as a StorageNode lists.
func fullTrash() []v1beta1.TrashedVolume {
	return slices.Repeat([]v1beta1.TrashedVolume{inTrash("other", "", time.Now())}, trashShown)
}

func TestRestore_OfWhatIsNoLongerListedNeedsTheNode(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agent("")
		r.node("a", fullTrash()...)
		r.node("b")
		r.refuses(r.Restore(r.Context(), "pvc-1", ""), "a lists only the last 100 deleted", "--node")
		r.refuses(r.Restore(r.Context(), "pvc-1", "b"), "no volume pvc-1")
		r.must(r.Restore(r.Context(), "pvc-1", "a"))
		before := r.door.written()
		for _, node := range []string{"a", ""} { // again: the volume is not taken for another one
			r.must(r.Restore(r.Context(), "pvc-1", node))
		}
		r.says("no trash lists volume pvc-1: it exists on a and is Ready")
		r.wrote(before...)
		r.volume("pvc-2", inPhase(v1beta1.PhaseLost))
		r.refuses(r.Restore(r.Context(), "pvc-2", ""), "a lists only the last 100 deleted", "holdfast volumes restore pvc-2 --node")
	})
}

func TestAbsent_SaysWhyItIsNotKnownWhetherATrashHasTheVolume(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.node("a", append(fullTrash(), inTrash("pvc-1", "", time.Now()))...)
		r.node("b", inTrash("pvc-1", "", time.Now()))
		r.refuses(r.DeleteVolume(r.Context(), "pvc-1", sure), "no volume pvc-1", "2 nodes, a and b", "holdfast volumes restore pvc-1 --node")
		r.refuses(r.Adopt(r.Context(), Adoption{Volume: "pvc-2", Claim: "shop/orders"}), "no volume pvc-2", "a lists only the last 100 deleted")
		r.door.refused["GET storagenodes"] = "you may not list storagenodes"
		r.refuses(r.DeleteVolume(r.Context(), "pvc-2", sure), "no volume pvc-2", "you may not list")
		r.door.refused, r.door.missing = nil, "storagenodes"
		r.refuses(r.DeleteVolume(r.Context(), "pvc-2", sure), "is Holdfast installed here?")
	})
}

func TestRestore_OfAVolumeThatExistsSaysHowItIs(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.node("a", inTrash("pvc-2", "", time.Now()))
		r.volume("pvc-1")
		r.must(r.Restore(r.Context(), "pvc-1", ""))
		r.says("no trash lists volume pvc-1: it exists on a and is Ready", "holdfast volumes adopt pvc-1 --claim shop/orders")
		r.pv("pv-1", boundTo(r.aClaim("orders")))
		r.must(r.Restore(r.Context(), "pvc-1", ""))
		r.says("it is bound to claim shop/orders by PersistentVolume pv-1")
		r.volume("pvc-2")
		r.refuses(r.Restore(r.Context(), "pvc-2", ""), "volume pvc-2 exists, on a (Ready)", "an older one of that name")
		for name, phase := range map[string]v1beta1.Phase{"pvc-3": v1beta1.PhaseLost, "pvc-4": v1beta1.PhaseFailed} {
			r.volume(name, inPhase(phase), func(v *v1beta1.Volume) {
				v.Status.Conditions = []metav1.Condition{{Type: v1beta1.ReadyCondition, Status: metav1.ConditionFalse, Reason: v1beta1.ReasonMissing, Message: "pool fast has no such volume"}}
			})
			r.refuses(r.Restore(r.Context(), name, ""), "cannot be restored", "no trash lists it", "on a it is "+string(phase), "pool fast has no such volume")
		}
		for _, name := range []string{"pvc-1", "pvc-2"} { // of which the second is in the trash already; their finalizers are left
			r.must(r.kinds.Volumes().Delete(r.Context(), name, metav1.DeleteOptions{}))
			r.refuses(r.Restore(r.Context(), name, ""), "volume "+name+" is being deleted", "in the trash afterwards", "holdfast volumes restore "+name)
		}
		r.untouched()
	})
}

func TestRestore_WhoseRequestEndsBecauseTheVolumeIsNotDeletedYetFails(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.node("a")
		r.requestsRestores("a", v1beta1.RestoreRequest{Name: "pvc-1"})
		r.volume("pvc-1")
		r.must(r.kinds.Volumes().Delete(r.Context(), "pvc-1", metav1.DeleteOptions{}))
		ended := r.beginRestore()
		r.prints("waiting: a takes volume pvc-1 out of its trash")
		r.requestsRestores("a")
		r.refuses(<-ended, "volume pvc-1 is being deleted")
	})
}

func TestRestore_BringsBackTheDataOfAVolumeThatIsLost(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.node("a", inTrash("pvc-1", "shop/orders", time.Now()))
		r.volume("pvc-1", inPhase(v1beta1.PhaseLost))
		ended := r.beginRestore()
		wait.Until(r, "the request", func() bool { return len(r.restores("a")) == 1 })
		r.becomes("pvc-1", v1beta1.PhaseReady)
		r.change("a", func(n *v1beta1.StorageNode) { n.Spec.Restore, n.Status.Trash = nil, nil })
		r.must(<-ended)
		r.says("volume pvc-1 (1Gi) is back on a")
	})
}
