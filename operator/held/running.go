package held

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube/apply"
	"github.com/holdfast-storage/holdfast/operator/render"
)

// Objects are those that the operator has created.
type Objects interface {
	Get(apply.Ref) *unstructured.Unstructured
}

// Running returns the spec that the node pods run, or nil if it is not known or there are none.
func Running(set Objects, namespace string) *render.Carried {
	ref := func(group, kind string) apply.Ref {
		return apply.Ref{
			GroupKind:      schema.GroupKind{Group: group, Kind: kind},
			NamespacedName: types.NamespacedName{Namespace: namespace, Name: v1beta1.NodeName},
		}
	}
	return render.ReadCarried(set.Get(ref("", "ConfigMap")), set.Get(ref("apps", "DaemonSet")))
}
