package cluster

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	admission "k8s.io/api/admissionregistration/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/deploy"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
	"github.com/holdfast-storage/holdfast/operator/render"
	"github.com/holdfast-storage/holdfast/operator/rollout"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// One refusal is of operator/render, one is about a secret, and two are of the API server.
func TestSpec_ThatCannotBeAppliedGivesAReasonAndTheNextGoodOneClearsIt(t *testing.T) {
	r := newRig(t).start()
	r.create("holdfast", classes("hb-one"))
	r.reconciled("holdfast")
	good := r.cluster("holdfast").Spec
	for what, test := range map[string]struct {
		change func(*v1beta1.StorageClusterSpec)
		want   string
	}{
		"a distribution that is unknown": {func(s *v1beta1.StorageClusterSpec) { s.Distribution = "hurd" }, "distribution"},
		"a secret that does not exist":   {func(s *v1beta1.StorageClusterSpec) { s.SecretRef = &v1beta1.SecretReference{Name: "nowhere"} }, "holdfast-system/nowhere"},
		"a toleration that no pod may have": {func(s *v1beta1.StorageClusterSpec) {
			s.StorageClasses = append(s.StorageClasses, v1beta1.StorageClassSpec{Name: "hb-with-it"})
			s.Tolerations = []core.Toleration{{Key: "a b"}}
		}, `tolerations[`},
		"annotations of half a megabyte": {func(s *v1beta1.StorageClusterSpec) {
			s.Service.Annotations = map[string]string{"a": strings.Repeat("x", 500_000)}
		}, "annotations"},
	} {
		t.Run(what, func(t *testing.T) {
			r := r.within(t)
			r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { *s = *good.DeepCopy(); test.change(s) })
			var message string
			wait.Until(r, "a condition that says what is wrong", func() bool {
				c := r.cluster("holdfast")
				p := meta.FindStatusCondition(c.Status.Conditions, v1beta1.ProgressingCondition)
				if c.Status.ObservedGeneration != c.Generation || p.ObservedGeneration != c.Generation {
					return false
				}
				message = p.Reason + ": " + p.Message
				return test.want == "" || strings.Contains(message, test.want)
			})
			if len(message) > 3000 {
				t.Errorf("a message of %d bytes", len(message))
			}
			t.Log(message)
			if r.class("hb-one") == nil || r.class("hb-with-it") != nil {
				t.Error("an object of the last good spec is gone, or a part of the new one is there")
			}
			// The objects of the last good spec are still reconciled.
			check.OK(t, r.theirs.StorageV1().StorageClasses().Delete(t.Context(), "hb-one", metav1.DeleteOptions{}))
			wait.Until(r, "the class that was deleted by hand", func() bool { return r.class("hb-one") != nil })
			r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { *s = *good.DeepCopy() })
			r.reconciled("holdfast")
		})
	}
}

// within is the same rig for a part of a test.
func (r *rig) within(t *testing.T) *rig {
	part := *r
	part.T = t
	return &part
}

func TestSpec_OneRefusedObjectDoesNotBlockTheOthers(t *testing.T) {
	r := newRig(t)
	var log lockedBuffer
	r.log = slog.New(slog.NewTextHandler(io.MultiWriter(&log, r.Output()), nil))
	r.forbid("hb-two")
	r.start()
	r.create("holdfast", classes("hb-one", "hb-two", "hb-three"))
	message := r.condition("holdfast", v1beta1.ProgressingCondition, reasonNotApplied)
	if !strings.Contains(message, "StorageClass hb-two") || !strings.Contains(message, "not here") {
		t.Errorf("the condition says %q", message)
	}
	wait.Until(r, "the other classes", func() bool { return r.class("hb-one") != nil && r.class("hb-three") != nil })
	// The order of objects puts others after the classes.
	deployments := r.theirs.AppsV1().Deployments(namespace)
	wait.Until(r, "what comes later", func() bool {
		_, err := deployments.Get(t.Context(), v1beta1.ControllerName, metav1.GetOptions{})
		return err == nil
	})
	wait.Until(r, "one event", func() bool { return len(r.events.with("Warning FailedCreation", "hb-two")) == 1 })
	wait.Until(r, "a line of the log", func() bool { return strings.Contains(log.String(), "hb-two") })
	// Nothing is pruned of a kind of which something could not be made.
	r.change("holdfast", classes("hb-one", "hb-two"))
	r.condition("holdfast", v1beta1.ProgressingCondition, reasonNotApplied)
	if r.class("hb-three") == nil {
		t.Error("a class was removed before its successor was there")
	}
	r.change("holdfast", classes("hb-one"))
	r.reconciled("holdfast")
	wait.Until(r, "the other one going", func() bool { return r.class("hb-three") == nil })
}

// forbid makes the API server refuse classes of a name until the test ends.
func (r *rig) forbid(name string) {
	r.Helper()
	policies, bindings := r.theirs.AdmissionregistrationV1().ValidatingAdmissionPolicies(), r.theirs.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	fail := admission.Fail
	policy := &admission.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "hb-refuse"},
		Spec: admission.ValidatingAdmissionPolicySpec{
			FailurePolicy: &fail,
			MatchConstraints: &admission.MatchResources{ResourceRules: []admission.NamedRuleWithOperations{{RuleWithOperations: admission.RuleWithOperations{
				Operations: []admission.OperationType{admission.Create},
				Rule:       admission.Rule{APIGroups: []string{"storage.k8s.io"}, APIVersions: []string{"v1"}, Resources: []string{"storageclasses"}},
			}}}},
			Validations: []admission.Validation{{Expression: fmt.Sprintf("object.metadata.name != %q", name), Message: "not here"}},
		},
	}
	check.Got(policies.Create(r.Context(), policy, metav1.CreateOptions{}))(r)
	binding := &admission.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "hb-refuse"},
		Spec:       admission.ValidatingAdmissionPolicyBindingSpec{PolicyName: "hb-refuse", ValidationActions: []admission.ValidationAction{admission.Deny}},
	}
	check.Got(bindings.Create(r.Context(), binding, metav1.CreateOptions{}))(r)
	r.Cleanup(func() {
		_ = bindings.Delete(background, "hb-refuse", metav1.DeleteOptions{})
		_ = policies.Delete(background, "hb-refuse", metav1.DeleteOptions{})
	})
	probe := classOf(name)
	wait.Until(r, "the refusal", func() bool {
		_, err := r.of(probe).Create(r.Context(), probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil
	})
}

func classOf(name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"provisioner": "other.example"}}
	o.SetAPIVersion("storage.k8s.io/v1")
	o.SetKind("StorageClass")
	o.SetName(name)
	return o
}

func TestSecret_IsFollowedAndItsContentIsNotReported(t *testing.T) {
	r := newRig(t)
	var log lockedBuffer
	r.log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	r.start()
	r.create("holdfast", everything)
	r.condition("holdfast", v1beta1.ProgressingCondition, reasonInvalid, "holdfast-system/credentials")
	incomplete := secretData()
	delete(incomplete, "csiNodePublishPassword")
	r.putSecret("credentials", incomplete)
	wait.Until(r, "the missing key being reported", func() bool {
		p := meta.FindStatusCondition(r.cluster("holdfast").Status.Conditions, v1beta1.ProgressingCondition)
		return strings.Contains(p.Message, "csiNodePublishPassword")
	})
	r.secret("credentials")
	r.reconciled("holdfast")
	made := func(key string) string {
		s, err := r.theirs.CoreV1().Secrets(namespace).Get(t.Context(), "csi-provisioner-secret", metav1.GetOptions{})
		if err != nil {
			return ""
		}
		return string(s.Data[key])
	}
	wait.Until(r, "the copy", func() bool { return made("password") == "top-secret-csiProvision" })
	changed := secretData()
	changed["csiProvisionPassword"] = []byte("top-secret-rotated")
	r.putSecret("credentials", changed)
	wait.Until(r, "the rotation", func() bool { return made("password") == "top-secret-rotated" })
	wait.Until(r, "an event", func() bool { return len(r.events.with("FailedCreation")) > 0 })
	for where, text := range map[string]string{
		"the log": log.String(), "an event": strings.Join(r.events.with(), "\n"), "a condition": r.describe(),
	} {
		if strings.Contains(text, "top-secret") || strings.Contains(text, "dG9wLXNlY3JldA") {
			t.Errorf("a secret is in %s", where)
		}
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestManifest_OfAnotherReleaseIsReportedIgnoredWhileTheSpecNamesAnImage(t *testing.T) {
	r := newRig(t).start()
	r.create("holdfast", nil)
	r.reconciled("holdfast")
	deployments := r.theirs.AppsV1().Deployments(namespace)
	r.installAnotherRelease()
	message := r.condition("holdfast", v1beta1.ReleaseIgnoredCondition, reasonImagePinned)
	for _, want := range []string{"v9.9.9", "spec.images.holdfast names holdfast.test/pause:1", "StorageUpgrade"} {
		if !strings.Contains(message, want) {
			t.Errorf("%q is not said in %q", want, message)
		}
	}
	wait.Until(r, "the requested image", func() bool {
		d, err := deployments.Get(t.Context(), v1beta1.ControllerName, metav1.GetOptions{})
		return err == nil && d.Spec.Template.Spec.Containers[0].Image == "holdfast.test/pause:1" && d.Labels[v1beta1.VersionLabel] != "v9.9.9"
	})
	wait.Until(r, "one event", func() bool { return len(r.events.with("Warning ReleaseIgnored", "v9.9.9")) == 1 })
	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.Debug = true })
	r.reconciled("holdfast")
	r.condition("holdfast", v1beta1.ReleaseIgnoredCondition, reasonImagePinned) // until another image is requested
	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.Images.Holdfast = "holdfast.test/pause:9" })
	wait.Until(r, "the condition going", func() bool {
		return meta.FindStatusCondition(r.cluster("holdfast").Status.Conditions, v1beta1.ReleaseIgnoredCondition) == nil
	})
}

func TestManifest_OfTheReleaseThatRunsEndsTheImageOfAStorageUpgradeAlone(t *testing.T) {
	deploy.Version = "v1.2.3"
	t.Cleanup(func() { deploy.Version = deploy.DevelopmentTag })
	r := newRig(t).start()
	image := render.Release{}.Images(&v1beta1.StorageCluster{}).Holdfast
	r.create("holdfast", func(s *v1beta1.StorageClusterSpec) { s.Images.Holdfast = "" })
	r.reconciled("holdfast")
	pinBy := func(manager, more string) {
		patch := fmt.Appendf(nil, `{"spec":{"images":{"holdfast":%q}}%s}`, image, more)
		check.Got(r.ours.HoldfastV1beta1().StorageClusters().Patch(t.Context(), "holdfast", types.MergePatchType, patch, metav1.PatchOptions{FieldManager: manager}))(r)
	}
	applied := func(version string) {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, v1beta1.ManifestAnnotation, version)
		check.Got(r.theirs.AppsV1().Deployments(namespace).Patch(t.Context(), v1beta1.ControllerName, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "kubectl"}))(r)
	}
	stays := func(why string) {
		r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.Debug = !s.Debug })
		r.reconciled("holdfast")
		if is := r.cluster("holdfast").Spec.Images.Holdfast; is != image {
			r.Errorf("%s: the spec names %q", why, is)
		}
	}
	byUpgrade := fmt.Sprintf(`,"metadata":{"annotations":{%q:%q}}`, v1beta1.UpgradedAnnotation, image)
	pinBy(rollout.UpgradeManager, byUpgrade)
	stays("no manifest was applied")
	applied("v0.0.1")
	stays("the manifest of another release was applied")
	applied(deploy.Version)
	wait.Until(r, "the image going from the spec", func() bool { return r.cluster("holdfast").Spec.Images.Holdfast == "" })
	if is := r.cluster("holdfast").Annotations[v1beta1.UpgradedAnnotation]; is != "" {
		r.Errorf("the annotation is still %q", is)
	}
	pinBy("kubectl-edit", "")
	stays("an administrator has named it")
	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.Images.Holdfast = "" })
	manifest := fmt.Appendf(nil, `{"apiVersion":"holdfast.dev/v1beta1","kind":"StorageCluster","metadata":{"name":"holdfast"},"spec":{"images":{"holdfast":%q}}}`, image)
	check.Got(r.ours.HoldfastV1beta1().StorageClusters().Patch(t.Context(), "holdfast", types.ApplyPatchType, manifest, metav1.PatchOptions{FieldManager: "flux"}))(r)
	pinBy(rollout.UpgradeManager, byUpgrade)
	stays("another client applies it, too")
}

// installAnotherRelease changes the controller's workload as the manifest of v9.9.9 does.
func (r *rig) installAnotherRelease() {
	manifest := `{"metadata":{"labels":{"app.kubernetes.io/version":"v9.9.9"}},"spec":{"template":{"spec":{"containers":[{"name":"holdfast","image":"holdfast.test/pause:9"}]}}}}`
	_, err := r.theirs.AppsV1().Deployments(namespace).Patch(background, v1beta1.ControllerName, types.StrategicMergePatchType, []byte(manifest), metav1.PatchOptions{FieldManager: "stranger"})
	if err != nil {
		r.Errorf("another release: %v", err)
	}
}

// A manifest that comes while the controller's workload is being written is neither overwritten nor forgotten.
func TestManifest_OfAnotherReleaseIsNoticedWheneverItIsApplied(t *testing.T) {
	for image, outcome := range map[v1beta1.Image]func(*rig){
		"holdfast.test/pause:1": func(r *rig) { r.condition("holdfast", v1beta1.ReleaseIgnoredCondition, reasonImagePinned) },
		"": func(r *rig) {
			r.condition("holdfast", v1beta1.ProgressingCondition, reasonUpgrading)
			d, err := r.theirs.AppsV1().Deployments(namespace).Get(background, v1beta1.ControllerName, metav1.GetOptions{})
			if err != nil || d.Labels[v1beta1.VersionLabel] != "v9.9.9" || d.Spec.Template.Spec.Containers[0].Image != "holdfast.test/pause:9" {
				r.Errorf("it was overwritten: %v, %v", d, err)
			}
		},
	} {
		for _, before := range []string{
			"PATCH /apis/apps/v1/namespaces/" + namespace + "/deployments/" + v1beta1.ControllerName,
			"PUT /apis/holdfast.dev/v1beta1/storageclusters/holdfast/status",
		} {
			t.Run(fmt.Sprintf("image %q, before %s", image, before), func(t *testing.T) {
				r := newRig(t).start()
				r.create("holdfast", func(s *v1beta1.StorageClusterSpec) { s.Images.Holdfast = image })
				r.reconciled("holdfast")
				r.traffic.onceBefore(before, r.installAnotherRelease)
				r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.Debug = true })
				outcome(r)
			})
		}
	}
}

func TestNamespace_BeingDeletedIsReportedAndAllIsRepairedOnceItExists(t *testing.T) {
	r := newRig(t).start()
	r.create("holdfast", classes("hb-one"))
	r.reconciled("holdfast")
	namespaces, held := r.theirs.CoreV1().Namespaces(), r.theirs.CoreV1().ConfigMaps(namespace)
	free := func() {
		_, _ = held.Patch(background, "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	}
	t.Cleanup(free)
	holds := &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "held", Finalizers: []string{"holdfast.test/hold"}}}
	check.Got(held.Create(t.Context(), holds, metav1.CreateOptions{}))(t)
	check.OK(t, namespaces.Delete(t.Context(), namespace, metav1.DeleteOptions{}))
	wait.Until(r, "a condition that names the namespace", func() bool {
		p := meta.FindStatusCondition(r.cluster("holdfast").Status.Conditions, v1beta1.ProgressingCondition)
		return p.Reason == reasonNotApplied && strings.Contains(p.Message, "namespace "+namespace+" because it is being terminated")
	})
	if r.class("hb-one") == nil {
		t.Error("what is in no namespace is gone as well")
	}
	wait.Until(r, "the workload being gone", func() bool {
		_, err := r.theirs.AppsV1().DaemonSets(namespace).Get(t.Context(), v1beta1.NodeName, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	r.costs(2*time.Second, math.MaxInt) // the deletions of the last objects are seen
	const watched = 10 * time.Second
	if all := r.costs(watched, 100); len(all) > 100 {
		t.Errorf("%d requests in %s, such as %q", len(all), watched, all[:10])
	}

	free()
	wait.Until(r, "the namespace being gone", func() bool {
		_, err := namespaces.Get(t.Context(), namespace, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	r.install() // with the account of the controller, without which its workload is not made again
	r.onlyDesired("holdfast")
	if p := meta.FindStatusCondition(r.cluster("holdfast").Status.Conditions, v1beta1.ProgressingCondition); p.Reason == reasonNotApplied {
		t.Errorf("it still says %q", p.Message)
	}
}

func TestKinds_LearnedKindIsUsedAndForgottenKindIsNot(t *testing.T) {
	r := newRig(t).start()
	r.create("holdfast", nil)
	r.reconciled("holdfast")
	monitors := schema.GroupVersionResource{Group: "monitoring.coreos.com", Version: "v1", Resource: "podmonitors"}
	definition := decode(t, []byte(podMonitors))[0]
	definitions := r.objects.Resource(kube.Definitions)
	t.Cleanup(func() { _ = definitions.Delete(background, definition.GetName(), metav1.DeleteOptions{}) })
	check.Got(definitions.Create(t.Context(), definition, metav1.CreateOptions{}))(t)
	count := func() int {
		all, err := r.objects.Resource(monitors).Namespace(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: apply.InstanceLabel + "=holdfast"})
		if err != nil {
			return -1
		}
		return len(all.Items)
	}
	wait.Until(r, "the PodMonitors", func() bool { return count() > 0 })
	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.Monitoring.Enabled = new(false) })
	wait.Until(r, "their removal", func() bool { return count() == 0 })
	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.Monitoring.Enabled = nil })
	wait.Until(r, "the PodMonitors again", func() bool { return count() > 0 })
	check.OK(t, definitions.Delete(t.Context(), definition.GetName(), metav1.DeleteOptions{}))
	wait.Until(r, "the kind being forgotten", func() bool { return !r.set.Has(schema.GroupKind{Group: "monitoring.coreos.com", Kind: "PodMonitor"}) })
	r.reconciled("holdfast")
	r.traffic.take()
	for _, request := range r.costs(3*time.Second, math.MaxInt) {
		if strings.Contains(request, "podmonitors") {
			t.Errorf("it is still requested: %s", request)
		}
	}
}

const podMonitors = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: podmonitors.monitoring.coreos.com, annotations: {api-approved.kubernetes.io: unapproved}}
spec:
  group: monitoring.coreos.com
  names: {kind: PodMonitor, listKind: PodMonitorList, plural: podmonitors, singular: podmonitor}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`
