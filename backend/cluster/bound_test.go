package cluster_test

import (
	"testing"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/inmemory"
)

// boundTo makes a PersistentVolume of volume v that says it is bound to the claim shop/data.
func (w *world) boundTo(name string, uid types.UID) {
	w.Helper()
	p := &core.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.CSI = &core.CSIPersistentVolumeSource{Driver: "csi.holdfast.dev", VolumeHandle: "v"}
	p.Spec.ClaimRef = &core.ObjectReference{Namespace: "shop", Name: "data", UID: uid}
	check.Got(w.Theirs.CoreV1().PersistentVolumes().Create(w.Context(), p, metav1.CreateOptions{}))(w)
}

// claimed makes the claim shop/data, which has that PersistentVolume.
func (w *world) claimed(pv string) types.UID {
	w.Helper()
	w.Claim("data", pv)
	claim := check.Got(w.Theirs.CoreV1().PersistentVolumeClaims("shop").Get(w.Context(), "data", metav1.GetOptions{}))(w)
	return claim.UID
}

func TestDelete_AVolumeOfALivingClaimIsRefusedByName(t *testing.T) {
	inBubble(t, func(w *world) {
		claim := w.claimed("by-hand")
		w.boundTo("released", "of a claim before") // as the provisioner sees it
		w.boundTo("by-hand", claim)
		host := w.Hosts(map[string]int64{"a": gib})["a"]
		check.Got(w.Backend.Create(w.Context(), inmemory.Spec("v", mib)))(w)
		inmemory.Expect(w, w.Backend.Delete(w.Context(), "v"), backend.ErrPrecondition, "shop/data", "by-hand")
		if v := w.Volume("v"); v == nil || v.DeletionTimestamp != nil || v.Spec.Deletion != nil || !host.Has("v") {
			w.Errorf("it was deleted: %+v", v)
		}
		check.OK(w, w.Theirs.CoreV1().PersistentVolumeClaims("shop").Delete(w.Context(), "data", metav1.DeleteOptions{}))
		if err := w.Backend.Delete(w.Context(), "v"); err != nil || host.Has("v") {
			w.Errorf("after the claim: %v, on the disk: %t", err, host.Has("v"))
		}
	})
}

// An administrator wrote PersistentVolumes for the export of a shared volume, which name no driver.
func TestDelete_ASharedVolumeIsRefusedWhileAClaimHasItAsAnExport(t *testing.T) {
	inBubble(t, func(w *world) {
		claim := w.claimed("by-hand")
		for name, path := range map[string]string{"by-hand": "/v/logs", "other": "/v0"} {
			p := &core.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
			p.Spec.NFS = &core.NFSVolumeSource{Server: "nfs.example", Path: path}
			p.Spec.ClaimRef = &core.ObjectReference{Namespace: "shop", Name: "data", UID: claim}
			check.Got(w.Theirs.CoreV1().PersistentVolumes().Create(w.Context(), p, metav1.CreateOptions{}))(w)
		}
		w.Servers(map[string]int64{inmemory.ServerA: gib}, map[string]int64{"node-a": gib})
		check.Got(w.Backend.Create(w.Context(), inmemory.SharedSpec("v", mib, "", "node-a")))(w)
		inmemory.Expect(w, w.Backend.Delete(w.Context(), "v"), backend.ErrPrecondition, "shop/data", "by-hand")
		check.OK(w, w.Theirs.CoreV1().PersistentVolumeClaims("shop").Delete(w.Context(), "data", metav1.DeleteOptions{}))
		check.Report(w, w.Backend.Delete(w.Context(), "v")) // after the claim
	})
}
