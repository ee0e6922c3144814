package held

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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
	return render.ReadCarried(set.Get(apply.RefTo("", "ConfigMap", namespace, v1beta1.NodeName)), set.Get(apply.RefTo("apps", "DaemonSet", namespace, v1beta1.NodeName)))
}
