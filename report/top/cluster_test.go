package top

import (
	"fmt"
	"testing"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	ourfake "github.com/holdfast-storage/holdfast/api/client/clientset/fake"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

const filesNode = "team.files.nfs.holdfast.dev"

func plainVolume(name, madeFor string) *v1beta1.Volume {
	return &v1beta1.Volume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.VolumeSpec{Name: name, Node: filesNode, Pool: "p", ClaimRef: v1beta1.ReferenceTo(madeFor)}}
}

// plainPV is the PersistentVolume of such a volume.
func plainPV(volume, claim string, phase core.PersistentVolumePhase) *core.PersistentVolume {
	return &core.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: volume, Annotations: map[string]string{
			v1beta1.ProvisionedByAnnotation: v1beta1.ProvisionerName, v1beta1.NFSVolumeAnnotation: volume, v1beta1.NFSServerAnnotation: "team/files",
		}},
		Spec: core.PersistentVolumeSpec{
			PersistentVolumeSource: core.PersistentVolumeSource{NFS: &core.NFSVolumeSource{Server: "10.0.0.7", Path: "/" + volume}},
			ClaimRef:               &core.ObjectReference{Namespace: "shop", Name: claim},
		},
		Status: core.PersistentVolumeStatus{Phase: phase},
	}
}

func userOf(claim string) *core.Pod {
	return &core.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "user-of-" + claim},
		Spec: core.PodSpec{NodeName: "a", Volumes: []core.Volume{
			{VolumeSource: core.VolumeSource{PersistentVolumeClaim: &core.PersistentVolumeClaimVolumeSource{ClaimName: claim}}},
		}},
	}
}

func TestTop_PlainNFSVolumeHasTheClaimThatItWasAdoptedFor(t *testing.T) {
	foreign := plainPV("pvc-3", "foreign", core.VolumeBound)
	foreign.Annotations[v1beta1.ProvisionedByAnnotation] = "example.com/nfs"
	c := &Cluster{
		Holdfast: ourfake.NewSimpleClientset(plainVolume("pvc-1", "shop/orders"), plainVolume("pvc-2", "shop/orders"), plainVolume("pvc-3", "shop/files"), plainVolume("pvc-4", "shop/kept")),
		Kubernetes: fake.NewSimpleClientset(
			plainPV("pvc-1", "orders-old", core.VolumeBound), plainPV("pvc-2", "orders", core.VolumeBound), foreign, plainPV("pvc-4", "other", core.VolumeReleased),
			userOf("orders-old"), userOf("orders"),
		),
		Chosen: func(*v1beta1.NamespacedReference, string, string) bool { return true },
	}
	all := check.Got(c.Volumes(t.Context()))(t)
	got := map[string]string{}
	for _, v := range all {
		got[v.Name] = fmt.Sprint(v.ClaimRef, v.PodRefs)
	}
	for name, want := range map[string]string{
		"pvc-1": "shop/orders-old [{shop user-of-orders-old}]", "pvc-2": "shop/orders [{shop user-of-orders}]",
		"pvc-3": "shop/files []", "pvc-4": "shop/kept []",
	} {
		if got[name] != want {
			t.Errorf("%s has %q instead of %q", name, got[name], want)
		}
	}
}
