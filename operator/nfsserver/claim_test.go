package nfsserver

import (
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// persistent is the PersistentVolume that bind has made.
func (r *rig) persistent() *core.PersistentVolume {
	r.Helper()
	return check.Got(r.theirs.CoreV1().PersistentVolumes().Get(r.Context(), r.namespace, metav1.GetOptions{}))(r)
}

// serveOn makes a server whose claim is bound to a PersistentVolume that would be deleted with it.
func (r *rig) serveOn(name string, change func(*v1beta1.NFSServerSpec)) {
	r.Helper()
	r.create(name, change)
	r.bind("nfs-"+name, core.PersistentVolumeReclaimDelete)
	wait.Until(r, "the data to be kept", func() bool {
		pv := r.persistent()
		return pv.Spec.PersistentVolumeReclaimPolicy == core.PersistentVolumeReclaimRetain && pv.Annotations[dataAnnotation] == r.namespace+"/"+name &&
			pv.Annotations[policyAnnotation] == string(core.PersistentVolumeReclaimDelete)
	})
}

// A script, or a restore, may write its policy at any time.
func TestClaim_DataIsKeptAgainWhenItsPolicyWasChanged(t *testing.T) {
	known := func(ago time.Duration) func(*Controller, *round) {
		return func(c *Controller, r *round) { c.kept.Store(r.claim.UID, r.now.Add(-ago)) }
	}
	for name, test := range map[string]struct {
		policy core.PersistentVolumeReclaimPolicy
		before func(*Controller, *round)
		keeps  bool
	}{
		"it is kept":                  {retained, known(keptFor), false},
		"of a controller that is new": {removed, func(*Controller, *round) {}, true},
		"a moment ago it was kept":    {removed, known(time.Second), false},
		"long ago it was kept":        {removed, known(keptFor), true},
		"its claim is being deleted": {removed, func(c *Controller, r *round) {
			known(time.Second)(c, r)
			r.claim.DeletionTimestamp = new(metav1.Now())
		}, true},
	} {
		r := look(func(r *round) { r.claim.UID, r.claim.Spec.VolumeName = "claim", "pv" })
		c := &Controller{Config: Config{Kubernetes: fake.NewClientset(persistentVolume(r.claim, test.policy, removed))}}
		test.before(c, r)
		check.OK(t, c.observeClaim(t.Context(), r.server, &r.observed))
		p := newPlan(r.desired, r.observed)
		if keeps := p.patchVolume != nil; keeps != test.keeps || p.again != keptFor {
			t.Errorf("%s: it is kept now: %t, and looked at after %s", name, keeps, p.again)
		}
		at, _ := c.kept.Load(r.claim.UID)
		if test.policy == retained && at != r.now {
			t.Errorf("%s: it is known to be kept since %v", name, at)
		}
	}
}

func TestClaim_DataIsKeptAgainBeforeItsDeletedClaimGoes(t *testing.T) {
	r := newRig(t)
	r.serveOn("data", nil)
	uid := r.claim("nfs-data").UID
	wait.Until(r, "the controller to know it", func() bool { _, known := r.controller.kept.Load(uid); return known })
	claims, patch := r.theirs.CoreV1().PersistentVolumeClaims(r.namespace), types.MergePatchType
	inUse := []byte(`{"metadata":{"finalizers":["test.holdfast.dev/in-use"]}}`)
	check.Got(claims.Patch(t.Context(), "nfs-data", patch, inUse, metav1.PatchOptions{}))(t)
	t.Cleanup(func() {
		_, _ = claims.Patch(background, "nfs-data", patch, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	})
	byHand := []byte(`{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`)
	check.Got(r.theirs.CoreV1().PersistentVolumes().Patch(t.Context(), r.namespace, patch, byHand, metav1.PatchOptions{}))(t)
	check.OK(t, claims.Delete(t.Context(), "nfs-data", metav1.DeleteOptions{}))
	wait.Until(r, "the data to be kept again", func() bool {
		pv := r.persistent()
		return pv.Spec.PersistentVolumeReclaimPolicy == retained && pv.Annotations[policyAnnotation] == string(removed)
	})
	if claim := r.claim("nfs-data"); claim == nil || claim.UID != uid {
		t.Error("the claim went before its data was kept again")
	}
}

func TestClaim_OfAServerThatIsGoneGetsItsReclaimPolicyBack(t *testing.T) {
	for _, policy := range []core.PersistentVolumeReclaimPolicy{core.PersistentVolumeReclaimRetain, core.PersistentVolumeReclaimDelete} {
		t.Run(string(policy), func(t *testing.T) {
			r := newRig(t)
			r.serveOn("data", func(s *v1beta1.NFSServerSpec) { s.ReclaimPolicy = policy })
			r.stop()
			r.delete("data")
			r.start() // another controller goes on with it
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
	pv := r.persistent()
	if pv.Spec.ClaimRef.UID != r.claim("nfs-data").UID || pv.Annotations["pv.kubernetes.io/provisioned-by"] != "a test" ||
		pv.Annotations[policyAnnotation] != string(core.PersistentVolumeReclaimDelete) {
		t.Errorf("the PersistentVolume is bound to %+v and has the annotations %v", pv.Spec.ClaimRef, pv.Annotations)
	}
	wait.Until(r, "the event", func() bool { return len(r.events.With("Warning ClaimRestored")) == 1 })
	r.serve("data")
}
