package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/backend"
)

func TestADeletionOfWhatIsInUseIsToldAndHappensWhenItIsReleased(t *testing.T) {
	w := newWorld(t)
	host := w.hosts(map[string]int64{"a": gib})["a"]
	if _, err := w.backend.Create(t.Context(), spec("v", mib)); err != nil {
		t.Fatal(err)
	}
	host.refuses("delete", fmt.Errorf("%w: volume v is in use on this host (loop0)", backend.ErrPrecondition))
	for range 2 {
		expect(t, w.backend.Delete(t.Context(), "v"), backend.ErrPrecondition, "loop0")
	}
	if v, err := w.backend.Get(t.Context(), "v"); err != nil || v.Size != mib {
		t.Errorf("meanwhile it is %+v, %v", v, err)
	}
	_, err := w.backend.Create(t.Context(), spec("v", mib))
	expect(t, err, backend.ErrPrecondition, "being deleted")
	host.refuses("delete", nil)
	w.gone("v")
	if host.has("v") {
		t.Error("it is still on the disk")
	}
}

func TestADeletionWithoutTimeGoesOn(t *testing.T) {
	w := newWorld(t)
	w.puppet("a", gib)
	w.controller()
	go w.answer("v", isMade)
	if _, err := w.backend.Create(t.Context(), spec("v", mib)); err != nil {
		t.Fatal(err)
	}
	expect(t, w.unfinished("v is Deleting", func(ctx context.Context) error { return w.backend.Delete(ctx, "v") }), backend.ErrBusy, "node a")
	go w.letGo("v")
	if err := w.backend.Delete(t.Context(), "v"); err != nil {
		t.Error(err)
	}
}

func TestWhatIsNotMadeYetIsNotShownAndCanBeDeleted(t *testing.T) {
	w := newWorld(t)
	w.puppet("a", gib)
	w.controller()
	expect(t, w.unfinished("v is Pending", func(ctx context.Context) error {
		_, err := w.backend.Create(ctx, spec("v", mib))
		return err
	}), backend.ErrBusy)
	_, err := w.backend.Get(t.Context(), "v")
	expect(t, err, backend.ErrNotFound, "not made yet")
	if all, err := w.backend.List(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("listed %v, %v", all, err)
	}
	go w.letGo("v")
	if err := w.backend.Delete(t.Context(), "v"); err != nil {
		t.Error(err)
	}
}

func TestAGrowthThatFailsIsTakenBack(t *testing.T) {
	w := newWorld(t)
	w.hosts(map[string]int64{"a": gib})
	if _, err := w.backend.Create(t.Context(), spec("v", 16*mib)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, err := w.backend.Expand(t.Context(), "v", backend.Size{Required: 2 * gib})
		expect(t, err, backend.ErrExhausted)
		if o := w.volume("v"); o.Spec.Size.Required.Value() != 16*mib {
			t.Fatalf("the object still asks for %s", o.Spec.Size.Required)
		}
	}
	v, err := w.backend.Expand(t.Context(), "v", backend.Size{Required: 32 * mib, Limit: 40 * mib})
	if err != nil || v.Size != 32*mib {
		t.Fatalf("a smaller wish: %+v, %v", v, err)
	}
	w.until("a status without an error", func() bool { return w.volume("v").Status.Error == nil })
}

// TestAGrowthThatFailedAndWasNotTakenBackIsTriedAgain is what is left when a controller dies while it waits.
func TestAGrowthThatFailedAndWasNotTakenBackIsTriedAgain(t *testing.T) {
	w := newWorld(t)
	w.puppet("a", gib)
	w.controller()
	go w.answer("v", isMade)
	if _, err := w.backend.Create(t.Context(), spec("v", mib)); err != nil {
		t.Fatal(err)
	}
	grow := func(ctx context.Context) error {
		_, err := w.backend.Expand(ctx, "v", backend.Size{Required: 5 * mib})
		return err
	}
	wished := func(after *v1.Volume) func() bool {
		return func() bool {
			return errors.Is(w.unfinished("v is Ready", grow), backend.ErrBusy) && w.volume("v").Generation > after.Generation
		}
	}
	w.until("the wish", wished(w.volume("v")))
	asked := w.answer("v", func(v *v1.Volume) {
		v.Status.Error = &v1.Error{Code: v1.ErrorExhausted, Message: "full"}
	})
	w.until("the wish again", wished(asked))
	go w.answer("v", isMade)
	v, err := w.backend.Expand(t.Context(), "v", backend.Size{Required: 5 * mib})
	if err != nil || v.Size != 5*mib {
		t.Errorf("at last: %+v, %v", v, err)
	}
}

func TestWhatIsNotThereCannotGrow(t *testing.T) {
	w := newWorld(t).controller()
	_, err := w.backend.Expand(t.Context(), "absent", backend.Size{Required: mib})
	expect(t, err, backend.ErrNotFound, "absent")
}

func TestWhatAnotherControllerHasJustMadeIsFound(t *testing.T) {
	w := newWorld(t)
	w.puppet("a", gib)
	w.controller()
	release := w.api.HoldWatches()
	defer release()
	v := &v1.Volume{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Spec: v1.VolumeSpec{Name: "v", Node: "a", Size: v1.VolumeSize{Required: bytes(mib)}}}
	if _, err := w.volumes().Create(t.Context(), v, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.answer("v", isMade)
	if got, err := w.backend.Get(t.Context(), "v"); err != nil || got.Size != mib {
		t.Errorf("got %+v, %v", got, err)
	}
	_, err := w.backend.Get(t.Context(), "absent")
	expect(t, err, backend.ErrNotFound, "absent")
	// And what it has just deleted is gone, though nobody has told us that it was there.
	if err := w.volumes().Delete(t.Context(), "v", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := w.backend.Delete(t.Context(), "v"); err != nil {
		t.Error(err)
	}
}

func TestASickVolumeIsShownAsSuch(t *testing.T) {
	w := newWorld(t)
	w.puppet("a", gib)
	w.controller()
	go w.answer("v", isMade)
	if _, err := w.backend.Create(t.Context(), spec("v", mib)); err != nil {
		t.Fatal(err)
	}
	w.answer("v", func(v *v1.Volume) {
		v.Status.Conditions = []metav1.Condition{{Type: v1.HealthyCondition, Status: metav1.ConditionFalse, Reason: v1.ReasonDamaged, Message: "its image is short"}}
		v.Status.Access = &v1.VolumeAccess{Image: "/pool/v/image"}
	})
	w.until("the condition", func() bool {
		v, err := w.backend.Get(t.Context(), "v")
		return err == nil && v.Condition.Abnormal && v.Condition.Message == "its image is short" && v.Access.Image == "/pool/v/image"
	})
}
