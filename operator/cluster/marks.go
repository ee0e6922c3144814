package cluster

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube/apply"
)

var (
	definitionKind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
	namespaceKind  = schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}

	snapshotClassKind = schema.GroupKind{Group: "snapshot.storage.k8s.io", Kind: "VolumeSnapshotClass"}
	rbac              = schema.GroupVersion{Group: "rbac.authorization.k8s.io", Version: "v1"}
)

// Kinds are those of all objects of a StorageCluster.
func Kinds() []schema.GroupVersionKind {
	kinds := []schema.GroupVersionKind{
		definitionKind, namespaceKind,
		{Group: "storage.k8s.io", Version: "v1", Kind: "CSIDriver"},
		{Group: "storage.k8s.io", Version: "v1", Kind: "StorageClass"},
		{Group: "snapshot.storage.k8s.io", Version: "v1", Kind: "VolumeSnapshotClass"},
		{Group: "groupsnapshot.storage.k8s.io", Version: "v1", Kind: "VolumeGroupSnapshotClass"},
		{Group: "networking.k8s.io", Version: "v1", Kind: "Ingress"},
		{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"},
		{Group: "monitoring.coreos.com", Version: "v1", Kind: "PodMonitor"},
		{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingAdmissionPolicy"},
		{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingAdmissionPolicyBinding"},
	}
	for _, kind := range []string{"DaemonSet", "Deployment", "StatefulSet"} {
		kinds = append(kinds, schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: kind})
	}
	for _, kind := range []string{"ConfigMap", "Secret", "Service", "ServiceAccount"} {
		kinds = append(kinds, schema.GroupVersionKind{Version: "v1", Kind: kind})
	}
	for _, kind := range []string{"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"} {
		kinds = append(kinds, rbac.WithKind(kind))
	}
	return kinds
}

// The objects of the installation, beside the StorageCluster.
var (
	installed = []schema.GroupVersionKind{
		rbac.WithKind("ClusterRole"), rbac.WithKind("ClusterRoleBinding"), rbac.WithKind("Role"), rbac.WithKind("RoleBinding"),
		{Version: "v1", Kind: "ServiceAccount"},
	}
	ownDefinitions  = []string{"nodejobs.holdfast.dev", "storageclusters.holdfast.dev", "storageupgrades.holdfast.dev"}
	dataDefinitions = []string{"nfsservers.holdfast.dev", "snapshots.holdfast.dev", "storagenodes.holdfast.dev", "volumes.holdfast.dev"}
)

// marks make the StorageCluster the owner of the installed objects. It becomes the owner of the definitions of kinds
// that stand for data only when a deletion has found that there is none: otherwise removing the finalizer by force
// would delete them.
func marks(c *v1beta1.StorageCluster, namespace string) []*unstructured.Unstructured {
	all := []*unstructured.Unstructured{mark(c, namespaceKind, "", namespace)}
	for _, kind := range installed {
		in := namespace
		if kind.Kind == "ClusterRole" || kind.Kind == "ClusterRoleBinding" {
			in = ""
		}
		all = append(all, mark(c, kind, in, controllerName))
	}
	for _, name := range ownDefinitions {
		all = append(all, mark(c, definitionKind, "", name))
	}
	return all
}

func dataMarks(c *v1beta1.StorageCluster) (all []*unstructured.Unstructured) {
	for _, name := range dataDefinitions {
		all = append(all, mark(c, definitionKind, "", name))
	}
	return all
}

// mark has no instance label, so that objects of others are never pruned.
func mark(c *v1beta1.StorageCluster, kind schema.GroupVersionKind, namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	o.SetLabels(map[string]string{apply.ManagedByLabel: apply.FieldManager, v1beta1.PartOfLabel: v1beta1.AppName})
	no := false
	yes := true
	o.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: v1beta1.SchemeGroupVersion.String(), Kind: "StorageCluster", Name: c.Name, UID: c.UID, Controller: &yes, BlockOwnerDeletion: &no,
	}})
	return o
}
