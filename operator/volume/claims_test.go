package volume_test

import (
	"strings"
	"testing"
	"testing/synctest"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/cluster"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/inmemory"
)

const protection = "kubernetes.io/pvc-protection"

// boundClaim writes the claim of a volume and its PersistentVolume, as they are when the claim is bound.
func (w *world) boundClaim(volume string, change func(*core.PersistentVolumeClaim)) *core.PersistentVolumeClaim {
	w.Helper()
	claim := w.newClaim(volume, change)
	w.bind(claim, volume)
	return claim
}

// newClaim writes a claim that names the PersistentVolume of a volume.
func (w *world) newClaim(volume string, change func(*core.PersistentVolumeClaim)) *core.PersistentVolumeClaim {
	w.Helper()
	claim := &core.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: "claim-of-" + volume, Namespace: "shop", Labels: map[string]string{"app": "till"},
			Annotations: map[string]string{
				"note": "of the user", "pv.kubernetes.io/bind-completed": "yes", "volume.kubernetes.io/selected-node": "a",
			},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "till", UID: "1", Controller: new(true)}},
		},
		Spec: core.PersistentVolumeClaimSpec{
			VolumeName: "pv-of-" + volume, StorageClassName: new("holdfast"), AccessModes: []core.PersistentVolumeAccessMode{core.ReadWriteOnce},
			Resources:  core.VolumeResourceRequirements{Requests: core.ResourceList{core.ResourceStorage: resource.MustParse("1Mi")}},
			DataSource: &core.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "template"},
		},
	}
	if change != nil {
		change(claim)
	}
	return check.Got(w.Theirs.CoreV1().PersistentVolumeClaims("shop").Create(w.Context(), claim, metav1.CreateOptions{}))(w)
}

func (w *world) claimOf(volume string) *core.PersistentVolumeClaim {
	claim, err := w.Theirs.CoreV1().PersistentVolumeClaims("shop").Get(w.Context(), "claim-of-"+volume, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return claim
}

// releaseClaim takes the finalizer off, as happens when the last pod is gone.
func (w *world) releaseClaim(volume string) {
	w.Helper()
	w.Until("the end of the old claim", func() bool {
		claim := w.claimOf(volume)
		if claim == nil || claim.DeletionTimestamp == nil {
			return false
		}
		claim.Finalizers = nil
		_, err := w.Theirs.CoreV1().PersistentVolumeClaims("shop").Update(w.Context(), claim, metav1.UpdateOptions{})
		return err == nil
	})
}

// renewing is a cluster whose leader watches claims, with a volume that shall not outlive its node.
func renewing(t *testing.T) (*world, map[string]*inmemory.Host) {
	w := newWorld(t)
	w.Change = func(c *cluster.Config) { c.Driver = "csi.holdfast.dev" }
	for _, name := range []string{"a", "b"} {
		w.KubernetesNode(name)
	}
	hosts := w.Hosts(map[string]int64{"a": gib, "b": gib})
	w.leads()
	w.made("v", "a", backend.DeleteOnNodeLoss)
	return w, hosts
}

// bind writes the PersistentVolume of a claim.
func (w *world) bind(claim *core.PersistentVolumeClaim, handle string) {
	w.Helper()
	w.persistentFor(&core.ObjectReference{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}, claim.Spec.VolumeName, handle)
}

func TestRenew_ClaimOfAVolumeThatIsGivenUpIsRecreated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := renewing(t)
		old := w.boundClaim("v", nil)
		w.down("a")
		w.deleteNode("a")
		w.Gone("v")
		claim := w.claimOf("v")
		if claim == nil || claim.UID == old.UID || claim.DeletionTimestamp != nil {
			t.Fatalf("the claim is %+v", claim)
		}
		if claim.Spec.VolumeName != "" || claim.Spec.DataSource != nil || claim.Spec.Resources.Requests.Storage().String() != "1Mi" || *claim.Spec.StorageClassName != "holdfast" {
			t.Errorf("it asks for %+v", claim.Spec)
		}
		if len(claim.Annotations) != 1 || claim.Annotations["note"] != "of the user" || claim.Labels["app"] != "till" || len(claim.OwnerReferences) != 1 {
			t.Errorf("it is %+v", claim.ObjectMeta)
		}
		w.Until("the record of the node being forgotten, which is last", func() bool {
			n, err := w.Nodes().Get(t.Context(), "a", metav1.GetOptions{})
			return apierrors.IsNotFound(err) || err == nil && len(n.Spec.Discard) > 0
		})
		written := w.written()
		if given := written["VolumeGivenUp"]; given != 2 || written["VolumeReplaced"] != 1 { // on the volume and its claim; on the new claim
			t.Errorf("the events are %v", written)
		}
	})
}

func TestRenew_ClaimIsRecreatedWhenItsLastPodHasReleasedIt(t *testing.T) {
	for name, change := range map[string]func(*world, map[string]*inmemory.Host){
		"and nothing else": func(*world, map[string]*inmemory.Host) {},
		"and the node is back": func(w *world, hosts map[string]*inmemory.Host) {
			w.KubernetesNode("a")
			w.Agent("a", hosts["a"])
			w.Ready("a")
		},
		"and another leads":         func(w *world, _ map[string]*inmemory.Host) { w.Stop(); w.started().leads() },
		"and its volume is deleted": func(w *world, _ map[string]*inmemory.Host) { go func() { _ = w.Backend.Delete(w.Context(), "v") }() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, hosts := renewing(t)
				old := w.boundClaim("v", func(c *core.PersistentVolumeClaim) { c.Finalizers = []string{protection} })
				w.down("a")
				w.deleteNode("a")
				w.Until("the deletion of the claim being requested", func() bool { return w.claimOf("v").DeletionTimestamp != nil })
				if v := w.Volume("v"); v == nil {
					t.Error("what the new claim needs is gone")
				}
				w.T = t
				change(w, hosts)
				w.releaseClaim("v")
				w.Until("the new claim", func() bool { c := w.claimOf("v"); return c != nil && c.UID != old.UID })
				w.Gone("v")
			})
		})
	}
}

func TestRenew_ClaimRecreatedByAnotherIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := renewing(t)
		w.boundClaim("v", func(c *core.PersistentVolumeClaim) { c.Finalizers = []string{protection} })
		w.down("a")
		w.deleteNode("a")
		w.Until("the deletion of the claim being requested", func() bool { return w.claimOf("v").DeletionTimestamp != nil })
		w.Stop() // so that this test is first
		w.releaseClaim("v")
		mine := w.newClaim("v", func(c *core.PersistentVolumeClaim) { c.Spec.VolumeName = "" })
		w.started().leads()
		w.Gone("v")
		if claim := w.claimOf("v"); claim == nil || claim.UID != mine.UID {
			t.Errorf("the claim is %+v", claim)
		}
	})
}

// An agent writes the labels of its Volumes.
func TestRenew_ClaimThatIsNotBoundToTheVolumeIsNotTouched(t *testing.T) {
	for name, bind := range map[string]func(*world, *core.PersistentVolumeClaim){
		"bound to another": func(w *world, claim *core.PersistentVolumeClaim) { w.bind(claim, "another") },
		"its PersistentVolume is of another": func(w *world, claim *core.PersistentVolumeClaim) {
			w.bind(&core.PersistentVolumeClaim{Spec: claim.Spec}, "v")
		},
		"there is no PersistentVolume": func(*world, *core.PersistentVolumeClaim) {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, _ := renewing(t)
				old := w.newClaim("v", nil)
				bind(w, old)
				w.down("a")
				w.deleteNode("a")
				w.Gone("v")
				if claim := w.claimOf("v"); claim == nil || claim.UID != old.UID || claim.DeletionTimestamp != nil {
					t.Errorf("the claim is %+v", claim)
				}
				if events := w.written()["VolumeGivenUp"]; events != 1 { // on the volume
					t.Errorf("%d events were written", events)
				}
				check.OK(t, w.Theirs.CoreV1().PersistentVolumeClaims("shop").Delete(t.Context(), old.Name, metav1.DeleteOptions{}))
				synctest.Wait()
				if claim := w.claimOf("v"); claim != nil {
					t.Errorf("the claim that its user has deleted is there again: %+v", claim)
				}
			})
		})
	}
}

// written counts by reason the events that nothing has read yet.
func (w *world) written() map[string]int {
	reasons := map[string]int{}
	for len(w.Events.Events) > 0 {
		reasons[strings.Fields(<-w.Events.Events)[1]]++
	}
	return reasons
}
