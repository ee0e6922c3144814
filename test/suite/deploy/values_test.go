package deploy

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/action"
	core "k8s.io/api/core/v1"
)

// of returns values with one at a path, which has dots.
func of(path string, value any) map[string]any {
	return with(map[string]any{}, value, strings.Split(path, ".")...)
}

// The operator would take back what it does not find in the StorageCluster.
func TestValues_BecomeFieldsOfTheSpecAndTheControllerAsTheOperatorMakesIt(t *testing.T) {
	secrets := func(names ...string) (list []any) {
		for _, name := range names {
			list = append(list, map[string]any{"name": name})
		}
		return list
	}
	own := func(image string) map[string]any { return of("images.holdfast", image) }
	key := "Deployment " + namespace + "/holdfast-controller"
	usual := render(t, Release{})[key]
	for name, c := range map[string][2]map[string]any{
		"another image":   {of("image.repository", "r.example/mine"), own("r.example/mine:" + loaded(t).Metadata.AppVersion)},
		"another tag":     {of("image.tag", "v7"), own("holdfast/holdfast:v7")},
		"a digest":        {of("image.digest", "sha256:01"), own("holdfast/holdfast@sha256:01")},
		"a mirrored tag":  {with(of("image.tag", "v7"), "r.example/all", "global", "imageRegistry"), with(own("r.example/all/holdfast/holdfast:v7"), "r.example/all", "imageRegistry")},
		"all of an image": {map[string]any{"image": map[string]any{"repository": "r.example/mine", "tag": "v7", "digest": "sha256:01"}}, own("r.example/mine:v7@sha256:01")},
		"a pull policy":   {of("image.pullPolicy", "Always"), of("imagePullPolicy", "Always")},
		"a registry":      {map[string]any{"global": map[string]any{"imageRegistry": "r.example:5000/all", "more": 1}}, of("imageRegistry", "r.example:5000/all")},
		"secrets":         {with(of("imagePullSecrets", secrets("b", "a")), secrets("a"), "global", "imagePullSecrets"), of("imagePullSecrets", secrets("a", "b"))},
		"one node":        {of("singleNode", true), of("controller.replicas", 1)},
		"three for one":   {with(of("singleNode", true), 3, "controller", "replicas"), of("controller.replicas", 3)},
	} {
		t.Run(name, func(t *testing.T) {
			got := render(t, Release{Values: c[0]})
			spec, _ := lookup(got["StorageCluster holdfast"].Object, "spec")
			if compact(spec) != compact(c[1]) {
				t.Errorf("the spec is %s, not %s", compact(spec), compact(c[1]))
			}
			want := operated(t, c[1], nil)
			for _, difference := range Differences(Objects{key: want[key]}, Objects{key: got[key]}) {
				t.Errorf("as the chart has it, %s", difference)
			}
			if len(Differences(Objects{key: usual}, Objects{key: got[key]})) == 0 {
				t.Error("it changes nothing")
			}
		})
	}
}

func TestValues_OfTheSpecAloneReachIt(t *testing.T) {
	for name, c := range map[string][2]map[string]any{
		"no default class": {of("defaultClass", false), of("defaultClass", false)},
		"no PodMonitor":    {of("monitoring.podMonitor.enabled", false), of("monitoring.enabled", false)},
	} {
		spec, _ := lookup(render(t, Release{Values: c[0]})["StorageCluster holdfast"].Object, "spec")
		if compact(spec) != compact(c[1]) {
			t.Errorf("%s: the spec is %s, not %s", name, compact(spec), compact(c[1]))
		}
	}
}

func TestChart_HasTheAlertsAndTheDashboardOfDeploy(t *testing.T) {
	values := of("monitoring.prometheusRule", map[string]any{"enabled": true, "labels": map[string]any{"release": "prometheus"}})
	values = with(values, map[string]any{"enabled": true, "labels": map[string]any{"grafana_dashboard": "yes"}}, "monitoring", "dashboard")
	got := render(t, Release{Namespace: "storage", Values: values})
	rule, dashboard := got["PrometheusRule storage/holdfast"], got["ConfigMap storage/holdfast-dashboard"]
	if rule == nil || dashboard == nil {
		t.Fatalf("there are only %v", slices.Sorted(maps.Keys(got)))
	}
	want, err := Parse([]byte(read(t, "deploy/monitoring/prometheusrule.yaml")))
	if err != nil {
		t.Fatal(err)
	}
	was := strings.ReplaceAll(compact(want["PrometheusRule holdfast"].Object["spec"]), "-n holdfast-system", "-n storage")
	if is := compact(rule.Object["spec"]); is != was || strings.Contains(is, namespace) {
		t.Errorf("the alerts are %s", is)
	}
	if rule.GetLabels()["release"] != "prometheus" || rule.GetLabels()["app.kubernetes.io/name"] != "holdfast" || dashboard.GetLabels()["grafana_dashboard"] != "yes" {
		t.Errorf("the labels are %v, %v", rule.GetLabels(), dashboard.GetLabels())
	}
	if is, _ := lookup(dashboard.Object, "data", "holdfast.json"); is != strings.TrimSuffix(read(t, "deploy/monitoring/dashboard.json"), "\n") {
		t.Errorf("the dashboard is %.100v", is)
	}
	if usual := render(t, Release{Namespace: "storage"}); usual["PrometheusRule storage/holdfast"] != nil || usual["ConfigMap storage/holdfast-dashboard"] != nil {
		t.Error("both are rendered unasked")
	}
}

func TestValues_AccountHasAnnotations(t *testing.T) {
	annotations := map[string]any{"example.com/role": "storage"}
	account := render(t, Release{Values: map[string]any{"serviceAccount": map[string]any{"annotations": annotations}}})["ServiceAccount "+namespace+"/holdfast-controller"]
	if account.GetAnnotations()["example.com/role"] != "storage" {
		t.Errorf("it has %v", account.GetAnnotations())
	}
}

func TestChart_KindsAreOfTheReleaseUnlessTheyAreNotWanted(t *testing.T) {
	count := func(values map[string]any) (all, kept int) {
		for _, o := range render(t, Release{Values: map[string]any{"crds": values}}) {
			if o.GetKind() == "CustomResourceDefinition" {
				all++
				if o.GetAnnotations()[keepAnnotation] != "" {
					kept++
				}
			}
		}
		return all, kept
	}
	if all, _ := count(map[string]any{"enabled": false}); all != 0 {
		t.Errorf("%d of them are there", all)
	}
	if all, kept := count(map[string]any{"keep": false}); all != 7 || kept != 0 {
		t.Errorf("there are %d, of which %d stay", all, kept)
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

// tested is the pod that helm test runs.
func tested(t *testing.T, values map[string]any) *core.Pod {
	t.Helper()
	hooks, err := loaded(t).Hooks(Release{Namespace: "storage", Values: values})
	if err != nil {
		t.Fatal(err)
	}
	if len(hooks) != 1 || hooks["Pod storage/holdfast-test"] == nil {
		t.Fatalf("the tests are %v", slices.Collect(maps.Keys(hooks)))
	}
	strict(t)(t, hooks)
	pod := &core.Pod{}
	convert(t, hooks["Pod storage/holdfast-test"], pod)
	return pod
}

func TestChart_TestWritesToAClaimWithNoRights(t *testing.T) {
	pod := tested(t, nil)
	if pod.Annotations[hook] != "test" || pod.Annotations["helm.sh/hook-delete-policy"] != "before-hook-creation,hook-succeeded" {
		t.Errorf("it is a hook with %v", pod.Annotations)
	}
	spec := pod.Spec
	c := spec.Containers[0]
	if spec.AutomountServiceAccountToken == nil || *spec.AutomountServiceAccountToken || spec.ServiceAccountName != "" {
		t.Error("it has an account")
	}
	if !*spec.SecurityContext.RunAsNonRoot || spec.SecurityContext.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault ||
		*c.SecurityContext.AllowPrivilegeEscalation || !slices.Equal(c.SecurityContext.Capabilities.Drop, []core.Capability{"ALL"}) || !*c.SecurityContext.ReadOnlyRootFilesystem {
		t.Errorf("it is not what Pod Security calls restricted: %+v, %+v", spec.SecurityContext, c.SecurityContext)
	}
	if c.Image != "holdfast/holdfast:"+loaded(t).Metadata.AppVersion || c.ImagePullPolicy != core.PullIfNotPresent {
		t.Errorf("its image is %s, pulled %s", c.Image, c.ImagePullPolicy)
	}
	if claim := spec.Volumes[0].Ephemeral.VolumeClaimTemplate.Spec; *claim.StorageClassName != "holdfast" || !slices.Equal(claim.AccessModes, []core.PersistentVolumeAccessMode{core.ReadWriteOnce}) {
		t.Errorf("its claim is %+v", claim)
	}
}

func TestChart_TestFollowsTheValues(t *testing.T) {
	pod := tested(t, asValues(everything(t)))
	c := pod.Spec.Containers[0]
	if c.Image != "registry.example/holdfast:v9" || c.ImagePullPolicy != core.PullAlways || pod.Spec.ImagePullSecrets[0].Name != "registry" || pod.Spec.Tolerations[0].Key != "storage" {
		t.Errorf("it is %+v", pod.Spec)
	}
	if pod.Spec.SecurityContext.RunAsUser != nil {
		t.Error("OpenShift, which chooses the user, refuses another")
	}
	classes := []any{map[string]any{"name": "first"}, map[string]any{"name": "second", "default": true}}
	claimOf := func(classes []any) string {
		return *tested(t, map[string]any{"cluster": map[string]any{"storageClasses": classes}}).Spec.Volumes[0].Ephemeral.VolumeClaimTemplate.Spec.StorageClassName
	}
	if got := claimOf(classes); got != "second" {
		t.Errorf("the class is %s", got)
	}
	if got := claimOf(classes[:1]); got != "first" {
		t.Errorf("without a default the class is %s", got)
	}
	hooks, err := loaded(t).Hooks(Release{Values: map[string]any{"cluster": map[string]any{"csi": map[string]any{"enabled": false}}}})
	if err != nil || len(hooks) != 0 {
		t.Errorf("without CSI there are the tests %v, %v", hooks, err)
	}
}
