package admin

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func (r *rig) restores(node string) []v1beta1.RestoreRequest {
	r.Helper()
	n, err := r.kinds.StorageNodes().Get(r.Context(), node, metav1.GetOptions{})
	r.must(err)
	return n.Spec.Restore
}

func TestRestore_BringsTheVolumeBackAndSaysWhatComesNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.agent("")
		r.node("a")
		r.node("b", inTrash("pvc-1", "shop/orders", time.Now()), inTrash("pvc-2", "", time.Now()))
		r.must(r.Restore(t.Context(), "pvc-1", ""))
		r.says("volume pvc-1 (1Gi) is back on b in pool fast", "holdfast volumes adopt pvc-1 --claim shop/orders")
		if !r.has("pvc-1") || len(r.restores("b")) > 0 {
			t.Error("it is not back, or the request is still there")
		}
	})
}

func TestRestore_OfAPartOfACopyIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.agent("")
		part := inTrash("pvc-1", "shop/orders", time.Now())
		part.Incomplete = true
		r.node("a", part)
		r.refuses(r.Restore(t.Context(), "pvc-1", ""), "pvc-1", "trash of a", "before all of its content had been copied", "copy its source again")
		if len(r.restores("a")) > 0 {
			t.Error("it is requested")
		}
	})
}

func TestRestore_IsRequestedByTheControllerInTheNameOfTheUserBesideOtherRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.node("a", inTrash("pvc-1", "", time.Now()))
		other := v1beta1.RestoreRequest{Name: "pvc-0", RequestedBy: "bob"}
		r.change("a", func(n *v1beta1.StorageNode) { n.Spec.Restore = []v1beta1.RestoreRequest{other} })
		r.change("a", func(n *v1beta1.StorageNode) {
			n.Status.Conditions = []metav1.Condition{{Type: v1beta1.ReadyCondition, Status: metav1.ConditionUnknown, Message: "its Lease has run out"}}
		})
		begun := time.Now()
		r.refuses(r.Restore(t.Context(), "pvc-1", ""), "has not finished in time", "a does not renew its Lease (its Lease has run out)", "the request stays")
		all := r.restores("a")
		if len(all) != 2 || all[0] != other || all[1].Name != "pvc-1" || all[1].RequestedBy != user || !all[1].RequestedAt.Time.Equal(begun) {
			t.Errorf("requested are %+v", all)
		}
		want := []string{"PATCH storagenodes/a as system:serviceaccount:storage:holdfast-controller"}
		if w := r.door.written(); !slices.Equal(w, want) {
			t.Errorf("it wrote %q, want %q", w, want)
		}
		r.refuses(r.Restore(t.Context(), "pvc-1", ""), "has not finished in time")
		if w := r.door.written(); !slices.Equal(w, want) {
			t.Errorf("asked again, it wrote %q", w)
		}
	})
}

func TestRestore_RefusedByTheNodeIsReportedAndReverted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.agent("pool fast has 1Gi left, and 2Gi are needed")
		r.node("a", inTrash("pvc-1", "", time.Now()))
		for range 2 { // an earlier error does not affect the next attempt
			r.refuses(r.Restore(t.Context(), "pvc-1", ""), "a could not restore volume pvc-1", "1Gi left, and 2Gi are needed", "withdrawn")
			if all := r.restores("a"); len(all) > 0 {
				t.Errorf("still requested are %+v", all)
			}
		}
	})
}

func TestRestore_ReplacesARequestThatHasFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.agent("")
		r.node("a", inTrash("pvc-1", "", time.Now()))
		r.change("a", func(n *v1beta1.StorageNode) {
			n.Spec.Restore = []v1beta1.RestoreRequest{{Name: "pvc-1", Error: "no room"}}
		})
		r.must(r.Restore(t.Context(), "pvc-1", ""))
	})
}

func TestRestore_OfAVolumeOnSeveralNodesRequiresTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.agent("")
		r.node("a", inTrash("pvc-1", "", time.Now()))
		r.node("b", inTrash("pvc-1", "", time.Now()))
		r.refuses(r.Restore(t.Context(), "pvc-1", ""), "2 nodes, a and b", "--node")
		r.refuses(r.Restore(t.Context(), "pvc-1", "c"), "--node c", "no such StorageNode")
		r.untouched()
		r.must(r.Restore(t.Context(), "pvc-1", "b"))
		r.says("is back on b")
	})
}

// fullTrash is as much as a StorageNode lists.
func fullTrash() []v1beta1.TrashedVolume {
	return slices.Repeat([]v1beta1.TrashedVolume{inTrash("other", "", time.Now())}, trashShown)
}

func TestRestore_OfWhatIsNoLongerListedNeedsTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.agent("")
		r.node("a", fullTrash()...)
		r.node("b")
		r.refuses(r.Restore(t.Context(), "pvc-1", ""), "a lists only the last 100 deleted", "--node")
		r.refuses(r.Restore(t.Context(), "pvc-1", "b"), "no volume pvc-1")
		r.must(r.Restore(t.Context(), "pvc-1", "a"))
		before := len(r.door.written())
		for _, node := range []string{"a", ""} { // again: the volume is not taken for another one
			r.must(r.Restore(t.Context(), "pvc-1", node))
		}
		r.says("no trash lists volume pvc-1: it exists on a and is Ready")
		if w := r.door.written()[before:]; len(w) > 0 {
			t.Errorf("it wrote %q", w)
		}
		r.volume("pvc-2", func(v *v1beta1.Volume) { v.Status.Phase = v1beta1.PhaseLost })
		r.refuses(r.Restore(t.Context(), "pvc-2", ""), "a lists only the last 100 deleted", "holdfast volumes restore pvc-2 --node")
	})
}

func TestAbsent_SaysWhyItIsNotKnownWhetherATrashHasTheVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.node("a", append(fullTrash(), inTrash("pvc-1", "", time.Now()))...)
		r.node("b", inTrash("pvc-1", "", time.Now()))
		r.refuses(r.DeleteVolume(t.Context(), "pvc-1", sure), "no volume pvc-1", "2 nodes, a and b", "holdfast volumes restore pvc-1 --node")
		r.refuses(r.Adopt(t.Context(), Adoption{Volume: "pvc-2", Claim: "shop/orders"}), "no volume pvc-2", "a lists only the last 100 deleted")
		r.door.refused["GET storagenodes"] = "you may not list storagenodes"
		r.refuses(r.DeleteVolume(t.Context(), "pvc-2", sure), "no volume pvc-2", "you may not list")
		r.door.refused = map[string]string{}
		r.door.missing = "storagenodes"
		r.refuses(r.DeleteVolume(t.Context(), "pvc-2", sure), "is Holdfast installed here?")
	})
}

func TestRestore_OfWhatIsNowhereOrThereSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.node("a", inTrash("pvc-2", "", time.Now()))
		r.refuses(r.Restore(t.Context(), "pvc-1", ""), "no volume pvc-1", "holdfast volumes trash")
		r.refuses(r.Restore(t.Context(), "Pvc", ""), `"Pvc"`, "1 to 63")
		r.volume("pvc-1")
		r.must(r.Restore(t.Context(), "pvc-1", ""))
		r.says("no trash lists volume pvc-1: it exists on a and is Ready", "holdfast volumes adopt pvc-1 --claim shop/orders")
		r.pv("pv-1", boundTo(r.aClaim("orders")))
		r.must(r.Restore(t.Context(), "pvc-1", ""))
		r.says("it is bound to claim shop/orders by PersistentVolume pv-1")
		r.volume("pvc-2")
		r.refuses(r.Restore(t.Context(), "pvc-2", ""), "volume pvc-2 exists, on a (Ready)", "an older one of that name")
		r.untouched()
	})
}

func TestRestore_OfAVolumeThatIsLostOrFailedAndInNoTrashFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, phase := range []v1beta1.Phase{v1beta1.PhaseLost, v1beta1.PhaseFailed} {
			r := newRig(t)
			r.node("a")
			r.volume("pvc-1", func(v *v1beta1.Volume) {
				v.Status.Phase = phase
				v.Status.Conditions = []metav1.Condition{{Type: v1beta1.ReadyCondition, Status: metav1.ConditionFalse, Reason: v1beta1.ReasonMissing, Message: "pool fast has no such volume"}}
			})
			r.refuses(r.Restore(t.Context(), "pvc-1", ""), "cannot be restored", "no trash lists it", "on a it is "+string(phase), "pool fast has no such volume")
			r.untouched()
		}
	})
}

func TestRestore_OfAVolumeThatIsBeingDeletedFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.node("a")
		r.volume("pvc-1")
		r.must(r.kinds.Volumes().Delete(t.Context(), "pvc-1", metav1.DeleteOptions{})) // its finalizer is left
		goes := []string{"volume pvc-1 is being deleted", "in the trash afterwards", "holdfast volumes restore pvc-1"}
		r.refuses(r.Restore(t.Context(), "pvc-1", ""), goes...)
		r.change("a", func(n *v1beta1.StorageNode) {
			n.Status.Trash = []v1beta1.TrashedVolume{inTrash("pvc-1", "", time.Now())}
		})
		r.refuses(r.Restore(t.Context(), "pvc-1", ""), goes...)
		r.untouched()
	})
}

func TestRestore_WhoseRequestEndsBecauseTheVolumeIsNotDeletedYetFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.node("a")
		r.change("a", func(n *v1beta1.StorageNode) { n.Spec.Restore = []v1beta1.RestoreRequest{{Name: "pvc-1"}} })
		r.volume("pvc-1")
		r.must(r.kinds.Volumes().Delete(t.Context(), "pvc-1", metav1.DeleteOptions{}))
		done := make(chan error, 1)
		go func() { done <- r.Restore(t.Context(), "pvc-1", "") }()
		r.prints("waiting: a takes volume pvc-1 out of its trash")
		r.change("a", func(n *v1beta1.StorageNode) { n.Spec.Restore = nil })
		r.refuses(<-done, "volume pvc-1 is being deleted")
	})
}

func TestRestore_WithoutTheRightToImpersonateNamesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.node("a", inTrash("pvc-1", "", time.Now()))
		r.door.refused["impersonate"] = "alice cannot impersonate"
		r.refuses(r.Restore(t.Context(), "pvc-1", ""), "verb impersonate on serviceaccounts")
		if strings.Contains(r.out.String(), "waiting") {
			t.Error("it waited all the same")
		}
	})
}

func TestRestore_BringsBackTheDataOfAVolumeThatIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.node("a", inTrash("pvc-1", "shop/orders", time.Now()))
		r.volume("pvc-1", func(v *v1beta1.Volume) { v.Status.Phase = v1beta1.PhaseLost })
		done := make(chan error, 1)
		go func() { done <- r.Restore(t.Context(), "pvc-1", "") }()
		wait.Until(r, "the request", func() bool { return len(r.restores("a")) == 1 })
		v, err := r.kinds.Volumes().Get(t.Context(), "pvc-1", metav1.GetOptions{})
		r.must(err)
		v.Status.Phase = v1beta1.PhaseReady
		_, err = r.kinds.Volumes().UpdateStatus(t.Context(), v, metav1.UpdateOptions{})
		r.must(err)
		r.change("a", func(n *v1beta1.StorageNode) { n.Spec.Restore, n.Status.Trash = nil, nil })
		r.must(<-done)
		r.says("volume pvc-1 (1Gi) is back on a")
		r.volume("pvc-2", func(v *v1beta1.Volume) { v.Spec.Node, v.Status.Phase = "b", v1beta1.PhaseLost })
		r.change("a", func(n *v1beta1.StorageNode) {
			n.Status.Trash = []v1beta1.TrashedVolume{inTrash("pvc-2", "", time.Now())}
		})
		r.refuses(r.Restore(t.Context(), "pvc-2", ""), "exists, on b (Lost)")
	})
}
