package render

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/holdfast-storage/holdfast/deploy"
)

// Manifest returns the object of a type and name in a file of package deploy.
func Manifest[T any, P interface {
	*T
	runtime.Object
}](file, name string) *T {
	typed := new(T)
	Read(file, name, P(typed))
	return typed
}

// Read reads the objects of a name in a file of package deploy, by their types. The files are compiled in, so one without them
// panics.
func Read(file, name string, objects ...runtime.Object) {
	all := deploy.Objects(file)
	for _, into := range objects {
		kind := kindOf(into).Kind
		i := slices.IndexFunc(all, func(o *unstructured.Unstructured) bool { return o.GetKind() == kind && o.GetName() == name })
		if i < 0 {
			panic(fmt.Sprintf("%s has no %s %s", file, kind, name))
		}
		if err := decode(all[i], into); err != nil {
			panic(fmt.Errorf("%s: %w", file, err))
		}
	}
}

// decode refuses fields that the type does not have.
func decode(from *unstructured.Unstructured, to any) error {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(from.Object, to, true); err != nil {
		return fmt.Errorf("%s %s: %w", from.GetKind(), from.GetName(), err)
	}
	return nil
}

// kindOf returns the kind of a typed object of Kubernetes.
func kindOf(o runtime.Object) schema.GroupVersionKind {
	kinds, _, err := scheme.Scheme.ObjectKinds(o)
	if err != nil {
		panic(err)
	}
	return kinds[0]
}
