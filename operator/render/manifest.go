package render

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-storage/holdfast/deploy"
)

// manifest returns the object of a kind and name in a file of package deploy.
func manifest[T any](file, kind, name string) (*T, error) {
	objects, err := deploy.Objects(file)
	if err != nil {
		return nil, err
	}
	for _, o := range objects {
		if o.GetKind() == kind && o.GetName() == name {
			typed := new(T)
			if err := decode(o, typed); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			return typed, nil
		}
	}
	return nil, fmt.Errorf("%s has no %s %s", file, kind, name)
}

// decode refuses fields that the type does not have.
func decode(from *unstructured.Unstructured, to any) error {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(from.Object, to, true); err != nil {
		return fmt.Errorf("%s %s: %w", from.GetKind(), from.GetName(), err)
	}
	return nil
}
