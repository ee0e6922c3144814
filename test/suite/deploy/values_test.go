package deploy

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/action"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// familiar are the values that many charts have, and the spec that each stands for.
func familiar(t *testing.T) map[string][2]map[string]any {
	t.Helper()
	all := map[string][2]map[string]any{}
	controller := everything(t)["cluster"].(map[string]any)["controller"].(map[string]any)
	delete(controller, "kind") // these two are in cluster only
	delete(controller, "replicas")
	for name, value := range controller {
		all[name] = [2]map[string]any{{name: value}, {"controller": map[string]any{name: value}}}
	}
	secrets := func(names ...string) (list []any) {
		for _, name := range names {
			list = append(list, map[string]any{"name": name})
		}
		return list
	}
	all["imagePullPolicy"] = [2]map[string]any{{"imagePullPolicy": "Always"}, {"imagePullPolicy": "Always"}}
	all["global.imageRegistry"] = [2]map[string]any{{"global": map[string]any{"imageRegistry": "r.example:5000/all", "more": 1}}, {"imageRegistry": "r.example:5000/all"}}
	all["imagePullSecrets"] = [2]map[string]any{
		{"imagePullSecrets": secrets("b", "a"), "global": map[string]any{"imagePullSecrets": secrets("a")}, "cluster": map[string]any{"imagePullSecrets": secrets("c")}},
		{"imagePullSecrets": secrets("a", "b", "c")},
	}
	all["all of the controller"] = [2]map[string]any{{}, {"controller": controller}}
	maps.Copy(all["all of the controller"][0], controller)
	return all
}

// The operator would take back what it does not find in the StorageCluster.
func TestValues_FamiliarOnesBecomeFieldsOfTheSpecAndTheControllerAsTheOperatorMakesIt(t *testing.T) {
	key := "Deployment " + namespace + "/holdfast-controller"
	usual := render(t, Release{})[key]
	for name, c := range familiar(t) {
		t.Run(name, func(t *testing.T) {
			got := render(t, Release{Values: c[0]})
			spec, _ := lookup(got["StorageCluster holdfast"].Object, "spec")
			if compact(spec) != compact(c[1]) {
				t.Errorf("the spec is %s, not %s", compact(spec), compact(c[1]))
			}
			want := operated(t, map[string]any{"cluster": c[1]}, nil)
			for _, difference := range Differences(Objects{key: want[key]}, Objects{key: got[key]}) {
				t.Errorf("as the chart has it, %s", difference)
			}
			if len(Differences(Objects{key: usual}, Objects{key: got[key]})) == 0 {
				t.Error("it changes nothing")
			}
		})
	}
}

func TestValues_EachFamiliarOneOfTheChartIsTried(t *testing.T) {
	tried := slices.Collect(maps.Keys(familiar(t)))
	defaults := map[string]any{}
	if err := yaml.Unmarshal([]byte(read(t, "deploy/chart/values.yaml")), &defaults); err != nil {
		t.Fatal(err)
	}
	for name := range defaults {
		if !slices.Contains(tried, name) && !slices.Contains([]string{"cluster", "global", "serviceAccount", "crds"}, name) {
			t.Errorf("nothing tries %s", name)
		}
	}
	if len(defaults) < 14 {
		t.Errorf("there are only %v", defaults)
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
	for name, values := range map[string]map[string]any{"nothing": nil, "everything": everything(t)} {
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
	pod := tested(t, everything(t))
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
