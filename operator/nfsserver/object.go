package nfsserver

import (
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/deploy"
	"github.com/holdfast-storage/holdfast/operator/render"
)

// manifest returns the object of a kind in a file of package deploy, which has one of each.
func manifest[T any](file, kind string) (*T, error) {
	objects, err := deploy.Objects(file)
	if err != nil {
		return nil, err
	}
	for _, o := range objects {
		if o.GetKind() != kind {
			continue
		}
		typed := new(T)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, typed, true); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", file, kind, err)
		}
		return typed, nil
	}
	return nil, fmt.Errorf("%s has no %s", file, kind)
}

type object interface {
	metav1.Object
	runtime.Object
}

// belonging gives an object of a server what all of them have: it goes with the server.
func belonging(o object, s *v1.NFSServer) (*unstructured.Unstructured, error) {
	o.SetNamespace(s.Namespace)
	o.SetName(objectName(s))
	labels := labelsOf(s)
	maps.Copy(labels, o.GetLabels())
	o.SetLabels(labels)
	if s.UID != "" {
		owner := metav1.NewControllerRef(s, v1.SchemeGroupVersion.WithKind("NFSServer"))
		owner.BlockOwnerDeletion = new(false)
		o.SetOwnerReferences([]metav1.OwnerReference{*owner})
	}
	return render.Unstructured(o)
}
