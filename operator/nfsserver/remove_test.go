package nfsserver

import (
	"fmt"
	"slices"
	"testing"

	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// passing are the kinds whose objects the control plane makes and removes all the time.
var passing = []string{"events", "endpoints", "endpointslices", "componentstatuses", "controllerrevisions", "ipaddresses", "pods"}

// everyObject lists the whole API that has to do with a server: each object in its namespace, and all others that are in
// none, or in that of Holdfast.
func (r *rig) everyObject() (all []string) {
	r.Helper()
	lists := check.Got(discovery.ServerPreferredResources(r.theirs.Discovery()))(r)
	objects := dynamic.NewForConfigOrDie(r.config)
	for _, list := range lists {
		version := check.Got(schema.ParseGroupVersion(list.GroupVersion))(r)
		for _, kind := range list.APIResources {
			if !slices.Contains(kind.Verbs, "list") || slices.Contains(passing, kind.Name) {
				continue
			}
			found, err := objects.Resource(version.WithResource(kind.Name)).List(r.Context(), metav1.ListOptions{})
			if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
				continue
			}
			check.OK(r, err)
			for _, o := range found.Items {
				if ns := o.GetNamespace(); ns == "" || ns == r.namespace || ns == realapi.Namespace {
					all = append(all, fmt.Sprintf("%s %s/%s", kind.Name, ns, o.GetName()))
				}
			}
		}
	}
	slices.Sort(all)
	return all
}

func TestDeletion_IsRefusedWhileExportsAreInUseAndThenLeavesNothing(t *testing.T) {
	r := newRig(t)
	wait.Until(r, "the account that every namespace has", func() bool {
		_, err := r.theirs.CoreV1().ServiceAccounts(r.namespace).Get(t.Context(), "default", metav1.GetOptions{})
		_, missing := r.theirs.CoreV1().ConfigMaps(r.namespace).Get(t.Context(), "kube-root-ca.crt", metav1.GetOptions{})
		return err == nil && missing == nil
	})
	before := r.everyObject()
	s := r.create("data", func(s *v1beta1.NFSServerSpec) { s.ReclaimPolicy = core.PersistentVolumeReclaimDelete })
	r.serve("data")
	r.volume(s, "a")
	r.volume(s, "b")
	volumes, snapshots := r.ours.HoldfastV1beta1().Volumes(), r.ours.HoldfastV1beta1().Snapshots()
	archived := &v1beta1.Snapshot{ObjectMeta: metav1.ObjectMeta{Name: "a-" + r.namespace}}
	archived.Spec = v1beta1.SnapshotSpec{Name: "a", SourceRef: v1beta1.FromVolume("gone"), Node: s.NodeName()}
	check.Got(snapshots.Create(t.Context(), archived, metav1.CreateOptions{}))(t)
	report := &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: s.NodeName()}}
	check.Got(r.ours.HoldfastV1beta1().StorageNodes().Create(t.Context(), report, metav1.CreateOptions{}))(t)
	for _, name := range leasesOf(s) {
		lease := &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}
		check.Got(r.theirs.CoordinationV1().Leases(realapi.Namespace).Create(t.Context(), lease, metav1.CreateOptions{}))(t)
	}

	r.delete("data")
	r.keptAtWork("it has 2 volumes and 1 snapshot;")
	if phase := r.server("data").Status.Phase; phase != v1beta1.NFSTerminating {
		t.Errorf("the phase is %s", phase)
	}
	wait.Until(r, "the event", func() bool {
		return len(r.events.With("Warning Terminating: not deleted yet: exports are in use")) == 1
	})
	check.OK(t, volumes.Delete(t.Context(), "a-"+r.namespace, metav1.DeleteOptions{}))
	r.keptAtWork("it has 1 volume and 1 snapshot;")
	r.giveUpVolumes(s)
	r.keptAtWork("it has 1 snapshot;")
	check.OK(t, snapshots.Delete(t.Context(), archived.Name, metav1.DeleteOptions{}))
	r.gone("data")
	// Objects of an earlier test may still be terminating.
	wait.Until(r, "nothing being there that was not before", func() bool {
		return !slices.ContainsFunc(r.everyObject(), func(o string) bool { return !slices.Contains(before, o) })
	})
	if pods, err := r.theirs.CoreV1().Pods(r.namespace).List(t.Context(), metav1.ListOptions{}); err != nil || len(pods.Items) > 0 {
		t.Errorf("pods are left: %v, %v", pods.Items, err)
	}
	if n := len(r.events.With("Terminating")); n != 2 {
		t.Errorf("%d events report the end: %v", n, r.events.With("Terminating"))
	}
}

// keptAtWork waits until a server that is being deleted says what it waits for, and its Service comes back.
func (r *rig) keptAtWork(says string) {
	r.Helper()
	r.condition("data", v1beta1.ProgressingCondition, reasonInUse, says)
	check.OK(r, r.theirs.CoreV1().Services(r.namespace).Delete(r.Context(), "nfs-data", metav1.DeleteOptions{}))
	wait.Until(r, "the Service that was deleted by hand", func() bool { return r.service("data") != nil })
	if claim := r.claim("nfs-data"); r.statefulSet("data") == nil || claim == nil || claim.DeletionTimestamp != nil {
		r.Error("what serves the volumes, or their data, is being deleted")
	}
}

// persistentOn makes a PersistentVolume of a volume that has no object: the server has not made it yet, or it was deleted by
// hand, or with its kind.
func (r *rig) persistentOn(name string, annotations map[string]string, source core.PersistentVolumeSource) {
	r.Helper()
	volumes := r.theirs.CoreV1().PersistentVolumes()
	made := &core.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}, Spec: core.PersistentVolumeSpec{
		Capacity:    core.ResourceList{core.ResourceStorage: resource.MustParse("1Gi")},
		AccessModes: []core.PersistentVolumeAccessMode{core.ReadWriteMany}, PersistentVolumeSource: source,
	}}
	check.Got(volumes.Create(r.Context(), made, metav1.CreateOptions{}))(r)
	r.Cleanup(func() { _ = volumes.Delete(background, name, metav1.DeleteOptions{}) })
}

func TestDeletion_WaitsForVolumesWhoseObjectsAreMissing(t *testing.T) {
	r := newRig(t)
	s := r.create("data", func(s *v1beta1.NFSServerSpec) { s.ReclaimPolicy = core.PersistentVolumeReclaimDelete })
	r.serve("data")
	plain, shared := "plain-"+r.namespace, "shared-"+r.namespace
	volumes := r.theirs.CoreV1().PersistentVolumes()
	r.persistentOn(plain, map[string]string{v1beta1.NFSServerAnnotation: keyOf(s).String()}, core.PersistentVolumeSource{
		NFS: &core.NFSVolumeSource{Server: "10.0.0.1", Path: "/a"},
	})
	reports := r.ours.HoldfastV1beta1().StorageNodes()
	check.Got(reports.Create(t.Context(), &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: s.NodeName()}}, metav1.CreateOptions{}))(t)
	write := func(promised string) {
		t.Helper()
		wait.Modify(r, reports.Get, reports.UpdateStatus, s.NodeName(), func(report *v1beta1.StorageNode) {
			report.Status.Pools = []v1beta1.Pool{{Name: "default", Promised: resource.MustParse(promised)}}
			report.Status.Trash = []v1beta1.TrashedVolume{
				{Name: "deleted", Size: resource.MustParse("2Gi"), DeletionTime: metav1.Now(), ExpirationTime: metav1.Now()},
			}
		})
	}
	write("2Gi") // to the trash
	r.delete("data")
	r.keptAtWork("PersistentVolumes of this server")
	r.persistentOn(shared, nil, core.PersistentVolumeSource{CSI: &core.CSIPersistentVolumeSource{
		Driver: v1beta1.DriverName, VolumeHandle: "vol-1",
		VolumeAttributes: map[string]string{v1beta1.NFSServerAttribute: r.server("data").Status.Address()},
	}})
	check.OK(t, volumes.Delete(t.Context(), plain, metav1.DeleteOptions{}))
	// Until then it may be what holds up the removal.
	wait.Until(r, "the end of the plain one", func() bool { return wait.Get(r, volumes.Get, plain) == nil })
	r.keptAtWork("PersistentVolumes of this server")

	write("3Gi")
	check.OK(t, volumes.Delete(t.Context(), shared, metav1.DeleteOptions{}))
	r.keptAtWork("its last report has 1Gi")
	r.condition("data", v1beta1.ProgressingCondition, reasonInUse, "kubectl delete storagenodes.holdfast.dev "+s.NodeName())
	write("2Gi")
	r.gone("data")
}

func TestDeletion_WaitsWhileAKindIsTerminating(t *testing.T) {
	r := newRig(t)
	r.create("data", func(s *v1beta1.NFSServerSpec) { s.ReclaimPolicy = core.PersistentVolumeReclaimDelete })
	r.serve("data")
	for _, kind := range []string{"nfsservers", "volumes", "snapshots", "storagenodes"} {
		r.missing.Store(kind)
		s := r.server("data")
		s.DeletionTimestamp = new(metav1.Now())
		run, err := r.controller.run(t.Context(), r.controller.desiredOf(s, &v1beta1.StorageCluster{}, ""))
		if err != nil || !run.silent || run.again != kube.LookAgain {
			t.Errorf("without %s: %+v, %v", kind, run, err)
		}
		if claim := r.claim("nfs-data"); r.statefulSet("data") == nil || claim == nil || claim.DeletionTimestamp != nil {
			t.Errorf("without %s the claim or the pod goes", kind)
		}
	}
	r.missing.Store("")
	r.delete("data")
	wait.Until(r, "the claim going", func() bool {
		claim := r.claim("nfs-data")
		return claim == nil || claim.DeletionTimestamp != nil
	})
}

func TestPromised_TrashOfWhichMoreIsThereThanListedHoldsUpNoRemoval(t *testing.T) {
	s := &v1beta1.StorageNodeStatus{Pools: []v1beta1.Pool{{Promised: resource.MustParse("1Ti")}}}
	for range v1beta1.MostTrash - 1 {
		s.Trash = append(s.Trash, v1beta1.TrashedVolume{Size: resource.MustParse("1Gi")})
	}
	if got, want := promisedBeyondTrash(s), int64(1024-len(s.Trash))<<30; got != want {
		t.Errorf("beyond a whole list there are %d, want %d", got, want)
	}
	s.Trash = append(s.Trash, v1beta1.TrashedVolume{Size: resource.MustParse("1Gi")})
	if got := promisedBeyondTrash(s); got != 0 {
		t.Errorf("beyond a list that may have been cut there are %d", got)
	}
}
