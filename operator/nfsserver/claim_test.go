package nfsserver

import (
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// persistent is the PersistentVolume that bind has made.
func (r *rig) persistent() *core.PersistentVolume {
	r.Helper()
	return check.Got(r.theirs.CoreV1().PersistentVolumes().Get(r.Context(), r.namespace, metav1.GetOptions{}))(r)
}

func (r *rig) claim(name string) *core.PersistentVolumeClaim {
	r.Helper()
	return wait.Get(r, r.theirs.CoreV1().PersistentVolumeClaims(r.namespace).Get, name)
}

// serveOn makes a server whose claim is bound to a PersistentVolume that would be deleted with it.
func (r *rig) serveOn(name string, change func(*v1beta1.NFSServerSpec)) {
	r.Helper()
	r.create(name, change)
	r.bindTo("nfs-"+name, noClass, core.PersistentVolumeReclaimDelete)
	wait.Until(r, "the data to be kept", func() bool {
		pv := r.persistent()
		return pv.Spec.PersistentVolumeReclaimPolicy == core.PersistentVolumeReclaimRetain && pv.Annotations[dataAnnotation] == r.namespace+"/"+name &&
			pv.Annotations[policyAnnotation] == string(core.PersistentVolumeReclaimDelete)
	})
}

func TestClaim_DeletedByHandIsMadeAgainForTheDataThatItHad(t *testing.T) {
	r := newRig(t)
	r.serveOn("data", nil)
	before := r.claim("nfs-data")
	claims := r.theirs.CoreV1().PersistentVolumeClaims(r.namespace)
	check.OK(t, claims.Delete(t.Context(), "nfs-data", metav1.DeleteOptions{}))
	// No pod runs anywhere, but the API server's protection waits for one that was chosen a node.
	wait.Until(r, "another claim, bound to the same data", func() bool {
		now := r.claim("nfs-data")
		return now != nil && now.UID != before.UID && now.Spec.VolumeName == r.namespace && now.Status.Phase == core.ClaimBound
	})
	pv := r.persistent()
	if pv.Spec.ClaimRef.UID != r.claim("nfs-data").UID || pv.Annotations[policyAnnotation] != string(core.PersistentVolumeReclaimDelete) ||
		pv.Annotations["pv.kubernetes.io/provisioned-by"] != "a test" {
		t.Errorf("the PersistentVolume is bound to %+v and has the annotations %v", pv.Spec.ClaimRef, pv.Annotations)
	}
	wait.Until(r, "the event", func() bool { return len(r.events.with("Warning ClaimRestored")) == 1 })
}

// releaseByHand writes the PersistentVolume as a script or a restore may.
func (r *rig) releaseByHand() {
	r.Helper()
	patch := []byte(`{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`)
	check.Got(r.theirs.CoreV1().PersistentVolumes().Patch(r.Context(), r.namespace, types.MergePatchType, patch, metav1.PatchOptions{}))(r)
}

func (r *rig) keptAgain() {
	r.Helper()
	wait.Until(r, "the data to be kept again", func() bool {
		pv := r.persistent()
		return pv.Spec.PersistentVolumeReclaimPolicy == core.PersistentVolumeReclaimRetain && pv.Annotations[policyAnnotation] == string(core.PersistentVolumeReclaimDelete)
	})
}

func TestClaim_DataIsKeptAgainWhenItsPolicyWasChanged(t *testing.T) {
	r := newRig(t)
	r.serveOn("data", nil)
	claim := r.claim("nfs-data")
	wait.Until(r, "the controller to know it", func() bool { _, known := r.controller.kept.Load(claim.UID); return known })
	claims := r.theirs.CoreV1().PersistentVolumeClaims(r.namespace)

	r.releaseByHand()
	r.controller.kept.Store(claim.UID, time.Now().Add(-keptFor))
	r.change("data", func(s *v1beta1.NFSServerSpec) { s.MaxExports = 3 })
	r.keptAgain()

	wait.Until(r, "the controller to know it again", func() bool {
		at, known := r.controller.kept.Load(claim.UID)
		return known && time.Since(at.(time.Time)) < keptFor
	})
	inUse := []byte(`{"metadata":{"finalizers":["test.holdfast.dev/in-use"]}}`)
	check.Got(claims.Patch(t.Context(), "nfs-data", types.MergePatchType, inUse, metav1.PatchOptions{}))(t)
	t.Cleanup(func() {
		_, _ = claims.Patch(background, "nfs-data", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	})
	r.releaseByHand()
	check.OK(t, claims.Delete(t.Context(), "nfs-data", metav1.DeleteOptions{}))
	r.keptAgain()
}

func TestClaim_OfAServerThatIsGoneGetsItsReclaimPolicyBack(t *testing.T) {
	for _, policy := range []core.PersistentVolumeReclaimPolicy{core.PersistentVolumeReclaimRetain, core.PersistentVolumeReclaimDelete} {
		t.Run(string(policy), func(t *testing.T) {
			r := newRig(t)
			r.serveOn("data", func(s *v1beta1.NFSServerSpec) { s.ReclaimPolicy = policy })
			r.delete("data")
			r.gone("data")
			pv := r.persistent()
			if pv.Spec.PersistentVolumeReclaimPolicy != core.PersistentVolumeReclaimDelete || pv.Annotations[dataAnnotation] != "" || pv.Annotations[policyAnnotation] != "" {
				t.Errorf("the PersistentVolume has the policy %s and the annotations %v", pv.Spec.PersistentVolumeReclaimPolicy, pv.Annotations)
			}
			if kept := r.claim("nfs-data") != nil; kept != (policy == core.PersistentVolumeReclaimRetain) {
				t.Errorf("the claim is there: %t", kept)
			}
		})
	}
}

func TestClaim_DataWithoutAClaimStaysWhenItsServerGoes(t *testing.T) {
	r := newRig(t)
	r.serveOn("data", nil)
	r.stop()
	claims := r.theirs.CoreV1().PersistentVolumeClaims(r.namespace)
	check.OK(t, claims.Delete(t.Context(), "nfs-data", metav1.DeleteOptions{}))
	wait.Until(r, "the end of the claim", func() bool { return r.claim("nfs-data") == nil })
	r.delete("data")
	r.start()
	r.gone("data")
	if pv := r.persistent(); pv.Spec.PersistentVolumeReclaimPolicy != core.PersistentVolumeReclaimRetain {
		t.Errorf("the data goes with policy %s", pv.Spec.PersistentVolumeReclaimPolicy)
	}
}

// The policy that refuses it is not there: the operator of the StorageCluster does not run.
func TestClaim_DataOfANamespaceThatWasDeletedIsServedAgain(t *testing.T) {
	r := newRig(t)
	r.serveOn("data", nil)
	r.made(r.volume(r.server("data"), "a"))
	r.serve("data")
	namespaces := r.theirs.CoreV1().Namespaces()
	check.OK(t, namespaces.Delete(t.Context(), r.namespace, metav1.DeleteOptions{}))
	r.condition("data", v1beta1.ProgressingCondition, reasonInUse, "it has 1 volume", "namespace "+r.namespace+" is being deleted", "docs/nfs-servers.md")

	free := []byte(`{"metadata":{"finalizers":null}}`)
	check.Got(r.ours.HoldfastV1beta1().NFSServers(r.namespace).Patch(t.Context(), "data", types.MergePatchType, free, metav1.PatchOptions{}))(t)
	wait.Until(r, "the end of the namespace", func() bool {
		_, err := namespaces.Get(t.Context(), r.namespace, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	r.makeNamespace(nil)
	r.create("data", nil)
	wait.Until(r, "a claim that is bound to the data", func() bool {
		now := r.claim("nfs-data")
		return now != nil && now.Spec.VolumeName == r.namespace && now.Status.Phase == core.ClaimBound
	})
	r.serve("data")
}
