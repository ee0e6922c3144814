package deploy

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// schema is a part of values.schema.json.
type schema struct {
	Description string             `json:"description"`
	Type        string             `json:"type"`
	Properties  map[string]*schema `json:"properties"`
	Items       *schema            `json:"items"`
	Additional  any                `json:"additionalProperties"`
	Const       string             `json:"const"` // why it is refused
}

// value is one that a user may set. A step of its path into a list is into the first element.
type value struct {
	path   []string
	schema *schema
}

func (v value) String() string { return strings.Join(v.path, ".") }

// leaf says whether there are no values of ours within.
func (v value) leaf() bool { return len(v.inner()) == 0 }

func (v value) inner() map[string]*schema {
	if v.schema.Items != nil {
		return v.schema.Items.Properties
	}
	return v.schema.Properties
}

// schemas returns the values of the chart, and what they are in.
func schemas(t *testing.T) []value {
	t.Helper()
	content, err := os.ReadFile(root + "/deploy/chart/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	top := &schema{}
	if err := json.Unmarshal(content, top); err != nil {
		t.Fatal(err)
	}
	return walk(value{nil, top})[1:]
}

func walk(v value) []value {
	all := []value{v}
	if v.schema.Const != "" {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(v.inner())) {
		all = append(all, walk(value{slices.Concat(v.path, []string{name}), v.inner()[name]})...)
	}
	return all
}

// ofTheChart are values that are no field of the spec, or not in this form; others try them.
var ofTheChart = []string{"image", "global", "singleNode", "monitoring", "serviceAccount", "crds"}

func TestValues_EachIsInTheCompleteExample(t *testing.T) {
	all := asValues(everything(t))
	for _, v := range schemas(t) {
		if !v.leaf() || slices.Contains(ofTheChart, v.path[0]) || strings.Contains(v.String(), "odeSelectorTerms.") || strings.Contains(v.String(), "resources.claims") ||
			strings.Contains(v.String(), ".affinity.") || strings.Contains(v.String(), ".topologySpreadConstraints.") {
			continue // of Kubernetes
		}
		if v.String() == "cluster.paused" || slices.Contains(v.path, "devices") || slices.Contains(v.path, "ceph") || v.String() == "cluster.storageClasses.pools" {
			continue // says nothing of objects, or is of another pool or class than the first
		}
		if _, there := lookup(all, v.path...); !there {
			t.Errorf("%s is not in testdata/everything.yaml, so nothing tries it", v)
		}
	}
}

func TestValues_UnknownIsRefusedByName(t *testing.T) {
	chart, all := loaded(t), asValues(everything(t))
	refused(t, chart, with(all, "x", "misspelt"), "misspelt")
	for _, v := range schemas(t) {
		if _, there := lookup(all, v.path...); there && !v.leaf() && v.path[0] != "global" {
			refused(t, chart, with(all, "x", slices.Concat(v.path, []string{"misspelt"})...), "misspelt")
		}
	}
}

func TestValues_BadIsRefusedByItsPath(t *testing.T) {
	chart := loaded(t)
	for name, c := range map[string]struct {
		value   any
		path    []string
		message []string
	}{
		"another account":           {"mine", []string{"serviceAccount", "name"}, []string{"/serviceAccount/name", "'holdfast-controller'"}},
		"a number as an annotation": {1, []string{"serviceAccount", "annotations", "a"}, []string{"/serviceAccount/annotations/a", "want string"}},
		"an odd policy":             {"Sometimes", []string{"image", "pullPolicy"}, []string{"/image/pullPolicy", "'IfNotPresent'"}},
		"a secret as a text":        {[]any{"registry"}, []string{"imagePullSecrets"}, []string{"/imagePullSecrets/0", "want object"}},
		"a URL as a registry":       {"https://r.example", []string{"global", "imageRegistry"}, []string{"/global/imageRegistry", "https://r.example"}},
		"an unknown affinity":       {map[string]any{"nodeAfinity": nil}, []string{"controller", "affinity"}, []string{"/controller/affinity", "nodeAfinity"}},
		"a label as a number":       {map[string]any{"a": 1}, []string{"node", "podLabels"}, []string{"/node/podLabels/a", "want string"}},
		"one argument":              {"--log-format=json", []string{"controller", "extraArgs"}, []string{"/controller/extraArgs", "want array"}},
		"kinds as a text":           {"yes", []string{"crds", "enabled"}, []string{"/crds/enabled", "want boolean"}},
		"an unknown of kinds":       {true, []string{"crds", "install"}, []string{"/crds", "install"}},
		"no list of nodes":          {[]any{"a"}, []string{"controller", "nodeSelector"}, []string{"/controller/nodeSelector", "want object"}},
		"a selector of no pods":     {map[string]any{"disk": "ssd"}, []string{"nodeSelector"}, []string{"/nodeSelector", "controller.nodeSelector", "cluster.nodeSelectorTerms"}},
		"resources of no pods":      {map[string]any{}, []string{"resources"}, []string{"/resources", "set controller.resources, node.resources"}},
		"taints of node pods":       {[]any{}, []string{"node", "tolerations"}, []string{"/node/tolerations", "tolerate every taint"}},
		"a field with a place":      {map[string]any{"replicas": 3}, []string{"cluster", "controller"}, []string{"/cluster/controller", "set controller instead"}},
		"an image twice":            {"mine:v1", []string{"cluster", "images", "holdfast"}, []string{"/cluster/images/holdfast", "image.repository"}},
	} {
		t.Run(name, func(t *testing.T) {
			refused(t, chart, with(asValues(everything(t)), c.value, c.path...), c.message...)
		})
	}
}

// refused checks that values are refused, with a message that has all the parts.
func refused(t *testing.T, chart *Chart, values map[string]any, parts ...string) {
	t.Helper()
	_, err := chart.Render(Release{Values: values})
	if err == nil {
		t.Errorf("%v was taken", parts)
		return
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the message does not say %q: %s", part, err)
		}
	}
}
