package cluster_test

import (
	"encoding/json"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/cluster"
)

// littered is a cluster whose leader looks for garbage often, and takes what is a moment old.
func littered(t *testing.T, age time.Duration) (*world, *host) {
	w := newWorld(t)
	w.change = func(c *cluster.Config) { c.GarbageEvery, c.GarbageAge = 20*time.Millisecond, age }
	return w, w.hosts(map[string]int64{"a": gib})["a"]
}

// claimed makes a volume for a claim, as external-provisioner asks for it.
func (w *world) claimed(name, claim string) {
	w.Helper()
	s := spec(name, mib)
	s.Labels = map[string]string{
		"csi.storage.k8s.io/pvc/name": claim, "csi.storage.k8s.io/pvc/namespace": "shop", "csi.storage.k8s.io/pv/name": name,
	}
	if _, err := w.backend.Create(w.Context(), s); err != nil {
		w.Fatal(err)
	}
}

func (w *world) claim(name, volume string) {
	w.Helper()
	c := &core.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: core.PersistentVolumeClaimSpec{VolumeName: volume}}
	if _, err := w.theirs.CoreV1().PersistentVolumeClaims("shop").Create(w.Context(), c, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) persistent(name, handle string) {
	w.Helper()
	p := &core.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.CSI = &core.CSIPersistentVolumeSource{Driver: "csi.holdfast.dev", VolumeHandle: handle}
	if _, err := w.theirs.CoreV1().PersistentVolumes().Create(w.Context(), p, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

func TestOnlyAVolumeThatNobodyCanWantIsCollected(t *testing.T) {
	w, host := littered(t, time.Nanosecond)
	w.claimed("garbage", "gone")
	w.claimed("replaced", "bound-to-another")
	w.claim("bound-to-another", "another")
	w.claimed("wanted", "pending")
	w.claim("pending", "")
	w.claimed("bound", "gone")
	w.persistent("bound", "bound")
	w.claimed("renamed", "gone")
	w.persistent("by-hand", "renamed")
	if _, err := w.backend.Create(t.Context(), spec("by-hand", mib)); err != nil { // without labels
		t.Fatal(err)
	}
	if _, err := host.Create(t.Context(), backend.VolumeSpec{Name: "found", Size: backend.Size{Required: mib}, Labels: map[string]string{
		"csi.storage.k8s.io/pvc/name": "gone", "csi.storage.k8s.io/pvc/namespace": "shop", "csi.storage.k8s.io/pv/name": "found",
	}}); err != nil {
		t.Fatal(err)
	}
	w.until("the adopted one", func() bool { v := w.volume("found"); return v != nil && v.Status.Created != nil })
	w.leads()
	w.gone("garbage")
	w.gone("replaced")
	w.until("the marks", func() bool {
		return w.volume("bound").Annotations["holdfast.dev/bound"] == "true" && w.volume("renamed").Annotations["holdfast.dev/bound"] == "true"
	})
	for _, kept := range []string{"wanted", "bound", "renamed", "by-hand", "found"} {
		if v := w.volume(kept); v == nil || v.DeletionTimestamp != nil {
			t.Errorf("%s was collected", kept)
		}
	}
}

// TestAVolumeThatWasBoundOnceIsNeverGarbage: its PersistentVolume was deleted by someone who wanted to keep the data.
func TestAVolumeThatWasBoundOnceIsNeverGarbage(t *testing.T) {
	w, host := littered(t, time.Nanosecond)
	w.claimed("kept", "gone")
	w.persistent("kept", "kept")
	w.leads()
	w.until("the mark", func() bool { return w.volume("kept").Annotations["holdfast.dev/bound"] == "true" })
	if err := w.theirs.CoreV1().PersistentVolumes().Delete(t.Context(), "kept", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.claimed("garbage", "gone")
	w.gone("garbage")
	if !host.has("kept") || w.volume("kept").DeletionTimestamp != nil {
		t.Error("it was collected")
	}
}

func TestAYoungVolumeIsNotCollected(t *testing.T) {
	w, _ := littered(t, time.Hour)
	w.claimed("young", "gone")
	w.leads()
	w.api.Requests()
	w.until("three looks", func() bool { return w.counted("list persistentvolumes") >= 3 })
	if v := w.volume("young"); v == nil || v.DeletionTimestamp != nil {
		t.Error("it was collected")
	}
}

func TestWhereNothingIsOpenNothingIsAsked(t *testing.T) {
	w, _ := littered(t, time.Nanosecond)
	w.claimed("kept", "gone")
	w.persistent("kept", "kept")
	w.leads()
	w.until("the mark", func() bool { return w.volume("kept").Annotations["holdfast.dev/bound"] == "true" })
	// What only a round finishes: it has seen the mark, which came before.
	round := func(name string) {
		if _, err := w.backend.Create(t.Context(), spec(name, mib)); err != nil {
			t.Fatal(err)
		}
		if _, err := w.volumes().Patch(t.Context(), name, types.MergePatchType, requestedBefore(t, w.volume(name).UID), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		w.gone(name)
	}
	round("first")
	w.api.Requests()
	round("second")
	round("third")
	if asked := w.api.Requests()["list persistentvolumes"]; asked > 0 {
		t.Errorf("%d lists were asked for", asked)
	}
}

// counted adds up what was asked since the last reset.
func (w *world) counted(what string) int {
	n := w.api.Requests()[what]
	w.seen += n
	return w.seen
}

// TestAVolumeWhoseControllerDiedBeforeItAnsweredIsCollected is a kill between the write of the object and the answer.
func TestAVolumeWhoseControllerDiedBeforeItAnsweredIsCollected(t *testing.T) {
	w, host := littered(t, time.Nanosecond)
	if _, err := w.volumes().Create(t.Context(), &v1.Volume{
		ObjectMeta: metav1.ObjectMeta{Name: "v", Finalizers: []string{v1.AgentFinalizer}},
		Spec: v1.VolumeSpec{Name: "v", Node: "a", Claim: "shop/gone", Labels: map[string]string{
			"csi.storage.k8s.io/pvc/name": "gone", "csi.storage.k8s.io/pvc/namespace": "shop", "csi.storage.k8s.io/pv/name": "v",
		}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.until("the volume", func() bool { return host.has("v") })
	w.leads()
	w.gone("v")
	if host.has("v") {
		t.Error("it is still on the disk")
	}
}

// requestedBefore is the patch of a controller that died when it had requested a deletion.
func requestedBefore(t *testing.T, uid types.UID) []byte {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"deletion": v1.DeletionRequest{
		UID: uid, RequestedBy: "one before", RequestedAt: metav1.NewMicroTime(time.Now().Add(-time.Hour)),
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return patch
}

func TestDeletion_ThatWasRequestedByAControllerThatDiedIsFinishedByTheNext(t *testing.T) {
	w, host := littered(t, time.Hour)
	if _, err := w.backend.Create(t.Context(), spec("v", mib)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.backend.Snapshot(t.Context(), backend.SnapshotSpec{Name: "s", Source: "v"}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.volumes().Patch(t.Context(), "v", types.MergePatchType, requestedBefore(t, w.volume("v").UID), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	s, err := w.snapshots().Get(t.Context(), "s", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.snapshots().Patch(t.Context(), "s", types.MergePatchType, requestedBefore(t, s.UID), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	w.leads()
	w.gone("v")
	w.until("the end of the snapshot", func() bool {
		_, err := w.snapshots().Get(t.Context(), "s", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	if host.has("v") {
		t.Error("it is on the disk still")
	}
}
