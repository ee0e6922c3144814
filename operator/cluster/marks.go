package cluster

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
	"github.com/holdfast-storage/holdfast/operator/bootstrap"
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
		{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"}, // of an earlier release
		{Group: "monitoring.coreos.com", Version: "v1", Kind: "PodMonitor"},
		{Group: "flowcontrol.apiserver.k8s.io", Version: "v1", Kind: "PriorityLevelConfiguration"},
		{Group: "flowcontrol.apiserver.k8s.io", Version: "v1", Kind: "FlowSchema"},
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

// marks make the StorageCluster the owner of the installed objects, except the namespace. It becomes the owner of the
// definitions of kinds that stand for data only when a deletion has found that there is none: otherwise removing the
// finalizer by force would delete them.
func marks(c *v1beta1.StorageCluster, namespace string) (all []*unstructured.Unstructured) {
	for _, kind := range installed {
		in := namespace
		if kind.Kind == "ClusterRole" || kind.Kind == "ClusterRoleBinding" {
			in = ""
		}
		all = append(all, mark(c, kind, in, v1beta1.ControllerName))
	}
	for _, name := range ownDefinitions {
		all = append(all, mark(c, definitionKind, "", name))
	}
	return all
}

// namespaceMark makes the StorageCluster the owner of a namespace of the manifest. It takes that from any other, which an
// earlier release has given it: the garbage collector would delete the namespace with all that others have in it.
func namespaceMark(c *v1beta1.StorageCluster, live *unstructured.Unstructured) []*unstructured.Unstructured {
	if ofManifest(live) {
		return []*unstructured.Unstructured{mark(c, namespaceKind, "", live.GetName())}
	}
	if !bootstrap.BelongsToCluster(live) {
		return nil
	}
	return []*unstructured.Unstructured{unmark(mark(c, namespaceKind, "", live.GetName()))}
}

// ofManifest says whether a namespace has the labels of deploy/base/namespace.yaml. Helm, OLM and users create namespaces
// without them. A mark has no NameLabel.
func ofManifest(namespace *unstructured.Unstructured) bool {
	labels := namespace.GetLabels()
	return labels[v1beta1.NameLabel] == v1beta1.AppName && labels[v1beta1.PartOfLabel] == v1beta1.AppName
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

// unmark turns a mark into one that takes the owner and the labels away.
func unmark(o *unstructured.Unstructured) *unstructured.Unstructured {
	o.SetLabels(nil)
	o.SetOwnerReferences(nil)
	return o
}

// mark writes the marks of all installed objects, and more.
func (r *Controller) mark(ctx context.Context, c *v1beta1.StorageCluster, more ...*unstructured.Unstructured) apply.Outcome {
	all := append(more, marks(c, r.Namespace)...)
	home, err := r.home(ctx)
	if err == nil && home != nil {
		all = append(namespaceMark(c, home), all...)
	}
	out := r.Owned.Mark(ctx, all)
	if err != nil {
		out.Failures = append(out.Failures, apply.Failure{Ref: r.homeRef(), Err: err})
	}
	return out
}

// home returns the namespace of Holdfast, or nil if it does not exist. One that a StorageCluster does not own is in no
// cache, and is read once for each process and removal.
func (r *Controller) home(ctx context.Context) (*unstructured.Unstructured, error) {
	if live := r.Owned.Get(r.homeRef()); live != nil {
		return live, nil
	}
	if r.othersHome {
		return nil, nil
	}
	ns, err := r.Kubernetes.CoreV1().Namespaces().Get(ctx, r.Namespace, metav1.GetOptions{})
	if err != nil {
		return nil, kube.IgnoreNotFound(err)
	}
	live := &unstructured.Unstructured{}
	live.SetName(ns.Name)
	live.SetLabels(ns.Labels)
	live.SetOwnerReferences(ns.OwnerReferences)
	r.othersHome = !ofManifest(live) && !bootstrap.BelongsToCluster(live)
	return live, nil
}

func (r *Controller) homeRef() apply.Ref {
	return apply.RefTo(namespaceKind.Group, namespaceKind.Kind, "", r.Namespace)
}
