package cluster

import (
	"slices"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// deleteKinds deletes kinds as kubectl delete -f does, past the policy that refuses it, and returns their UIDs.
func (r *rig) deleteKinds(names ...string) map[string]types.UID {
	r.Helper()
	kinds := r.objects.Resource(kube.Definitions)
	bindings := r.theirs.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	was := map[string]types.UID{}
	for _, name := range names {
		wait.Until(r, "the deletion of "+name, func() bool {
			if d, err := kinds.Get(r.Context(), name, metav1.GetOptions{}); err == nil && was[name] == "" {
				was[name] = d.GetUID()
			}
			_ = bindings.Delete(r.Context(), "holdfast-uninstall", metav1.DeleteOptions{})
			return kinds.Delete(r.Context(), name, metav1.DeleteOptions{}) == nil
		})
	}
	return was
}

// awaitRecreated waits until kinds are there again, and served.
func (r *rig) awaitRecreated(was map[string]types.UID) {
	r.Helper()
	wait.Until(r, "the kinds being made again", func() bool {
		for name, uid := range was {
			d, err := r.objects.Resource(kube.Definitions).Get(r.Context(), name, metav1.GetOptions{})
			if err != nil || d.GetUID() == uid || d.GetDeletionTimestamp() != nil {
				return false
			}
		}
		return true
	})
}

// uids are those of objects that must not be made again.
func (r *rig) uids() map[string]types.UID {
	r.Helper()
	found := map[string]types.UID{}
	for _, o := range r.set.List() {
		found[o.GetKind()+" "+o.GetName()] = o.GetUID()
	}
	found["Namespace "+namespace] = r.namespace().UID
	return found
}

func (r *rig) stays(before map[string]types.UID) {
	r.Helper()
	after := r.uids()
	for name, uid := range before {
		if after[name] != uid && !strings.HasPrefix(name, "ValidatingAdmissionPolicy") {
			r.Errorf("%s was %s, and is %q", name, uid, after[name])
		}
	}
	if r.namespace().DeletionTimestamp != nil {
		r.Error("the namespace is going")
	}
}

// forgotten waits until nothing is written down any more.
func (r *rig) forgotten() {
	r.Helper()
	maps := r.theirs.CoreV1().ConfigMaps(namespace)
	wait.Until(r, "what was written down being forgotten", func() bool { return wait.Get(r, maps.Get, "holdfast-returning") == nil })
}

func TestReturn_KindsDeletedWhileTheOperatorIsDownAreRestoredWithTheStorageCluster(t *testing.T) {
	r := newRig(t).start()
	r.holding()
	server := &v1beta1.NFSServer{ObjectMeta: metav1.ObjectMeta{Name: "nfs1", Namespace: namespace, Finalizers: []string{v1beta1.OperatorFinalizer}, Labels: map[string]string{"a": "b"}}}
	server.Spec.Storage = &v1beta1.NFSStorage{ClaimName: "data"}
	check.Got(r.ours.HoldfastV1beta1().NFSServers(namespace).Create(t.Context(), server, metav1.CreateOptions{}))(t)
	before, cluster := r.uids(), r.cluster("holdfast")
	r.stop()
	was := r.deleteKinds(slices.Concat(ownDefinitions, dataDefinitions)...)
	wait.Until(r, "all being on the way out", func() bool {
		v := wait.Get(r, r.ours.HoldfastV1beta1().Volumes().Get, "v1")
		return v != nil && v.DeletionTimestamp != nil && r.cluster("holdfast").DeletionTimestamp != nil
	})

	r.start()
	r.awaitRecreated(was)
	wait.Until(r, "the StorageCluster being made again", func() bool { c := r.cluster("holdfast"); return c != nil && c.UID != cluster.UID })
	now := r.cluster("holdfast")
	if got, want := now.Spec.Pools, cluster.Spec.Pools; len(got) != 2 || got[0].Path != want[0].Path || now.Spec.Images != cluster.Spec.Images {
		t.Errorf("the spec is %+v", now.Spec)
	}
	wait.Until(r, "the server being made again", func() bool {
		s, err := r.ours.HoldfastV1beta1().NFSServers(namespace).Get(t.Context(), "nfs1", metav1.GetOptions{})
		return err == nil && s.DeletionTimestamp == nil && s.Labels["a"] == "b" && s.Spec.Storage.ClaimName == "data"
	})
	r.reconciled("holdfast")
	wait.Until(r, "all belonging to it", func() bool {
		owners := r.namespace().OwnerReferences
		return len(owners) == 1 && owners[0].UID == now.UID
	})
	r.stays(before)
	r.forgotten()
}

func TestReturn_KindsThatAreDeletedWhileItRunsComeBack(t *testing.T) {
	r := running(t, twoPools)
	before, cluster := r.uids(), r.cluster("holdfast")
	r.awaitRecreated(r.deleteKinds(slices.Concat(ownDefinitions, dataDefinitions)...))
	wait.Until(r, "the StorageCluster being made again", func() bool { c := r.cluster("holdfast"); return c != nil && c.UID != cluster.UID })
	r.reconciled("holdfast")
	r.stays(before)
}

func TestReturn_OneThatWasWrittenDownIsMadeAgainByTheNextProcess(t *testing.T) {
	r := newRig(t)
	const text = `{"apiVersion":"holdfast.dev/v1beta1","kind":"StorageCluster","metadata":{"name":"mine"},"spec":{"debug":true}}`
	check.Got(r.theirs.CoreV1().ConfigMaps(namespace).Create(t.Context(), &core.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "holdfast-returning"}, Data: map[string]string{"storageclusters.mine": text},
	}, metav1.CreateOptions{}))(t)
	r.start()
	wait.Until(r, "the StorageCluster", func() bool { c := r.cluster("mine"); return c != nil && c.Spec.Debug })
	r.forgotten()
}

func TestReturn_AVolumeWhoseDeletionIsRequestedIsLeftToItsAgentForAWhile(t *testing.T) {
	r := newRig(t).start()
	r.holding()
	volumes := r.ours.HoldfastV1beta1().Volumes()
	v := check.Got(volumes.Get(t.Context(), "v1", metav1.GetOptions{}))(t)
	r.write("volumes", "v1", ofSpec(strings.Replace(deletionRequest, `"u"`, `"`+string(v.UID)+`"`, 1)))
	was := r.deleteKinds("volumes.holdfast.dev")
	wait.Until(r, "the other one losing its finalizer", func() bool { return wait.Get(r, volumes.Get, "v2") == nil })
	if v := wait.Get(r, volumes.Get, "v1"); v == nil || len(v.Finalizers) == 0 {
		t.Errorf("it lost its finalizer as well: %v", v)
	}
	check.Got(volumes.Patch(t.Context(), "v1", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}))(t)
	r.awaitRecreated(was)
}

func TestRemoval_WaitsForVolumesOfWhichTheKindIsGoing(t *testing.T) {
	r := newRig(t).start()
	r.holding()
	wait.Until(r, "the count", func() bool { return r.cluster("holdfast").Status.Volumes == 2 })
	r.stop()
	was := r.deleteKinds("volumes.holdfast.dev")
	r.delete("holdfast")
	for _, name := range []string{"v1", "v2"} { // as the agents do
		check.Got(r.ours.HoldfastV1beta1().Volumes().Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}))(t)
	}
	r.persistentVolume("hb-bound", "csi.holdfast.dev")
	r.start()
	r.awaitRecreated(was)
	r.condition("holdfast", v1beta1.ProgressingCondition, reasonVolumesExist)
	if r.class("hb-one") == nil {
		t.Error("its class is gone")
	}
	r.condition("holdfast", v1beta1.ProgressingCondition, reasonVolumesExist, "1 PersistentVolume ") // which is what is left
	check.OK(t, r.theirs.CoreV1().PersistentVolumes().Delete(t.Context(), "hb-bound", metav1.DeleteOptions{}))
	r.gone("holdfast")
}

// persistentVolume makes one of a driver.
func (r *rig) persistentVolume(name, driver string, finalizers ...string) {
	r.Helper()
	pv := &core.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: finalizers}}
	pv.Spec.Capacity = core.ResourceList{core.ResourceStorage: resource.MustParse("1Gi")}
	pv.Spec.AccessModes = []core.PersistentVolumeAccessMode{core.ReadWriteOnce}
	pv.Spec.CSI = &core.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: name}
	volumes := r.theirs.CoreV1().PersistentVolumes()
	check.Got(volumes.Create(r.Context(), pv, metav1.CreateOptions{}))(r)
	r.Cleanup(func() {
		_, _ = volumes.Patch(background, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		_ = volumes.Delete(background, name, metav1.DeleteOptions{})
	})
}

// withoutDeployment takes the controller's Deployment away.
func (r *rig) withoutDeployment() {
	r.Helper()
	check.OK(r, r.theirs.AppsV1().Deployments(namespace).Delete(r.Context(), v1beta1.ControllerName, metav1.DeleteOptions{}))
}

func (r *rig) hasDeployment() bool {
	d := wait.Get(r, r.theirs.AppsV1().Deployments(namespace).Get, v1beta1.ControllerName)
	return d != nil && d.DeletionTimestamp == nil
}

// As helm uninstall and kubectl delete -f do.
func TestRemake_AWorkloadThatIsDeletedWithItsAccountStaysAway(t *testing.T) {
	r := newRig(t).start()
	r.create("holdfast", nil)
	wait.Until(r, "the Deployment", r.hasDeployment)
	r.withoutDeployment()
	wait.Until(r, "the Deployment being made again", r.hasDeployment)

	accounts := r.theirs.CoreV1().ServiceAccounts(namespace)
	account := check.Got(accounts.Get(t.Context(), v1beta1.ControllerName, metav1.GetOptions{}))(t)
	check.OK(t, accounts.Delete(t.Context(), v1beta1.ControllerName, metav1.DeleteOptions{}))
	r.withoutDeployment()
	wait.Until(r, "the end of the Deployment", func() bool { return !r.hasDeployment() })
	wait.Never(r, "a Deployment without its account", 2*time.Second, r.hasDeployment)

	account.ResourceVersion, account.UID = "", ""
	check.Got(accounts.Create(t.Context(), account, metav1.CreateOptions{}))(t)
	wait.Until(r, "the Deployment with its account", r.hasDeployment)
}

func TestRemake_AWorkloadThatIsDeletedIsMadeAgainByTheProcessThatEndsWithIt(t *testing.T) {
	hostfs.NotInGate(t, "must see a state that lasts seconds")
	r := newRig(t)
	r.remakeAfter = 5 * time.Second
	r.start()
	r.create("holdfast", nil)
	wait.Until(r, "the operator knowing of the Deployment", func() bool { return r.hasDeployment() && r.set.Get(controllerRefs(namespace)[0]) != nil })
	r.withoutDeployment()
	wait.Until(r, "the operator knowing of its end", func() bool { return r.set.Get(controllerRefs(namespace)[0]) == nil })
	wait.Never(r, "a Deployment before the time is over", 2*time.Second, r.hasDeployment)
	r.stop()
	if !r.hasDeployment() {
		t.Error("the process ended without making it again: no other process does")
	}
}

func TestRemake_AProcessThatEndsMakesNothingOfAClusterThatIsGone(t *testing.T) {
	r := newRig(t)
	r.remakeAfter = 5 * time.Second
	r.start()
	r.create("holdfast", nil)
	wait.Until(r, "the operator knowing of the Deployment", func() bool { return r.hasDeployment() && r.set.Get(controllerRefs(namespace)[0]) != nil })
	r.delete("holdfast")
	r.gone("holdfast")
	wait.Until(r, "the end of the Deployment", func() bool { return !r.hasDeployment() })
	r.stop()
	if r.hasDeployment() {
		t.Error("it made its Deployment again")
	}
}
