package deploy

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
)

// patience is how long anything here may take.
const patience = 4 * time.Minute

func ofHoldfast(resource string) runtimeschema.GroupVersionResource {
	return runtimeschema.GroupVersionResource{Group: "holdfast.dev", Version: "v1beta1", Resource: resource}
}

// judge has kstatus, by which Flux and helm --wait judge, judge the objects of a cluster.
type judge struct {
	*testing.T
	*cluster
}

// follow looks at an object until it is judged for good. That must not be before it is so by what the object says itself.
func (j judge) follow(in dynamic.ResourceInterface, name string, want status.Status, so func(*unstructured.Unstructured) bool) {
	j.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(j.Context()), patience) // also for what is put back at the end
	defer cancel()
	last := "never looked at"
	err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		o, err := in.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		result, err := status.Compute(o)
		if err != nil {
			return false, err
		}
		last = fmt.Sprintf("%s: %s; its status is %v", result.Status, result.Message, o.Object["status"])
		switch result.Status {
		case status.InProgressStatus:
			return false, nil
		case want:
			if !so(o) {
				return false, errors.New("it is not so")
			}
			return true, nil
		default:
			return false, errors.New("it is not " + want.String())
		}
	})
	if err != nil {
		j.Errorf("%s: %v, but %s", name, err, last)
	}
}

// A change is not done before the operator has seen it.
func TestKstatus_ClusterIsInProgressUntilItsChangeIsCarriedOut(t *testing.T) {
	j := judge{t, connect(t)}
	deployments := j.dynamic.Resource(runtimeschema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}).Namespace(namespace)
	set := func(annotation string) {
		t.Helper()
		patch := fmt.Appendf(nil, `{"spec":{"controller":{"podAnnotations":{"example.com/kstatus":%s}}}}`, annotation)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if _, err := j.dynamic.Resource(ofHoldfast("storageclusters")).Patch(ctx, "holdfast", "application/merge-patch+json", patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		j.follow(j.dynamic.Resource(ofHoldfast("storageclusters")), "holdfast", status.CurrentStatus, func(*unstructured.Unstructured) bool {
			d, err := deployments.Get(ctx, "holdfast-controller", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			is, _, _ := unstructured.NestedString(d.Object, "spec", "template", "metadata", "annotations", "example.com/kstatus")
			rolled, err := status.Compute(d)
			return err == nil && (annotation == "null") == (is == "") && rolled.Status == status.CurrentStatus
		})
	}
	t.Cleanup(func() { set("null") })
	set(`"yes"`)
}
