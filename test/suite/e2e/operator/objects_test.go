package operator

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

const managed = "app.kubernetes.io/managed-by=holdfast-operator"

// owned returns all that the operator keeps: what has its label and belongs to the StorageCluster itself. Kubernetes
// copies labels to what it makes of them.
func (a *admin) owned() []kube.Listed {
	a.t.Helper()
	all := check.Got(a.Everything(a.t.Context(), managed))(a.t)
	return slices.DeleteFunc(all, func(o kube.Listed) bool {
		owner := metav1.GetControllerOf(o)
		return owner == nil || owner.Kind != "StorageCluster"
	})
}

// exists says whether there is an object.
func exists(ctx context.Context, source dynamic.ResourceInterface, name string) (bool, error) {
	_, err := source.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}
