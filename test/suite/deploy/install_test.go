package deploy

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
)

var (
	clusters    = runtimeschema.GroupVersionResource{Group: "holdfast.dev", Version: "v1beta1", Resource: "storageclusters"}
	definitions = runtimeschema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	namespaces  = runtimeschema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

// patience is how long anything here may take.
const patience = 4 * time.Minute

// installation is a cluster in which Holdfast is removed and installed again.
type installation struct {
	*testing.T
	*cluster
	directory string // of the cluster, with what it was installed from
}

// installed is the cluster if what takes long is to be tested; in the end it is as it was installed.
func installed(t *testing.T) *installation {
	t.Helper()
	if os.Getenv("HOLDFAST_TESTS") != "all" {
		t.Skip("takes long; HOLDFAST_TESTS=all runs it, as make test-all does")
	}
	c := connect(t)
	find := exec.CommandContext(t.Context(), "go", "run", ".", "-name", os.Getenv(clusterVariable), "kubeconfig")
	find.Dir = root + "/test/tool/cluster"
	kubeconfig, err := find.Output()
	if err != nil {
		t.Fatal(err)
	}
	i := &installation{T: t, cluster: c, directory: filepath.Dir(strings.TrimSpace(string(kubeconfig)))}
	t.Cleanup(func() {
		i.remove()
		for _, objects := range []Objects{i.read("install.yaml"), i.read("storagecluster.yaml")} {
			i.apply(objects)
		}
		i.running()
	})
	return i
}

// read returns the objects of a file that the cluster was installed from.
func (i *installation) read(file string) Objects {
	i.Helper()
	content, err := os.ReadFile(filepath.Join(i.directory, file))
	if err != nil {
		i.Fatal(err)
	}
	objects, err := Parse(content)
	if err != nil {
		i.Fatal(err)
	}
	return objects
}

// until waits for something, and says what was missing when it does not come.
func (i *installation) until(what string, done func(context.Context) error) {
	i.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(i.Context()), patience)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		err := done(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			i.Fatalf("%s: %v", what, err)
		case <-tick.C:
		}
	}
}

// remove removes Holdfast with the one command for that.
func (i *installation) remove() {
	i.Helper()
	i.until("the removal of Holdfast", func(ctx context.Context) error {
		err := i.dynamic.Resource(clusters).Delete(ctx, "holdfast", metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		for _, left := range []struct {
			resource runtimeschema.GroupVersionResource
			name     string
		}{{namespaces, namespace}, {definitions, "storageclusters.holdfast.dev"}, {definitions, "volumes.holdfast.dev"}} {
			if _, err := i.dynamic.Resource(left.resource).Get(ctx, left.name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%s is there: %w", left.name, err)
			}
		}
		return nil
	})
}

// apply makes the objects, the kinds before all others, and waits for kinds that are just being served.
func (i *installation) apply(objects Objects) {
	i.Helper()
	order := []string{"CustomResourceDefinition", "Namespace", "ServiceAccount"}
	place := func(key string) int {
		if at := slices.Index(order, objects[key].GetKind()); at >= 0 {
			return at
		}
		return len(order)
	}
	keys := slices.SortedFunc(maps.Keys(objects), func(a, b string) int {
		return 2*(place(a)-place(b)) + strings.Compare(a, b)
	})
	for _, key := range keys {
		i.until("making "+key, func(ctx context.Context) error { return i.make(ctx, objects[key]) })
	}
}

func (i *installation) make(ctx context.Context, o *unstructured.Unstructured) error {
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(i.discovery))
	mapping, err := mapper.RESTMapping(o.GroupVersionKind().GroupKind(), o.GroupVersionKind().Version)
	if err != nil {
		return err
	}
	var client dynamic.ResourceInterface = i.dynamic.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		client = i.dynamic.Resource(mapping.Resource).Namespace(o.GetNamespace())
	}
	_, err = client.Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: "helm", Force: true})
	return err
}

// running waits until the StorageCluster says that all runs.
func (i *installation) running() {
	i.Helper()
	i.until("the StorageCluster to run", func(ctx context.Context) error {
		c, err := i.dynamic.Resource(clusters).Get(ctx, "holdfast", metav1.GetOptions{})
		if err != nil {
			return err
		}
		phase, _, _ := unstructured.NestedString(c.Object, "status", "phase")
		ready, _, _ := unstructured.NestedInt64(c.Object, "status", "readyNodes")
		if all, _, _ := unstructured.NestedInt64(c.Object, "status", "desiredNodes"); phase != "Running" || ready != all || ready == 0 {
			return fmt.Errorf("it is %v", c.Object["status"])
		}
		return nil
	})
}

// What helm does: the namespace by its user, then the objects of the release, the kinds first.
func TestChart_GivesAClusterThatRuns(t *testing.T) {
	i := installed(t)
	spec, _ := lookup(i.read("storagecluster.yaml")["StorageCluster holdfast"].Object, "spec")
	i.remove()

	own := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{
		"name": namespace, "labels": map[string]any{"pod-security.kubernetes.io/enforce": "privileged"},
	}}}
	i.apply(Objects{"Namespace " + namespace: own})
	release := render(t, Release{Values: map[string]any{"cluster": spec}})
	i.apply(release)
	i.running()

	// Helm would find its objects as it made them, beside what the operator adds.
	for key, object := range release {
		if object.GetKind() == "Deployment" {
			is, err := i.dynamic.Resource(runtimeschema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}).
				Namespace(namespace).Get(t.Context(), object.GetName(), metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if revision := is.GetAnnotations()["deployment.kubernetes.io/revision"]; revision != "1" {
				t.Errorf("%s was changed after it was installed: revision %s", key, revision)
			}
		}
	}
}
