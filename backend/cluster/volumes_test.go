package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/inmemory"
)

func TestDelete_VolumeInUseIsReportedAndDeletedOnRelease(t *testing.T) {
	inBubble(t, func(w *world) {
		host := w.Hosts(map[string]int64{"a": gib})["a"]
		check.Got(w.Backend.Create(w.Context(), inmemory.Spec("v", mib)))(w)
		host.Refuses("delete", fmt.Errorf("%w: volume v is in use on this host (loop0)", backend.ErrPrecondition))
		for range 2 {
			inmemory.Expect(w, w.Backend.Delete(w.Context(), "v"), backend.ErrPrecondition, "loop0")
		}
		if v, err := w.Backend.Get(w.Context(), "v"); err != nil || v.Size != mib {
			w.Errorf("while it is in use, it is %+v, %v", v, err)
		}
		inmemory.Refused(w.Backend.Create(w.Context(), inmemory.Spec("v", mib)))(w, backend.ErrPrecondition, "being deleted")
		host.Refuses("delete", nil)
		w.Gone("v")
		if host.Has("v") {
			w.Error("it is still on the disk")
		}
	})
}

func TestDelete_UnfinishedVolumeIsHiddenAndAnExpiredCallContinues(t *testing.T) {
	inBubble(t, func(w *world) {
		w.Puppet("a", gib)
		w.Start()
		inmemory.Expect(w, w.Unfinished("v is Pending", func(ctx context.Context) error {
			_, err := w.Backend.Create(ctx, inmemory.Spec("v", mib))
			return err
		}), backend.ErrBusy)
		inmemory.Refused(w.Backend.Get(w.Context(), "v"))(w, backend.ErrNotFound, "not made yet")
		if all, err := w.Backend.List(w.Context()); err != nil || len(all) > 0 {
			w.Errorf("listed %v, %v", all, err)
		}
		go w.RemoveFinalizer("v")
		check.OK(w, w.Backend.Delete(w.Context(), "v"))
		go w.Answer("v", inmemory.Made)
		check.Got(w.Backend.Create(w.Context(), inmemory.Spec("v", mib)))(w)
		deleted := func(ctx context.Context) error { return w.Backend.Delete(ctx, "v") }
		inmemory.Expect(w, w.Unfinished("v is Deleting", deleted), backend.ErrBusy, "node a")
		go w.RemoveFinalizer("v")
		check.Report(w, deleted(w.Context()))
	})
}

func TestExpand_FailureIsReverted(t *testing.T) { inBubble(t, revertsGrowth) }

func revertsGrowth(w *world) {
	w.Hosts(map[string]int64{"grown-" + rand.String(5): gib})
	check.Got(w.Backend.Create(w.Context(), inmemory.Spec("v", 16*mib)))(w)
	for range 2 {
		inmemory.Refused(w.Backend.Expand(w.Context(), "v", backend.Size{Required: 2 * gib, Limit: 3 * gib}))(w, backend.ErrExhausted)
		if o := w.Volume("v"); o.Spec.Size.Required.Value() != 16*mib {
			w.Fatalf("the object still asks for %s", o.Spec.Size.Required)
		}
	}
	v, err := w.Backend.Expand(w.Context(), "v", backend.Size{Required: 32 * mib, Limit: 40 * mib})
	if o := w.Volume("v"); err != nil || v.Size != 32*mib || o.Spec.Size.Required.Value() != 32*mib {
		w.Fatalf("a smaller placement: %+v of %+v, %v", v, o.Spec.Size, err)
	}
	w.Until("a status without an error", func() bool { return w.Volume("v").Status.Error == nil })
}

// TestExpand_FailureThatWasNotRevertedIsRetried is what is left when a controller dies while it waits.
func TestExpand_FailureThatWasNotRevertedIsRetried(t *testing.T) {
	inBubble(t, func(w *world) {
		w.Puppet("a", gib)
		w.Start()
		go w.Answer("v", inmemory.Made)
		check.Got(w.Backend.Create(w.Context(), inmemory.Spec("v", mib)))(w)
		grow := func(ctx context.Context) error {
			_, err := w.Backend.Expand(ctx, "v", backend.Size{Required: 5 * mib})
			return err
		}
		wished := func(after *v1beta1.Volume) func() bool {
			return func() bool {
				return errors.Is(w.Unfinished("v is Ready", grow), backend.ErrBusy) && w.Volume("v").Generation > after.Generation
			}
		}
		w.Until("the requested size", wished(w.Volume("v")))
		asked := w.Answer("v", func(v *v1beta1.Volume) {
			v.Status.Error = &v1beta1.Error{Code: v1beta1.ErrorExhausted, Message: "full"}
		})
		w.Until("the requested size again", wished(asked))
		go w.Answer("v", inmemory.Made)
		v, err := w.Backend.Expand(w.Context(), "v", backend.Size{Required: 5 * mib})
		if err != nil || v.Size != 5*mib {
			w.Errorf("at last: %+v, %v", v, err)
		}
	})
}

func TestGet_VolumeJustCreatedByAnotherControllerIsFound(t *testing.T) {
	inBubble(t, func(w *world) {
		w.Puppet("a", gib)
		w.Start()
		release := w.API.HoldWatches()
		defer release()
		v := &v1beta1.Volume{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Spec: v1beta1.VolumeSpec{Name: "v", Node: "a", Size: v1beta1.VolumeSize{Required: resource.NewQuantity(mib, resource.BinarySI)}}}
		check.Got(w.Volumes().Create(w.Context(), v, metav1.CreateOptions{}))(w)
		w.Answer("v", inmemory.Made)
		if got, err := w.Backend.Get(w.Context(), "v"); err != nil || got.Size != mib {
			w.Errorf("got %+v, %v", got, err)
		}
		inmemory.Refused(w.Backend.Get(w.Context(), "absent"))(w, backend.ErrNotFound, "absent")
		// And what it has just deleted is gone, though no watch has reported its object.
		check.OK(w, w.Volumes().Delete(w.Context(), "v", metav1.DeleteOptions{}))
		check.Report(w, w.Backend.Delete(w.Context(), "v"))
	})
}

func TestGet_SickVolumeIsReportedSick(t *testing.T) {
	inBubble(t, func(w *world) {
		w.Puppet("a", gib)
		w.Start()
		go w.Answer("v", inmemory.Made)
		check.Got(w.Backend.Create(w.Context(), inmemory.Spec("v", mib)))(w)
		w.Answer("v", func(v *v1beta1.Volume) {
			v.Status.Conditions = []metav1.Condition{{Type: v1beta1.HealthyCondition, Status: metav1.ConditionFalse, Reason: v1beta1.ReasonDamaged, Message: "its image is short"}}
			v.Status.Access = &v1beta1.VolumeAccess{Image: "/pool/v/image"}
		})
		w.Until("the condition", func() bool {
			v, err := w.Backend.Get(w.Context(), "v")
			return err == nil && v.Condition.Abnormal && v.Condition.Message == "its image is short" && v.Access.Image == "/pool/v/image"
		})
	})
}
