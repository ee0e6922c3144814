package deploy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// Objects are objects by KIND NAMESPACE/NAME, or KIND NAME without a namespace.
type Objects map[string]*unstructured.Unstructured

// Parse reads the objects of a manifest. The same object twice is an error, and so is a key twice in an object.
func Parse(manifest []byte) (Objects, error) {
	objects := Objects{}
	documents := yamlutil.NewYAMLReader(bufio.NewReader(bytes.NewReader(manifest)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict(document, &object.Object); err != nil {
			return nil, fmt.Errorf("%w in:\n%s", err, document)
		}
		if len(object.Object) == 0 {
			continue
		}
		key := keyOf(object)
		if objects[key] != nil {
			return nil, fmt.Errorf("%s is there twice", key)
		}
		objects[key] = object
	}
}

func keyOf(o *unstructured.Unstructured) string {
	if o.GetNamespace() == "" {
		return o.GetKind() + " " + o.GetName()
	}
	return o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
}

// Read reads the objects of a file of the repository.
func Read(file string) (Objects, error) {
	manifest, err := os.ReadFile(root + "/" + file)
	if err != nil {
		return nil, err
	}
	return Parse(manifest)
}

// Kustomize returns what kubectl apply -k would apply of a directory of the repository.
func Kustomize(dir string) (Objects, error) {
	return kustomize(filesys.MakeFsOnDisk(), root+"/"+dir)
}

func kustomize(files filesys.FileSystem, dir string) (Objects, error) {
	options := krusty.MakeDefaultOptions()
	options.LoadRestrictions = types.LoadRestrictionsRootOnly
	built, err := krusty.MakeKustomizer(options).Run(files, dir)
	if err != nil {
		return nil, err
	}
	manifest, err := built.AsYaml()
	if err != nil {
		return nil, err
	}
	return Parse(manifest)
}
