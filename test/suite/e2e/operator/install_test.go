package operator

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"
)

// The files that the cluster was installed from: Holdfast for this cluster, and its StorageCluster.
func (a *admin) manifests() (holdfast, cluster string) {
	dir := a.directory()
	return filepath.Join(dir, "install.yaml"), filepath.Join(dir, "storagecluster.yaml")
}

// install installs Holdfast as test/cluster/install does. It can be repeated.
func (a *admin) install(ctx context.Context) error {
	holdfast, cluster := a.manifests()
	return a.apply(ctx, holdfast, cluster)
}

// apply applies all objects of files, server-side, as kubectl does. What is refused does not keep the rest from it.
func (a *admin) apply(ctx context.Context, files ...string) error {
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(a.Client.Discovery()))
	var errs []error
	for _, file := range files {
		objects, err := readManifests(file)
		errs = append(errs, err)
		for _, o := range objects {
			kind := o.GroupVersionKind()
			mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
			if err == nil {
				options := metav1.ApplyOptions{FieldManager: "kubectl", Force: true}
				if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
					_, err = a.Dynamic.Resource(mapping.Resource).Namespace(o.GetNamespace()).Apply(ctx, o.GetName(), o, options)
				} else {
					_, err = a.Dynamic.Resource(mapping.Resource).Apply(ctx, o.GetName(), o, options)
				}
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("%s %s of %s: %w", kind.Kind, o.GetName(), file, err))
			}
		}
	}
	return errors.Join(errs...)
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
