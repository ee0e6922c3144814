package render

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/hostile"
)

// anyone is an input that a user may write.
func anyone(choices []byte) Input {
	in := ask(func(s *v1beta1.StorageClusterSpec) { hostile.Fill(choices, s) })
	spec := &in.Cluster.Spec
	spec.Pools = distinct(spec.Pools, func(p v1beta1.PoolSpec) string { return p.Name })
	spec.StorageClasses = distinct(spec.StorageClasses, func(c v1beta1.StorageClassSpec) string { return c.Name })
	in.Secret = everything().Secret
	if len(choices)%2 == 1 {
		in.Has = noKind
	}
	return in
}

// distinct leaves out what the schema refuses: long names, and two of one name.
func distinct[T any](all []T, name func(T) string) []T {
	seen := map[string]bool{}
	return slices.DeleteFunc(all, func(one T) bool {
		refused := seen[name(one)] || len(name(one)) > 63
		seen[name(one)] = true
		return refused
	})
}

func FuzzStorageCluster(f *testing.F) {
	for _, seed := range hostile.Seeds(1500) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, choices []byte) {
		in := anyone(choices)
		before := in.Cluster.DeepCopy()
		objects, err := Objects(in)
		if err != nil {
			refusedClearly(t, objects, err)
			return
		}
		seen := map[string]bool{}
		for _, o := range objects {
			key := o.GetKind() + " " + o.GetName()
			if seen[key] {
				t.Errorf("%s is there twice", key)
			}
			seen[key] = true
			for _, wrong := range reachesTooFar(o) {
				t.Errorf("%s: %s\nof %s", key, wrong, hostile.Text(in.Cluster.Spec))
			}
		}
		if !reflect.DeepEqual(before, in.Cluster) {
			t.Error("the StorageCluster was changed")
		}
		for _, node := range []*core.Node{{}, {ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"kubernetes.io/os": "linux", "zone": "1"}}}} {
			if _, err := Stores(in.Cluster, node); err != nil {
				t.Errorf("the terms were taken, and cannot be used: %v", err)
			}
		}
	})
}

// refusedClearly wants an error that a person can use, and nothing half made.
func refusedClearly(t *testing.T, objects []*unstructured.Unstructured, err error) {
	t.Helper()
	text := err.Error()
	if objects != nil || len(text) > 1500 || !utf8.ValidString(text) || !strings.HasPrefix(strings.TrimPrefix(text, "["), "spec.") && !strings.Contains(text, "secret") {
		t.Errorf("%d objects, and an error of %d bytes: %.2000s", len(objects), len(text), text)
	}
}

func TestFuzz_SeedsAreAcceptedOrRefused(t *testing.T) {
	taken, refused := 0, map[string]bool{}
	for _, seed := range hostile.Seeds(3000) {
		if _, err := Objects(anyone(seed)); err != nil {
			field, _, _ := strings.Cut(err.Error(), ":")
			refused[index.ReplaceAllString(field, "")] = true
			continue
		}
		taken++
	}
	t.Logf("%d are taken; refused are %v", taken, sortedKeys(refused))
	if taken < 20 || len(refused) < 15 {
		t.Errorf("%d are taken, and %d fields refused: too few to show anything", taken, len(refused))
	}
}

var index = regexp.MustCompile(`\[[0-9]*\]?`)

// reachesTooFar finds what would choose more than it is for. What is invalid the API server refuses.
func reachesTooFar(o *unstructured.Unstructured) (wrong []string) {
	typed, err := scheme.Scheme.New(o.GroupVersionKind())
	if runtime.IsNotRegisteredError(err) {
		return emptySelector(o)
	}
	if err == nil {
		err = decode(o, typed)
	}
	if err != nil {
		return []string{err.Error()}
	}
	switch typed := typed.(type) {
	case *apps.DaemonSet:
		wrong = workload(typed.Spec.Selector, &typed.Spec.Template)
	case *apps.Deployment:
		wrong = workload(typed.Spec.Selector, &typed.Spec.Template)
	case *apps.StatefulSet:
		wrong = workload(typed.Spec.Selector, &typed.Spec.Template)
	case *core.Service:
		if len(typed.Spec.Selector) == 0 {
			wrong = append(wrong, "it leads nowhere")
		}
	}
	return wrong
}

// emptySelector finds one that would choose everything, of a kind without a type here.
func emptySelector(o *unstructured.Unstructured) []string {
	if chosen, found, _ := unstructured.NestedMap(o.Object, "spec", "selector", "matchLabels"); o.GroupVersionKind().GroupKind() == podMonitorKind && (!found || len(chosen) == 0) {
		return []string{"it chooses all pods"}
	}
	return nil
}

func workload(selector *metav1.LabelSelector, pod *core.PodTemplateSpec) (wrong []string) {
	if len(selector.MatchLabels) == 0 {
		wrong = append(wrong, "it chooses all pods")
	}
	for key, value := range selector.MatchLabels {
		if pod.Labels[key] != value {
			wrong = append(wrong, fmt.Sprintf("it does not choose its own pods: %s=%s", key, value))
		}
	}
	return wrong
}

// What the checks of the fuzzer find when something is wrong.
func TestFuzz_ObjectThatReachesTooFarIsFound(t *testing.T) {
	for _, o := range rendered(t, ask(nil)) {
		if found := reachesTooFar(o); len(found) > 0 {
			t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), found)
		}
	}
	broken := map[schema.GroupKind][]string{
		{Group: "apps", Kind: "DaemonSet"}:  {"spec", "selector", "matchLabels"},
		{Group: "apps", Kind: "Deployment"}: {"spec", "template", "metadata", "labels"},
		{Kind: "Service"}:                   {"spec", "selector"},
		podMonitorKind:                      {"spec", "selector"},
	}
	found := maps.Clone(broken)
	for _, o := range rendered(t, ask(nil)) {
		kind := o.GroupVersionKind().GroupKind()
		if path := broken[kind]; path != nil {
			unstructured.RemoveNestedField(o.Object, path...)
			if kind.Kind == "DaemonSet" {
				_ = unstructured.SetNestedStringMap(o.Object, nil, path...)
			}
			if len(reachesTooFar(o)) > 0 {
				delete(found, kind)
			}
		}
	}
	if len(found) > 0 {
		t.Errorf("not found is what is wrong with %v", found)
	}
}
