package render

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/holdfast-storage/holdfast/deploy"
)

// Manifest returns the object of a type and name in a file of package deploy.
func Manifest[T any, P interface {
	*T
	runtime.Object
}](file, name string) (*T, error) {
	typed := new(T)
	return typed, Read(file, name, P(typed))
}

// Read reads the objects of a name in a file of package deploy, by their types.
func Read(file, name string, objects ...runtime.Object) error {
	all, err := deploy.Objects(file)
	if err != nil {
		return err
	}
	for _, into := range objects {
		kinds, _, err := scheme.Scheme.ObjectKinds(into)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(all, func(o *unstructured.Unstructured) bool { return o.GetKind() == kinds[0].Kind && o.GetName() == name })
		if i < 0 {
			return fmt.Errorf("%s has no %s %s", file, kinds[0].Kind, name)
		}
		if err := decode(all[i], into); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

// decode refuses fields that the type does not have.
func decode(from *unstructured.Unstructured, to any) error {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(from.Object, to, true); err != nil {
		return fmt.Errorf("%s %s: %w", from.GetKind(), from.GetName(), err)
	}
	return nil
}
