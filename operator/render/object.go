package render

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

const (
	name    = v1beta1.AppName // also that of images, containers and the default class
	manager = "holdfast-operator"
)

// Labels returns the labels of every object that the operator creates for a StorageCluster, which no other object has.
func Labels(c *v1beta1.StorageCluster) map[string]string {
	return map[string]string{v1beta1.NameLabel: name, v1beta1.PartOfLabel: name, v1beta1.ManagedByLabel: manager, v1beta1.InstanceLabel: c.Name}
}

// object is typed, or unstructured where Kubernetes has no type for it.
type object interface {
	metav1.Object
	runtime.Object
}

func objectsOf(all []*unstructured.Unstructured) (objects []object) {
	for _, o := range all {
		objects = append(objects, o)
	}
	return objects
}

// clusterScoped are the kinds here that are in no namespace.
var clusterScoped = map[string]bool{
	"ClusterRole": true, "ClusterRoleBinding": true, "CSIDriver": true, "StorageClass": true,
	"VolumeSnapshotClass": true, "VolumeGroupSnapshotClass": true,
	"ValidatingAdmissionPolicy": true, "ValidatingAdmissionPolicyBinding": true,
	"PriorityLevelConfiguration": true, "FlowSchema": true,
}

// finish sets what all objects have, and removes fields that only exist because of the Go type.
func (p *plan) finish(o object) *unstructured.Unstructured {
	finished := Unstructured(o)
	labels := finished.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, Labels(p.Cluster))
	finished.SetLabels(labels)
	if !clusterScoped[finished.GetKind()] {
		finished.SetNamespace(p.Namespace)
	}
	if p.Cluster.UID != "" {
		finished.SetOwnerReferences([]metav1.OwnerReference{{
			APIVersion: v1beta1.SchemeGroupVersion.String(), Kind: "StorageCluster", Name: p.Cluster.Name, UID: p.Cluster.UID,
			Controller: new(true), BlockOwnerDeletion: new(false),
		}})
	}
	return finished
}

// Unstructured removes fields that only exist because of the Go type, such as an empty status.
func Unstructured(o runtime.Object) *unstructured.Unstructured {
	if u, ok := o.(*unstructured.Unstructured); ok {
		return u
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		panic(err) // of a type that is none of Kubernetes
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(kindOf(o))
	delete(content, "status")
	withoutNull(content)
	return u
}

// withoutNull removes null fields.
func withoutNull(fields map[string]any) {
	for key, value := range fields {
		switch value := value.(type) {
		case nil:
			delete(fields, key)
		case map[string]any:
			withoutNull(value)
		case []any:
			for _, element := range value {
				if inner, ok := element.(map[string]any); ok {
					withoutNull(inner)
				}
			}
		}
	}
}
