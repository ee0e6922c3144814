package operator

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

var (
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	monitors    = schema.GroupVersionResource{Group: "monitoring.coreos.com", Version: "v1", Resource: "podmonitors"}
)

// defineMonitors makes the kind that Prometheus Operator brings, and removes it with the test.
func (a *admin) defineMonitors() {
	a.t.Helper()
	definition := &unstructured.Unstructured{Object: fields{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": fields{"name": "podmonitors.monitoring.coreos.com"},
		"spec": fields{
			"group": monitors.Group, "scope": "Namespaced",
			"names": fields{"kind": "PodMonitor", "listKind": "PodMonitorList", "plural": monitors.Resource, "singular": "podmonitor"},
			"versions": []any{fields{"name": monitors.Version, "served": true, "storage": true, "schema": fields{
				"openAPIV3Schema": fields{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
			}}},
		},
	}}
	if _, err := a.Dynamic.Resource(definitions).Create(a.t.Context(), definition, metav1.CreateOptions{}); err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() {
		if err := a.Dynamic.Resource(definitions).Delete(context.WithoutCancel(a.t.Context()), definition.GetName(), metav1.DeleteOptions{}); err != nil {
			a.t.Error(err)
		}
	})
}

func TestMonitoring_LearnedPodMonitorIsCreatedUnlessDisabled(t *testing.T) {
	a := administer(t)
	a.defineMonitors()
	source := a.Dynamic.Resource(monitors).Namespace(kube.System)
	made := func(*unstructured.Unstructured) (bool, error) { return true, nil }
	monitor := kube.AwaitOne(a.Space, source, "holdfast", "to be made", made)

	h := &healing{admin: a, took: map[string][]time.Duration{}}
	o := kube.Listed{Unstructured: monitor, Resource: monitors, Namespaced: true}
	h.heal("edited", o, edits["PodMonitor"])
	h.heal("deleted", o, nil)

	a.change(func(spec *v1beta1.StorageClusterSpec) { spec.Monitoring.Enabled = new(false) })
	kube.AwaitNone(a.Space, source, kube.Named("holdfast"), "the monitor that is not requested")
	a.change(func(spec *v1beta1.StorageClusterSpec) { spec.Monitoring.Enabled = nil })
	kube.AwaitOne(a.Space, source, "holdfast", "to be made again", made)
}
