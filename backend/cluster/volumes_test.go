package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/inmemory"
)

func TestDelete_VolumeInUseIsReportedAndDeletedOnRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		host := w.Hosts(map[string]int64{"a": gib})["a"]
		check.Got(w.Backend.Create(t.Context(), inmemory.Spec("v", mib)))(t)
		host.Refuses("delete", fmt.Errorf("%w: volume v is in use on this host (loop0)", backend.ErrPrecondition))
		for range 2 {
			inmemory.Expect(t, w.Backend.Delete(t.Context(), "v"), backend.ErrPrecondition, "loop0")
		}
		if v, err := w.Backend.Get(t.Context(), "v"); err != nil || v.Size != mib {
			t.Errorf("while it is in use, it is %+v, %v", v, err)
		}
		_, err := w.Backend.Create(t.Context(), inmemory.Spec("v", mib))
		inmemory.Expect(t, err, backend.ErrPrecondition, "being deleted")
		host.Refuses("delete", nil)
		w.Gone("v")
		if host.Has("v") {
			t.Error("it is still on the disk")
		}
	})
}

func TestDelete_ExpiredCallContinues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Puppet("a", gib)
		w.Start()
		go w.Answer("v", inmemory.Made)
		check.Got(w.Backend.Create(t.Context(), inmemory.Spec("v", mib)))(t)
		inmemory.Expect(t, w.Unfinished("v is Deleting", func(ctx context.Context) error { return w.Backend.Delete(ctx, "v") }), backend.ErrBusy, "node a")
		go w.RemoveFinalizer("v")
		check.Report(t, w.Backend.Delete(t.Context(), "v"))
	})
}

func TestDelete_UnfinishedVolumeIsHiddenAndCanBeDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Puppet("a", gib)
		w.Start()
		inmemory.Expect(t, w.Unfinished("v is Pending", func(ctx context.Context) error {
			_, err := w.Backend.Create(ctx, inmemory.Spec("v", mib))
			return err
		}), backend.ErrBusy)
		_, err := w.Backend.Get(t.Context(), "v")
		inmemory.Expect(t, err, backend.ErrNotFound, "not made yet")
		if all, err := w.Backend.List(t.Context()); err != nil || len(all) > 0 {
			t.Errorf("listed %v, %v", all, err)
		}
		go w.RemoveFinalizer("v")
		check.Report(t, w.Backend.Delete(t.Context(), "v"))
	})
}

func TestExpand_FailureIsReverted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Hosts(map[string]int64{"a": gib})
		check.Got(w.Backend.Create(t.Context(), inmemory.Spec("v", 16*mib)))(t)
		for range 2 {
			_, err := w.Backend.Expand(t.Context(), "v", backend.Size{Required: 2 * gib})
			inmemory.Expect(t, err, backend.ErrExhausted)
			if o := w.Volume("v"); o.Spec.Size.Required.Value() != 16*mib {
				t.Fatalf("the object still asks for %s", o.Spec.Size.Required)
			}
		}
		v, err := w.Backend.Expand(t.Context(), "v", backend.Size{Required: 32 * mib, Limit: 40 * mib})
		if err != nil || v.Size != 32*mib {
			t.Fatalf("a smaller placement: %+v, %v", v, err)
		}
		w.Until("a status without an error", func() bool { return w.Volume("v").Status.Error == nil })
	})
}

// TestExpand_FailureThatWasNotRevertedIsRetried is what is left when a controller dies while it waits.
func TestExpand_FailureThatWasNotRevertedIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Puppet("a", gib)
		w.Start()
		go w.Answer("v", inmemory.Made)
		check.Got(w.Backend.Create(t.Context(), inmemory.Spec("v", mib)))(t)
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
		v, err := w.Backend.Expand(t.Context(), "v", backend.Size{Required: 5 * mib})
		if err != nil || v.Size != 5*mib {
			t.Errorf("at last: %+v, %v", v, err)
		}
	})
}

func TestExpand_MissingVolumeIsNotFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t).started()
		_, err := w.Backend.Expand(t.Context(), "absent", backend.Size{Required: mib})
		inmemory.Expect(t, err, backend.ErrNotFound, "absent")
	})
}

func TestGet_VolumeJustCreatedByAnotherControllerIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Puppet("a", gib)
		w.Start()
		release := w.API.HoldWatches()
		defer release()
		v := &v1beta1.Volume{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Spec: v1beta1.VolumeSpec{Name: "v", Node: "a", Size: v1beta1.VolumeSize{Required: resource.NewQuantity(mib, resource.BinarySI)}}}
		check.Got(w.Volumes().Create(t.Context(), v, metav1.CreateOptions{}))(t)
		w.Answer("v", inmemory.Made)
		if got, err := w.Backend.Get(t.Context(), "v"); err != nil || got.Size != mib {
			t.Errorf("got %+v, %v", got, err)
		}
		_, err := w.Backend.Get(t.Context(), "absent")
		inmemory.Expect(t, err, backend.ErrNotFound, "absent")
		// And what it has just deleted is gone, though no watch has reported its object.
		check.OK(t, w.Volumes().Delete(t.Context(), "v", metav1.DeleteOptions{}))
		check.Report(t, w.Backend.Delete(t.Context(), "v"))
	})
}

func TestGet_SickVolumeIsReportedSick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Puppet("a", gib)
		w.Start()
		go w.Answer("v", inmemory.Made)
		check.Got(w.Backend.Create(t.Context(), inmemory.Spec("v", mib)))(t)
		w.Answer("v", func(v *v1beta1.Volume) {
			v.Status.Conditions = []metav1.Condition{{Type: v1beta1.HealthyCondition, Status: metav1.ConditionFalse, Reason: v1beta1.ReasonDamaged, Message: "its image is short"}}
			v.Status.Access = &v1beta1.VolumeAccess{Image: "/pool/v/image"}
		})
		w.Until("the condition", func() bool {
			v, err := w.Backend.Get(t.Context(), "v")
			return err == nil && v.Condition.Abnormal && v.Condition.Message == "its image is short" && v.Access.Image == "/pool/v/image"
		})
	})
}
