package deploy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
)

// The environment says which cluster to ask, and whether it must be there.
const (
	clusterVariable = "HOLDFAST_CLUSTER"
	requireVariable = "HOLDFAST_REQUIRE"
)

// cluster is a real API server, which has the snapshots' kinds. It is asked, and nothing in it changes.
type cluster struct {
	discovery *discovery.DiscoveryClient
	dynamic   dynamic.Interface
	mapper    meta.RESTMapper
	warnings  warnings
}

func connect(t *testing.T) *cluster {
	t.Helper()
	name := os.Getenv(clusterVariable)
	if name == "" {
		if strings.Contains(","+os.Getenv(requireVariable)+",", ",cluster,") {
			t.Fatalf("%s names cluster, but %s names none", requireVariable, clusterVariable)
		}
		t.Skip("needs a cluster with the kinds of snapshots, named in " + clusterVariable)
	}
	program := exec.Command("go", "run", ".", "-name", name, "kubeconfig")
	program.Dir = root + "/test/cluster"
	var errs bytes.Buffer
	program.Stderr = &errs
	kubeconfig, err := program.Output()
	if err != nil {
		t.Fatalf("cluster %s: %v: %s", name, err, errs.String())
	}
	config, err := clientcmd.BuildConfigFromFlags("", strings.TrimSpace(string(kubeconfig)))
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{}
	config.QPS, config.WarningHandlerWithContext = -1, &c.warnings
	if c.discovery, err = discovery.NewDiscoveryClientForConfig(config); err != nil {
		t.Fatal(err)
	}
	if c.dynamic, err = dynamic.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	groups, err := restmapper.GetAPIGroupResources(c.discovery)
	if err != nil {
		t.Fatal(err)
	}
	c.mapper = restmapper.NewDiscoveryRESTMapper(groups)
	return c
}

func TestAPIServer_AcceptsEveryInstalledObject(t *testing.T) {
	c := connect(t)
	ways := installations(t)
	ways["examples of the bundle"] = examples(t)
	for _, objects := range ways {
		maps.DeleteFunc(objects, func(_ string, o *unstructured.Unstructured) bool { return o.GetKind() == "PodMonitor" }) // of others
	}
	for name, objects := range ways {
		t.Run(name, func(t *testing.T) {
			for key, object := range objects {
				if err := c.try(t.Context(), object); err != nil {
					t.Errorf("%s: %v", key, err)
				}
			}
			for _, warning := range c.warnings.take() {
				t.Errorf("the API server warns: %s", warning)
			}
		})
	}
}

// try asks the API server whether it would take an object, if it were new. The kinds are there already, and the
// StorageCluster, of which there can be one; they are tried as changes.
func (c *cluster) try(ctx context.Context, object *unstructured.Unstructured) error {
	object = object.DeepCopy()
	if kind := object.GetKind(); kind != "CustomResourceDefinition" && kind != "StorageCluster" {
		object.SetName("try-" + object.GetName())
	}
	mapping, err := c.mapper.RESTMapping(object.GroupVersionKind().GroupKind(), object.GroupVersionKind().Version)
	if err != nil {
		return err
	}
	var client dynamic.ResourceInterface = c.dynamic.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		object.SetNamespace(metav1.NamespaceDefault) // which every cluster has
		client = c.dynamic.Resource(mapping.Resource).Namespace(object.GetNamespace())
	}
	content, err := json.Marshal(object)
	if err != nil {
		return err
	}
	_, err = client.Patch(ctx, object.GetName(), types.ApplyPatchType, content, metav1.PatchOptions{
		DryRun: []string{metav1.DryRunAll}, FieldManager: "holdfast-test", FieldValidation: metav1.FieldValidationStrict, Force: new(true),
	})
	return err
}

// warnings collects what the API server warns of.
type warnings struct {
	mu  sync.Mutex
	all []string
}

var _ rest.WarningHandlerWithContext = (*warnings)(nil)

func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, code int, agent, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, fmt.Sprintf("%d %s %s", code, agent, text))
}

func (w *warnings) take() (all []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	all, w.all = w.all, nil
	return all
}
