package deploy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
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

// cluster is a real API server, which has the snapshots' kinds.
type cluster struct {
	dynamic  *dynamic.DynamicClient
	mapper   meta.RESTMapper
	warnings bytes.Buffer // of the API server
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
	program.Dir, program.Stderr = root+"/test/cluster", t.Output()
	kubeconfig := must(program.Output())(t)
	config := must(clientcmd.BuildConfigFromFlags("", strings.TrimSpace(string(kubeconfig))))(t)
	c := &cluster{}
	config.QPS, config.WarningHandler = -1, rest.NewWarningWriter(&c.warnings, rest.WarningWriterOptions{})
	c.dynamic = must(dynamic.NewForConfig(config))(t)
	groups := must(restmapper.GetAPIGroupResources(must(discovery.NewDiscoveryClientForConfig(config))(t)))(t)
	c.mapper = restmapper.NewDiscoveryRESTMapper(groups)
	return c
}

func TestAPIServer_AcceptsEveryInstalledObject(t *testing.T) {
	c := connect(t)
	ways := maps.Clone(installations(t))
	ways["examples of the bundle"] = examples(t)
	for name, objects := range ways {
		t.Run(name, func(t *testing.T) {
			for key, object := range objects {
				if object.GetKind() == "PodMonitor" {
					continue // of others
				}
				if err := c.try(t.Context(), object); err != nil {
					t.Errorf("%s: %v", key, err)
				}
			}
			if c.warnings.Len() > 0 {
				t.Errorf("the API server warns: %s", &c.warnings)
			}
			c.warnings.Reset()
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

var (
	storageClusters = schema.GroupVersionResource{Group: "holdfast.dev", Version: "v1beta1", Resource: "storageclusters"}
	deployments     = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
)

// A change is not done before the operator has seen it: kstatus, by which Flux and helm --wait judge, may not say so.
func TestKstatus_ClusterIsInProgressUntilItsChangeIsCarriedOut(t *testing.T) {
	c := connect(t)
	clusters, rolled := c.dynamic.Resource(storageClusters), c.dynamic.Resource(deployments).Namespace(namespace)
	last := "never looked at"
	follow := func(annotation string) func(context.Context) (bool, error) {
		return func(ctx context.Context) (bool, error) {
			o, err := clusters.Get(ctx, "holdfast", metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			result, err := status.Compute(o)
			if err != nil || result.Status == status.InProgressStatus {
				return false, err
			}
			last = fmt.Sprintf("%s: %s; its status is %v", result.Status, result.Message, o.Object["status"])
			d, err := rolled.Get(ctx, "holdfast-controller", metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			is, _, _ := unstructured.NestedString(d.Object, "spec", "template", "metadata", "annotations", "example.com/kstatus")
			controller, err := status.Compute(d)
			if err != nil || result.Status != status.CurrentStatus || is != annotation || controller.Status != status.CurrentStatus {
				return false, errors.Join(err, errors.New("it is not so"))
			}
			return true, nil
		}
	}
	set := func(value, annotation string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute) // also for what is put back at the end
		defer cancel()
		patch := fmt.Appendf(nil, `{"spec":{"controller":{"podAnnotations":{"example.com/kstatus":%s}}}}`, value)
		must(clusters.Patch(ctx, "holdfast", types.MergePatchType, patch, metav1.PatchOptions{}))(t)
		if err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, follow(annotation)); err != nil {
			t.Errorf("holdfast: %v, but %s", err, last)
		}
	}
	t.Cleanup(func() { set("null", "") })
	set(`"yes"`, "yes")
}
