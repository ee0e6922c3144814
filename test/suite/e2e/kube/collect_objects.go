package kube

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/client-go/dynamic"
)

// ofCluster are the kinds outside of namespaces that are of interest, beside all of Holdfast's own.
var ofCluster = []string{
	"csidrivers", "csinodes", "namespaces", "nodes", "persistentvolumes", "storageclasses", "volumeattachments",
	"volumeattributesclasses", "volumesnapshotclasses", "volumesnapshotcontents",
}

const ownGroup = "holdfast.dev"

// objects adds a file for each kind of which there is an object: all kinds in the namespaces, and some outside.
func (f *folder) objects(namespaces ...string) {
	kinds, err := f.kinds()
	if err != nil {
		f.failed("kinds of objects", err)
	}
	for _, kind := range kinds {
		if kind.Name == "events" || kind.Name == "endpoints" {
			continue // events are in a file of their own, endpoints in slices
		}
		objects := f.Dynamic.Resource(schema.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: kind.Name})
		name := strings.TrimSuffix(kind.Name+"."+kind.Group, ".") + ".yaml"
		switch {
		case kind.Namespaced:
			for _, namespace := range namespaces {
				f.dump(filepath.Join("objects", namespace, name), objects.Namespace(namespace))
			}
		case slices.Contains(ofCluster, kind.Name) || kind.Group == ownGroup:
			f.dump(filepath.Join("objects", name), objects)
		}
	}
}

func (f *folder) dump(path string, source dynamic.ResourceInterface) {
	f.add(path, func() ([]byte, error) {
		list, err := source.List(f.ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		return manifests(list.Items)
	})
}

// manifests are objects as YAML, without what is secret and without the bookkeeping of server-side apply.
func manifests(objects []unstructured.Unstructured) ([]byte, error) {
	var text bytes.Buffer
	yaml := json.NewSerializerWithOptions(json.DefaultMetaFactory, nil, nil, json.SerializerOptions{Yaml: true})
	for _, object := range objects {
		object.SetManagedFields(nil)
		redact(&object)
		text.WriteString("---\n")
		if err := yaml.Encode(&object, &text); err != nil {
			return nil, err
		}
	}
	return text.Bytes(), nil
}

// redact replaces the values of a secret, and removes the copy of them that kubectl keeps in an annotation.
func redact(object *unstructured.Unstructured) {
	if object.GetKind() != "Secret" {
		return
	}
	for _, field := range []string{"data", "stringData"} {
		values, _ := object.Object[field].(map[string]any)
		for key, value := range values {
			values[key] = fmt.Sprintf("(%d characters, not shown)", len(fmt.Sprint(value)))
		}
	}
	unstructured.RemoveNestedField(object.Object, "metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration")
}
