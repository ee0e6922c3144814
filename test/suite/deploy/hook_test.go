package deploy

import (
	"slices"
	"testing"

	core "k8s.io/api/core/v1"
)

// tested is the pod that helm test runs, nil if there is none.
func tested(t *testing.T, values map[string]any) *core.Pod {
	t.Helper()
	_, hooks := loaded(t).render(t, Release{Namespace: "storage", Values: values})
	strict(t, hooks)
	for key, o := range hooks {
		if len(hooks) != 1 || key != "Pod storage/holdfast-test" {
			t.Fatalf("of %d tests one is %s", len(hooks), key)
		}
		return as[core.Pod](t, o.Object)
	}
	return nil
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
	if !restricted(spec.SecurityContext) || !unprivileged(c.SecurityContext) || !*c.SecurityContext.ReadOnlyRootFilesystem {
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
	first, second := map[string]any{"name": "first"}, map[string]any{"name": "second", "default": true}
	for want, classes := range map[string][]any{"first": {first}, "second": {first, second}} {
		pod := tested(t, of("cluster.storageClasses", classes))
		if got := *pod.Spec.Volumes[0].Ephemeral.VolumeClaimTemplate.Spec.StorageClassName; got != want {
			t.Errorf("of %v the class is %s", classes, got)
		}
	}
	if pod := tested(t, of("cluster.csi.enabled", false)); pod != nil {
		t.Errorf("without CSI there is the test %v", pod)
	}
}
