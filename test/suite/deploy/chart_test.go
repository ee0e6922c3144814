package deploy

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/engine"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

// optionalKinds are kinds that a cluster may have, as the chart asks for them.
var optionalKinds = []string{
	"snapshot.storage.k8s.io/v1/VolumeSnapshotClass",
	"groupsnapshot.storage.k8s.io/v1/VolumeGroupSnapshotClass",
	"monitoring.coreos.com/v1/PodMonitor",
	"flowcontrol.apiserver.k8s.io/v1/FlowSchema",
	"admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy",
	"admissionregistration.k8s.io/v1/ValidatingAdmissionPolicyBinding",
}

// Chart is the Helm chart.
type Chart struct{ *chartv2.Chart }

func loadChart(from string) (Chart, error) {
	loaded, err := loader.Load(from)
	if err != nil {
		return Chart{}, err
	}
	return Chart{loaded.(*chartv2.Chart)}, nil
}

var loadOnce = sync.OnceValues(func() (Chart, error) { return loadChart(root + "/deploy/chart") })

// loaded is the chart of this repository, which no test changes.
func loaded(t *testing.T) Chart {
	t.Helper()
	return must(loadOnce())(t)
}

// Release is how a chart is installed.
type Release struct {
	Namespace string
	Values    map[string]any
	Kinds     []string // that the cluster has beside those of Kubernetes
	Offline   bool     // as helm template and Argo CD render it, without a cluster
	Upgrade   bool
}

// started is a cluster in which Helm has made what is in crds, and nothing else.
type started struct {
	dynamic.NamespaceableResourceInterface
	kind string
}

func (started) GetClientFor(_, kind string) (dynamic.NamespaceableResourceInterface, bool, error) {
	return started{kind: kind}, false, nil
}

func (s started) Get(_ context.Context, name string, _ metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	resource, group, _ := strings.Cut(name, ".")
	if _, err := os.Stat(root + "/deploy/chart/crds/" + group + "_" + resource + ".yaml"); s.kind != "CustomResourceDefinition" || err != nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: s.kind}, name)
	}
	return &unstructured.Unstructured{Object: map[string]any{"kind": s.kind}}, nil
}

func (started) List(context.Context, metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	return &unstructured.UnstructuredList{}, nil
}

// files returns what helm would print for a release, by template.
func (c Chart) files(r Release) (map[string]string, error) {
	if r.Namespace == "" {
		r.Namespace = namespace
	}
	capabilities := common.DefaultCapabilities.Copy()
	capabilities.APIVersions = append(slices.Clone(capabilities.APIVersions), r.Kinds...)
	release := common.ReleaseOptions{Name: "holdfast", Namespace: r.Namespace, IsInstall: !r.Upgrade, IsUpgrade: r.Upgrade, Revision: 1}
	values, err := util.ToRenderValues(c.Chart, copyOf(r.Values), release, capabilities)
	if err != nil {
		return nil, err
	}
	if r.Offline {
		return engine.Render(c.Chart, values)
	}
	return engine.RenderWithClientProvider(c.Chart, values, started{})
}

// hook is the annotation of what is no part of a release, such as what helm test runs.
const hook = "helm.sh/hook"

// render returns the objects of a release, and those that Helm makes when it runs its tests.
func (c Chart) render(t *testing.T, r Release) (objects, hooks Objects) {
	t.Helper()
	files, err := c.files(r)
	if err != nil {
		t.Fatalf("with %v: %v", r.Values, err)
	}
	var manifest strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if path.Ext(name) == ".yaml" {
			fmt.Fprintf(&manifest, "---\n%s\n", files[name])
		}
	}
	objects, hooks = parse(t, manifest.String()), Objects{}
	for key, o := range objects {
		if o.GetAnnotations()[hook] != "" {
			hooks[key] = o
			delete(objects, key)
		}
	}
	return objects, hooks
}

func render(t *testing.T, r Release) Objects {
	t.Helper()
	objects, _ := loaded(t).render(t, r)
	return objects
}

// places are the fields of the spec that have a place of their own in the values.
var places = map[string][]string{
	"controller": {"controller"}, "node": {"node"}, "defaultClass": {"defaultClass"}, "monitoring": {"monitoring", "podMonitor"},
	"imageRegistry": {"global", "imageRegistry"}, "imagePullSecrets": {"imagePullSecrets"}, "imagePullPolicy": {"image", "pullPolicy"},
}

// asValues returns the values for a spec.
func asValues(spec map[string]any) map[string]any {
	cluster := copyOf(spec)
	values := map[string]any{}
	for field, place := range places {
		if value, given := cluster[field]; given {
			values = with(values, value, place...)
			delete(cluster, field)
		}
	}
	images, _ := cluster["images"].(map[string]any)
	if own, given := images["holdfast"].(string); given {
		repository, tag, _ := strings.Cut(own, ":")
		values = with(with(values, repository, "image", "repository"), tag, "image", "tag")
		if delete(images, "holdfast"); len(images) == 0 {
			delete(cluster, "images")
		}
	}
	return with(values, cluster, "cluster")
}

// everything is a spec with which every part of the chart is rendered.
func everything(t *testing.T) map[string]any {
	t.Helper()
	values := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(read(t, "test/suite/deploy/testdata/everything.yaml")), &values); err != nil {
		t.Fatal(err)
	}
	return values["cluster"].(map[string]any)
}

// with returns values in which the one at the path is another. A step into a list is into its first element.
func with(values map[string]any, value any, path ...string) map[string]any {
	out := copyOf(values)
	at := out
	for _, step := range path[:len(path)-1] {
		switch next := at[step].(type) {
		case map[string]any:
			at = next
		case []any:
			at = next[0].(map[string]any)
		default:
			made := map[string]any{}
			at[step] = made
			at = made
		}
	}
	at[path[len(path)-1]] = value
	return out
}

// of returns values with one at a path, which has dots.
func of(path string, value any) map[string]any { return with(nil, value, strings.Split(path, ".")...) }

// copyOf returns a copy that shares nothing with the values, with numbers as they are read from YAML.
func copyOf(values map[string]any) map[string]any {
	out := map[string]any{}
	if len(values) == 0 {
		return out
	}
	text, err := json.Marshal(values)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		panic(err)
	}
	return out
}

func TestChart_InstallsWhatTheManifestInstalls(t *testing.T) {
	want := parse(t, read(t, manifest))
	// Helm makes no namespace before the objects that are in it; its user does.
	delete(want, "Namespace "+namespace)
	got := render(t, Release{})
	for _, object := range got {
		if object.GetKind() == "CustomResourceDefinition" {
			unstructured.RemoveNestedField(object.Object, "metadata", "annotations", keepAnnotation)
		}
	}
	// The manifest cannot have one beside its kind; the controller makes it.
	if spec, ok := got["StorageCluster holdfast"].Object["spec"]; ok { // nor an empty one, which Helm 4 cannot go back to
		t.Errorf("the StorageCluster has the spec %v", spec)
	}
	delete(got, "StorageCluster holdfast")
	compare(t, "as the chart has it", want, got)
}

// The operator changes its own workload, and Helm must not change it back.
func TestChart_HasTheSpecInItsStorageClusterAndTheControllerOfTheOperator(t *testing.T) {
	all := everything(t)
	tries := map[string]map[string]any{
		"nothing": nil, "everything": all,
		"without CSI":      with(all, false, "csi", "enabled"),
		"a StatefulSet":    with(all, "StatefulSet", "controller", "kind"),
		"no default class": of("defaultClass", false),
		"no PodMonitor":    of("monitoring.enabled", false),
	}
	for field, value := range all {
		tries["only "+field] = map[string]any{field: value}
		if fields, ok := value.(map[string]any); ok && field != "secretRef" { // which needs its name
			for inner := range fields {
				tries["only "+field+"."+inner] = of(field+"."+inner, fields[inner])
			}
		}
	}
	compared := 0
	for name, spec := range tries {
		for _, kinds := range [][]string{nil, optionalKinds} {
			if kinds == nil && strings.HasPrefix(name, "only") {
				continue // the kinds make no difference to most
			}
			want, err := operate(t, spec, kinds)
			if err != nil {
				continue // such as a class whose pool is not there
			}
			got := render(t, Release{Values: asValues(spec), Kinds: kinds})
			if is := lookup(got["StorageCluster holdfast"].Object, "spec"); spec != nil && compact(is) != compact(spec) {
				t.Errorf("%s: the spec is %s, not %s", name, compact(is), compact(spec))
			}
			notOfTheController := func(key string, _ *unstructured.Unstructured) bool {
				return !strings.HasSuffix(key, "/holdfast-controller") || strings.HasPrefix(key, "Role") || strings.HasPrefix(key, "ServiceAccount")
			}
			maps.DeleteFunc(want, notOfTheController)
			maps.DeleteFunc(got, notOfTheController)
			compare(t, fmt.Sprintf("%s, %d kinds: as the chart has it", name, len(kinds)), want, got)
			compared += len(want)
		}
	}
	if compared < 60 {
		t.Errorf("compared were only %d objects of %d", compared, len(tries))
	}
}

func TestChart_StaysInItsNamespace(t *testing.T) {
	for key, object := range render(t, Release{Namespace: "storage", Values: asValues(everything(t)), Kinds: optionalKinds}) {
		// The kinds give it as an example.
		if text := compact(object.Object); strings.Contains(text, namespace) && object.GetKind() != "CustomResourceDefinition" {
			t.Errorf("%s speaks of %s: %s", key, namespace, text)
		}
		want := ""
		if slices.Contains([]string{"ServiceAccount", "Role", "RoleBinding", "Deployment"}, object.GetKind()) {
			want = "storage"
		}
		if object.GetNamespace() != want {
			t.Errorf("%s is in the namespace %q, not %q", key, object.GetNamespace(), want)
		}
	}
}

const keepAnnotation = "helm.sh/resource-policy"

// Helm would remove the controller first, and the StorageCluster would wait for it for ever.
func TestChart_StorageClusterAndKindsStayWhenTheReleaseIsRemovedUnlessTheValuesSayOtherwise(t *testing.T) {
	const kind, cluster = "CustomResourceDefinition", "StorageCluster"
	for name, c := range map[string]struct {
		release Release
		want    map[string]int // by the kind and whether such an object stays
	}{
		"by default":      {Release{}, map[string]int{kind + " keep": 7, cluster + " keep": 1}},
		"kinds of others": {Release{Values: of("crds.enabled", false)}, map[string]int{cluster + " keep": 1}},
		"kinds with it":   {Release{Values: of("crds.keep", false)}, map[string]int{kind + " ": 7, cluster + " keep": 1}},
		// With those of the directory crds, which is rendered beside it, a kind would be there twice.
		"without a cluster": {Release{Offline: true}, map[string]int{cluster + " keep": 1}},
		"a difference":      {Release{Offline: true, Upgrade: true}, map[string]int{kind + " keep": 7, cluster + " keep": 1}},
	} {
		count := map[string]int{}
		for key, o := range render(t, c.release) {
			keep := o.GetAnnotations()[keepAnnotation]
			if o.GetKind() == kind || o.GetKind() == cluster {
				count[o.GetKind()+" "+keep]++
			} else if keep != "" {
				t.Errorf("%s: %s stays", name, key)
			}
		}
		if !maps.Equal(count, c.want) {
			t.Errorf("%s: there are %v, not %v", name, count, c.want)
		}
	}
}

func TestChart_LintFindsNothing(t *testing.T) {
	for name, values := range map[string]map[string]any{"nothing": nil, "everything": asValues(everything(t))} {
		lint := action.NewLint()
		lint.Strict = true
		result := lint.Run([]string{filepath.Join(root, "deploy/chart")}, values)
		for _, err := range result.Errors {
			t.Errorf("%s: %v", name, err)
		}
		for _, message := range result.Messages {
			if !strings.Contains(message.Error(), "icon is recommended") {
				t.Errorf("%s: %v", name, message)
			}
		}
	}
}
