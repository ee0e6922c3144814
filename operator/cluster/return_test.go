package cluster

import (
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/test/rig/check"
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
	ns := check.Got(r.theirs.CoreV1().Namespaces().Get(r.Context(), namespace, metav1.GetOptions{}))(r)
	found["Namespace "+namespace] = ns.UID
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
	ns, err := r.theirs.CoreV1().Namespaces().Get(r.Context(), namespace, metav1.GetOptions{})
	if err != nil || ns.DeletionTimestamp != nil {
		r.Errorf("the namespace is going, %v", err)
	}
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
		v, err := r.ours.HoldfastV1beta1().Volumes().Get(t.Context(), "v1", metav1.GetOptions{})
		return err == nil && v.DeletionTimestamp != nil && r.cluster("holdfast").DeletionTimestamp != nil
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
		ns, err := r.theirs.CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
		return err == nil && len(ns.OwnerReferences) == 1 && ns.OwnerReferences[0].UID == now.UID
	})
	r.stays(before)
	wait.Until(r, "what was written down being forgotten", func() bool {
		_, err := r.theirs.CoreV1().ConfigMaps(namespace).Get(t.Context(), "holdfast-returning", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

func TestReturn_KindsThatAreDeletedWhileItRunsComeBack(t *testing.T) {
	r := newRig(t).start()
	r.create("holdfast", twoPools)
	r.reconciled("holdfast")
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
	wait.Until(r, "the ConfigMap being gone", func() bool {
		_, err := r.theirs.CoreV1().ConfigMaps(namespace).Get(t.Context(), "holdfast-returning", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

func TestReturn_AVolumeWhoseDeletionIsRequestedIsLeftToItsAgentForAWhile(t *testing.T) {
	r := newRig(t).start()
	r.holding()
	v := check.Got(r.ours.HoldfastV1beta1().Volumes().Get(t.Context(), "v1", metav1.GetOptions{}))(t)
	request := []byte(`{"spec":` + strings.Replace(deletionRequest, `"u"`, `"`+string(v.UID)+`"`, 1) + `}`)
	check.Got(r.as(controllerUser).HoldfastV1beta1().Volumes().Patch(t.Context(), "v1", types.MergePatchType, request, metav1.PatchOptions{}))(t)
	was := r.deleteKinds("volumes.holdfast.dev")
	wait.Until(r, "the other one losing its finalizer", func() bool {
		_, err := r.ours.HoldfastV1beta1().Volumes().Get(t.Context(), "v2", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	if v, err := r.ours.HoldfastV1beta1().Volumes().Get(t.Context(), "v1", metav1.GetOptions{}); err != nil || len(v.Finalizers) == 0 {
		t.Errorf("it lost its finalizer as well: %v", err)
	}
	check.Got(r.ours.HoldfastV1beta1().Volumes().Patch(t.Context(), "v1", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}))(t)
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
	pv := r.persistentVolume("hb-bound")
	r.start()
	r.awaitRecreated(was)
	message := r.condition("holdfast", v1beta1.ProgressingCondition, reasonVolumesExist)
	if r.class("hb-one") == nil {
		t.Error("its class is gone")
	}
	wait.Until(r, "the PersistentVolume being what is left", func() bool {
		message = r.condition("holdfast", v1beta1.ProgressingCondition, reasonVolumesExist)
		return strings.Contains(message, "1 PersistentVolume ")
	})
	check.OK(t, r.theirs.CoreV1().PersistentVolumes().Delete(t.Context(), pv, metav1.DeleteOptions{}))
	r.gone("holdfast")
}

// persistentVolume makes one of ours.
func (r *rig) persistentVolume(name string) string {
	r.Helper()
	pv := &core.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	pv.Spec.Capacity = core.ResourceList{core.ResourceStorage: resource.MustParse("1Gi")}
	pv.Spec.AccessModes = []core.PersistentVolumeAccessMode{core.ReadWriteOnce}
	pv.Spec.CSI = &core.CSIPersistentVolumeSource{Driver: "csi.holdfast.dev", VolumeHandle: name}
	volumes := r.theirs.CoreV1().PersistentVolumes()
	check.Got(volumes.Create(r.Context(), pv, metav1.CreateOptions{}))(r)
	r.Cleanup(func() { _ = volumes.Delete(background, name, metav1.DeleteOptions{}) })
	return name
}
