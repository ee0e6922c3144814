package kube

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// Apply applies a file of manifests to the test's namespace, as kubectl would.
func (s *Space) Apply(path string, edits ...func(*unstructured.Unstructured)) []*unstructured.Unstructured {
	s.t.Helper()
	manifests := check.Got(readManifests(path))(s.t)
	for i, manifest := range manifests {
		for _, edit := range edits {
			edit(manifest)
		}
		source, err := s.sourceOf(manifest)
		if err != nil {
			s.t.Fatalf("%s: %v", path, err)
		}
		manifests[i], err = source.Apply(s.t.Context(), manifest.GetName(), manifest, metav1.ApplyOptions{FieldManager: "holdfast-e2e"})
		if err != nil {
			s.t.Fatalf("%s: %v", path, err)
		}
	}
	return manifests
}

// AwaitApplied waits until done accepts an object that was applied.
func (s *Space) AwaitApplied(object *unstructured.Unstructured, what string, done func(*unstructured.Unstructured) (bool, error)) {
	s.t.Helper()
	source := check.Got(s.sourceOf(object))(s.t)
	AwaitOne(s, source, object.GetName(), what, done)
}

// sourceOf refuses what does not end with the namespace.
func (s *Space) sourceOf(object *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	kind := object.GroupVersionKind()
	mapping, err := s.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return nil, fmt.Errorf("%s %s belongs to no namespace, so it would outlive the test: make it in the test and delete it in t.Cleanup", kind.Kind, object.GetName())
	}
	return s.Dynamic.Resource(mapping.Resource).Namespace(s.Namespace), nil
}

func readManifests(path string) ([]*unstructured.Unstructured, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var manifests []*unstructured.Unstructured
	for documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return manifests, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		var manifest unstructured.Unstructured
		if err := yaml.Unmarshal(document, &manifest.Object); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if len(manifest.Object) > 0 { // else it has only comments
			manifests = append(manifests, &manifest)
		}
	}
}
