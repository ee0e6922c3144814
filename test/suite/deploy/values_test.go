package deploy

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
)

// described are the paths of the values that the schema describes field by field, with dots.
func described(path string, schema map[string]any) (all []string) {
	if items, ok := schema["items"].(map[string]any); ok {
		schema = items
	}
	properties, _ := schema["properties"].(map[string]any)
	if len(properties) > 0 {
		all = append(all, path)
	}
	for name, inner := range properties {
		all = append(all, described(strings.TrimPrefix(path+"."+name, "."), inner.(map[string]any))...)
	}
	return all
}

func TestValues_UnknownIsRefusedByName(t *testing.T) {
	schema := map[string]any{}
	if err := json.Unmarshal([]byte(read(t, "deploy/chart/values.schema.json")), &schema); err != nil {
		t.Fatal(err)
	}
	all, tried := asValues(everything(t)), 0
	for _, path := range described("", schema) {
		steps := strings.FieldsFunc(path, func(r rune) bool { return r == '.' })
		if lookup(all, steps...) != nil && !strings.HasPrefix(path, "global") {
			tried++
			refused(t, with(all, "x", append(steps, "misspelt")...), "misspelt")
		}
	}
	if tried < 20 {
		t.Errorf("only %d places were tried", tried)
	}
}

func TestValues_BadIsRefusedByItsPath(t *testing.T) {
	for name, c := range map[string]struct {
		value   any
		path    string
		message []string
	}{
		"another account":           {"mine", "serviceAccount.name", []string{"/serviceAccount/name", "'holdfast-controller'"}},
		"a number as an annotation": {1, "serviceAccount.annotations.a", []string{"/serviceAccount/annotations/a", "want string"}},
		"an odd policy":             {"Sometimes", "image.pullPolicy", []string{"/image/pullPolicy", "'IfNotPresent'"}},
		"a secret as a text":        {[]any{"registry"}, "imagePullSecrets", []string{"/imagePullSecrets/0", "want object"}},
		"a URL as a registry":       {"https://r.example", "global.imageRegistry", []string{"/global/imageRegistry", "https://r.example"}},
		"an unknown affinity":       {map[string]any{"nodeAfinity": nil}, "controller.affinity", []string{"/controller/affinity", "nodeAfinity"}},
		"a label as a number":       {map[string]any{"a": 1}, "node.podLabels", []string{"/node/podLabels/a", "want string"}},
		"one argument":              {"--log-format=json", "controller.extraArgs", []string{"/controller/extraArgs", "want array"}},
		"kinds as a text":           {"yes", "crds.enabled", []string{"/crds/enabled", "want boolean"}},
		"an unknown of kinds":       {true, "crds.install", []string{"/crds", "install"}},
		"no list of nodes":          {[]any{"a"}, "controller.nodeSelector", []string{"/controller/nodeSelector", "want object"}},
		"a selector of no pods":     {map[string]any{"disk": "ssd"}, "nodeSelector", []string{"/nodeSelector", "controller.nodeSelector", "cluster.nodeSelectorTerms"}},
		"resources of no pods":      {map[string]any{}, "resources", []string{"/resources", "set controller.resources, node.resources"}},
		"taints of node pods":       {[]any{}, "node.tolerations", []string{"/node/tolerations", "tolerate every taint"}},
		"a field with a place":      {map[string]any{"replicas": 3}, "cluster.controller", []string{"/cluster/controller", "set controller instead"}},
		"an image twice":            {"mine:v1", "cluster.images.holdfast", []string{"/cluster/images/holdfast", "image.repository"}},
	} {
		t.Run(name, func(t *testing.T) {
			refused(t, with(asValues(everything(t)), c.value, strings.Split(c.path, ".")...), c.message...)
		})
	}
}

// refused checks that values are refused, with a message that has all the parts.
func refused(t *testing.T, values map[string]any, parts ...string) {
	t.Helper()
	_, err := loaded(t).files(Release{Values: values})
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

// The operator would take back what it does not find in the StorageCluster.
func TestValues_BecomeFieldsOfTheSpecAndTheControllerAsTheOperatorMakesIt(t *testing.T) {
	secrets := func(names ...string) (list []any) {
		for _, name := range names {
			list = append(list, map[string]any{"name": name})
		}
		return list
	}
	whole := map[string]any{"repository": "r.example/mine", "tag": "v7", "digest": "sha256:01"}
	own := func(image string) map[string]any { return of("images.holdfast", image) }
	usual := render(t, Release{})
	for name, c := range map[string][2]map[string]any{
		"another image":   {of("image.repository", "r.example/mine"), own("r.example/mine:" + loaded(t).Metadata.AppVersion)},
		"another tag":     {of("image.tag", "v7"), own("holdfast/holdfast:v7")},
		"a digest":        {of("image.digest", "sha256:01"), own("holdfast/holdfast@sha256:01")},
		"a mirrored tag":  {with(of("image.tag", "v7"), "r.example/all", "global", "imageRegistry"), with(own("r.example/all/holdfast/holdfast:v7"), "r.example/all", "imageRegistry")},
		"all of an image": {of("image", whole), own("r.example/mine:v7@sha256:01")},
		"a pull policy":   {of("image.pullPolicy", "Always"), of("imagePullPolicy", "Always")},
		"a registry":      {of("global", map[string]any{"imageRegistry": "r.example:5000/all", "more": 1}), of("imageRegistry", "r.example:5000/all")},
		"secrets":         {with(of("imagePullSecrets", secrets("b", "a")), secrets("a"), "global", "imagePullSecrets"), of("imagePullSecrets", secrets("a", "b"))},
		"one node":        {of("singleNode", true), of("controller.replicas", 1)},
		"three for one":   {with(of("singleNode", true), 3, "controller", "replicas"), of("controller.replicas", 3)},
	} {
		t.Run(name, func(t *testing.T) {
			got := render(t, Release{Values: c[0]})
			if spec := lookup(got["StorageCluster holdfast"].Object, "spec"); compact(spec) != compact(c[1]) {
				t.Errorf("the spec is %s, not %s", compact(spec), compact(c[1]))
			}
			compare(t, "as the chart has it", operated(t, c[1]).only(controller), got.only(controller))
			if len(differences(usual.only(controller), got.only(controller))) == 0 {
				t.Error("it changes nothing")
			}
		})
	}
}

func TestValues_AccountHasAnnotations(t *testing.T) {
	annotations := map[string]any{"example.com/role": "storage"}
	account := render(t, Release{Values: of("serviceAccount.annotations", annotations)})["ServiceAccount "+namespace+"/holdfast-controller"]
	if account.GetAnnotations()["example.com/role"] != "storage" {
		t.Errorf("it has %v", account.GetAnnotations())
	}
}

func TestChart_HasTheAlertsAndTheDashboardOfDeploy(t *testing.T) {
	const alerts, panels = "PrometheusRule storage/holdfast", "ConfigMap storage/holdfast-dashboard"
	values := of("monitoring.prometheusRule", map[string]any{"enabled": true, "labels": map[string]any{"release": "prometheus"}})
	values = with(values, map[string]any{"enabled": true, "labels": map[string]any{"grafana_dashboard": "yes"}}, "monitoring", "dashboard")
	got := render(t, Release{Namespace: "storage", Values: values})
	rule, dashboard := got[alerts], got[panels]
	if rule == nil || dashboard == nil {
		t.Fatalf("there are only %v", slices.Sorted(maps.Keys(got)))
	}
	want := parse(t, read(t, "deploy/monitoring/prometheusrule.yaml"))["PrometheusRule holdfast"].Object["spec"]
	was := strings.ReplaceAll(compact(want), "-n holdfast-system", "-n storage")
	if is := compact(rule.Object["spec"]); is != was || strings.Contains(is, namespace) {
		t.Errorf("the alerts are %s", is)
	}
	if rule.GetLabels()["release"] != "prometheus" || rule.GetLabels()["app.kubernetes.io/name"] != "holdfast" || dashboard.GetLabels()["grafana_dashboard"] != "yes" {
		t.Errorf("the labels are %v, %v", rule.GetLabels(), dashboard.GetLabels())
	}
	if is := lookup(dashboard.Object, "data", "holdfast.json"); is != strings.TrimSuffix(read(t, "deploy/monitoring/dashboard.json"), "\n") {
		t.Errorf("the dashboard is %.100v", is)
	}
	if usual := render(t, Release{Namespace: "storage"}); usual[alerts] != nil || usual[panels] != nil {
		t.Error("both are rendered unasked")
	}
}
