package volume_test

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/operator/volume"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/inmemory"
)

// littered is a cluster whose leader looks for garbage often, and takes what is a moment old.
func littered(t *testing.T, age time.Duration) (*world, *inmemory.Host) {
	w := newWorld(t)
	w.change = func(c *volume.Config) { c.GarbageEvery, c.GarbageAge = 20*time.Millisecond, age }
	return w, w.Hosts(map[string]int64{"a": gib})["a"]
}

// claimed makes a volume for a claim, as external-provisioner asks for it.
func (w *world) claimed(name, claim string) {
	w.Helper()
	s := inmemory.Spec(name, mib)
	s.Labels = map[string]string{
		"csi.storage.k8s.io/pvc/name": claim, "csi.storage.k8s.io/pvc/namespace": "shop", "csi.storage.k8s.io/pv/name": name,
	}
	check.Got(w.Backend.Create(w.Context(), s))(w)
}

func (w *world) persistent(name, handle string) { w.Helper(); w.persistentFor(nil, name, handle) }

func (w *world) persistentFor(claim *core.ObjectReference, name, handle string) {
	w.Helper()
	p := &core.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.CSI = &core.CSIPersistentVolumeSource{Driver: "csi.holdfast.dev", VolumeHandle: handle}
	p.Spec.ClaimRef = claim
	check.Got(w.Theirs.CoreV1().PersistentVolumes().Create(w.Context(), p, metav1.CreateOptions{}))(w)
}

func TestGarbage_OnlyAVolumeThatNoClaimCanUseIsCollected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, host := littered(t, time.Nanosecond)
		w.claimed("garbage", "gone")
		w.claimed("replaced", "bound-to-another")
		w.Claim("bound-to-another", "another")
		w.claimed("awaited", "pending")
		w.Claim("pending", "")
		w.claimed("bound", "gone")
		w.persistent("bound", "bound")
		w.claimed("renamed", "gone")
		w.persistent("by-hand", "renamed")
		w.claimed("unreadable", "gone")
		w.Spoil("unreadable")
		w.claimed("forged", "a/b")                                                 // an agent may write any labels
		check.Got(w.Backend.Create(t.Context(), inmemory.Spec("by-hand", mib)))(t) // without labels
		check.Got(host.Create(t.Context(), backend.VolumeSpec{Name: "found", Size: backend.Size{Required: mib}, Labels: map[string]string{
			"csi.storage.k8s.io/pvc/name": "gone", "csi.storage.k8s.io/pvc/namespace": "shop", "csi.storage.k8s.io/pv/name": "found",
		}}))(t)
		w.Until("the adopted one", func() bool { v := w.Volume("found"); return v != nil && v.Status.CreationTime != nil })
		w.leads()
		w.Gone("garbage")
		w.Gone("replaced")
		w.Until("the marks", func() bool {
			return w.Volume("bound").Annotations["holdfast.dev/bound"] == "true" && w.Volume("renamed").Annotations["holdfast.dev/bound"] == "true"
		})
		// Its PersistentVolume is deleted by a user who keeps the data.
		check.OK(t, w.Theirs.CoreV1().PersistentVolumes().Delete(t.Context(), "bound", metav1.DeleteOptions{}))
		w.claimed("garbage", "gone")
		w.Gone("garbage")
		for _, kept := range []string{"awaited", "bound", "renamed", "unreadable", "forged", "by-hand", "found"} {
			if v := w.Volume(kept); v == nil || v.DeletionTimestamp != nil || !host.Has(backend.ID(kept)) {
				t.Errorf("%s was collected", kept)
			}
		}
		if w.Volume("unreadable").Unreadable() == nil {
			t.Error("one that cannot be read was written")
		}
	})
}

func TestGarbage_YoungVolumeIsNotCollected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := littered(t, time.Hour)
		w.claimed("young", "gone")
		w.leads()
		synctest.Wait()
		w.API.Requests()
		begun := time.Now()
		w.Until("fifty looks", func() bool { return time.Since(begun) > time.Second })
		if n := w.API.Requests()["list persistentvolumes"]; n > 0 {
			t.Errorf("all PersistentVolumes are listed %d times for a volume that is no garbage", n)
		}
		if v := w.Volume("young"); v == nil || v.DeletionTimestamp != nil {
			t.Error("it was collected")
		}
	})
}

func TestGarbage_WithoutCandidatesNothingIsRequested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := littered(t, time.Nanosecond)
		w.claimed("kept", "gone")
		w.persistent("kept", "kept")
		w.leads()
		w.Until("the mark", func() bool { return w.Volume("kept").Annotations["holdfast.dev/bound"] == "true" })
		// What only a round finishes: it has seen the mark, which came before.
		round := func(name string) {
			check.Got(w.Backend.Create(t.Context(), inmemory.Spec(name, mib)))(t)
			check.Got(w.Volumes().Patch(t.Context(), name, types.MergePatchType, requestedBefore(t, w.Volume(name).UID), metav1.PatchOptions{}))(t)
			w.Gone(name)
		}
		round("first")
		w.API.Requests()
		round("second")
		round("third")
		if asked := w.API.Requests()["list persistentvolumes"]; asked > 0 {
			t.Errorf("%d lists were requested", asked)
		}
	})
}

// TestGarbage_VolumeOfAControllerThatDiedBeforeItsResponseIsCollected is a kill between the write of the object and the answer.
func TestGarbage_VolumeOfAControllerThatDiedBeforeItsResponseIsCollected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, host := littered(t, time.Nanosecond)
		check.Got(w.Volumes().Create(t.Context(), &v1beta1.Volume{
			ObjectMeta: metav1.ObjectMeta{Name: "v", Finalizers: []string{v1beta1.AgentFinalizer}},
			Spec: v1beta1.VolumeSpec{Name: "v", Node: "a", ClaimRef: v1beta1.ReferenceTo("shop/gone"), Labels: map[string]string{
				"csi.storage.k8s.io/pvc/name": "gone", "csi.storage.k8s.io/pvc/namespace": "shop", "csi.storage.k8s.io/pv/name": "v",
			}},
		}, metav1.CreateOptions{}))(t)
		w.Until("the volume", func() bool { return host.Has("v") })
		w.leads()
		w.Gone("v")
		if host.Has("v") {
			t.Error("it is still on the disk")
		}
	})
}

// requestedBefore is the patch of a controller that died when it had requested a deletion.
func requestedBefore(t *testing.T, uid types.UID) []byte {
	t.Helper()
	patch := check.Got(json.Marshal(map[string]any{"spec": map[string]any{"deletion": v1beta1.DeletionRequest{
		UID: uid, RequestedBy: "one before", RequestedAt: metav1.NewMicroTime(time.Now().Add(-time.Hour)),
	}}}))(t)
	return patch
}

func TestDeletion_ThatWasRequestedByAControllerThatDiedIsFinishedByTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, host := littered(t, time.Hour)
		check.Got(w.Backend.Create(t.Context(), inmemory.Spec("v", mib)))(t)
		check.Got(w.Backend.Snapshot(t.Context(), backend.SnapshotSpec{Name: "s", Source: "v"}))(t)
		check.Got(w.Volumes().Patch(t.Context(), "v", types.MergePatchType, requestedBefore(t, w.Volume("v").UID), metav1.PatchOptions{}))(t)
		s := check.Got(w.Snapshots().Get(t.Context(), "s", metav1.GetOptions{}))(t)
		check.Got(w.Snapshots().Patch(t.Context(), "s", types.MergePatchType, requestedBefore(t, s.UID), metav1.PatchOptions{}))(t)
		w.leads()
		w.Gone("v")
		w.Until("the end of the snapshot", func() bool {
			_, err := w.Snapshots().Get(t.Context(), "s", metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		})
		if host.Has("v") {
			t.Error("it is on the disk still")
		}
	})
}
