package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/deploy"
	"github.com/holdfast-storage/holdfast/operator/render"
	"github.com/holdfast-storage/holdfast/operator/rollout"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// One refusal is of operator/render, one is about a secret, and two are of the API server.
func TestSpec_ThatCannotBeAppliedGivesAReasonAndTheNextGoodOneClearsIt(t *testing.T) {
	r := running(t, classes("hb-one"))
	good := r.cluster("holdfast").Spec
	for what, test := range map[string]struct {
		change func(*v1beta1.StorageClusterSpec)
		want   string
	}{
		"a distribution that is unknown": {func(s *v1beta1.StorageClusterSpec) {
			classes("hb-one", "hb-two")(s)
			s.Distribution = "hurd"
		}, "distribution"},
		"a secret that does not exist": {func(s *v1beta1.StorageClusterSpec) { s.SecretRef = &v1beta1.SecretReference{Name: "nowhere"} }, "holdfast-system/nowhere"},
		"a toleration that no pod may have": {func(s *v1beta1.StorageClusterSpec) {
			classes("hb-one", "hb-two")(s)
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
			if r.class("hb-one") == nil || r.class("hb-two") != nil {
				t.Error("an object of the last good spec is gone, or there is one of this")
			}
			// The objects of the last good spec are still reconciled.
			check.OK(t, r.theirs.StorageV1().StorageClasses().Delete(t.Context(), "hb-one", metav1.DeleteOptions{}))
			wait.Until(r, "the class that was deleted by hand", func() bool { return r.class("hb-one") != nil })
			r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { *s = *good.DeepCopy() })
			r.reconciled("holdfast")
		})
	}
	// A process that has seen no good one removes nothing.
	r.stop()
	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.Distribution = "hurd" })
	r.start()
	r.condition("holdfast", v1beta1.ProgressingCondition, reasonInvalid, "distribution")
	if r.class("hb-one") == nil {
		t.Error("the next process has removed an object of the last good spec")
	}
}

// within is the same rig for a part of a test.
func (r *rig) within(t *testing.T) *rig {
	part := *r
	part.T = t
	return &part
}

func TestSpec_OneRefusedObjectDoesNotBlockTheOthers(t *testing.T) {
	r, refuse := inMemory(t)
	refuse("/storageclasses/hb-two")
	r.create("holdfast", classes("hb-one", "hb-two", "hb-three"))
	r.condition("holdfast", v1beta1.ProgressingCondition, reasonNotApplied, "StorageClass hb-two", "is forbidden", "a policy engine refuses it")
	wait.Until(r, "the other classes", func() bool { return r.class("hb-one") != nil && r.class("hb-three") != nil })
	// The order of objects puts others after the classes.
	deployments := r.theirs.AppsV1().Deployments(namespace)
	wait.Until(r, "what comes later", func() bool { return wait.Get(r, deployments.Get, v1beta1.ControllerName) != nil })
	wait.Until(r, "one event", func() bool { return len(r.events.With("Warning FailedCreation", "hb-two")) == 1 })
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
	r.condition("holdfast", v1beta1.ProgressingCondition, reasonInvalid, "csiNodePublishPassword")
	r.secret("credentials")
	r.reconciled("holdfast")
	made := func() string {
		if s := wait.Get(r, r.theirs.CoreV1().Secrets(namespace).Get, "csi-provisioner-secret"); s != nil {
			return string(s.Data["password"])
		}
		return ""
	}
	wait.Until(r, "the copy", func() bool { return made() == "top-secret-csiProvision" })
	changed := secretData()
	changed["csiProvisionPassword"] = []byte("top-secret-rotated")
	r.putSecret("credentials", changed)
	wait.Until(r, "the rotation", func() bool { return made() == "top-secret-rotated" })
	wait.Until(r, "an event, and a line of the log", func() bool {
		return len(r.events.With("FailedCreation")) > 0 && strings.Contains(log.String(), "csiNodePublishPassword")
	})
	for where, text := range map[string]string{
		"the log": log.String(), "an event": strings.Join(r.events.With(), "\n"), "a condition": r.describe(),
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

// ignoresAnotherRelease fails unless that is reported until another image is requested, and nothing of it stays.
func (r *rig) ignoresAnotherRelease() {
	r.Helper()
	words := []string{"v9.9.9", "spec.images.holdfast names holdfast.test/pause:1", "StorageUpgrade"}
	r.condition("holdfast", v1beta1.ReleaseIgnoredCondition, reasonImagePinned, words...)
	wait.Until(r, "the requested image", func() bool {
		d, err := r.theirs.AppsV1().Deployments(namespace).Get(r.Context(), v1beta1.ControllerName, metav1.GetOptions{})
		return err == nil && d.Spec.Template.Spec.Containers[0].Image == "holdfast.test/pause:1" && d.Labels[v1beta1.VersionLabel] != "v9.9.9"
	})
	wait.Until(r, "one event", func() bool { return len(r.events.With("Warning ReleaseIgnored", "v9.9.9")) == 1 })
	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.Debug = !s.Debug })
	r.reconciled("holdfast")
	r.condition("holdfast", v1beta1.ReleaseIgnoredCondition, reasonImagePinned)
	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.Images.Holdfast = "holdfast.test/pause:9" })
	wait.Until(r, "the condition going", func() bool {
		return meta.FindStatusCondition(r.cluster("holdfast").Status.Conditions, v1beta1.ReleaseIgnoredCondition) == nil
	})
}

// A manifest that comes while the controller's workload is being written is neither overwritten nor forgotten.
func TestManifest_OfAnotherReleaseIsNoticedWheneverItIsApplied(t *testing.T) {
	for image, outcome := range map[v1beta1.Image]func(*rig){
		"holdfast.test/pause:1": (*rig).ignoresAnotherRelease,
		"": func(r *rig) {
			r.condition("holdfast", v1beta1.ProgressingCondition, reasonUpgrading)
			d, err := r.theirs.AppsV1().Deployments(namespace).Get(background, v1beta1.ControllerName, metav1.GetOptions{})
			if err != nil || d.Labels[v1beta1.VersionLabel] != "v9.9.9" || d.Spec.Template.Spec.Containers[0].Image != "holdfast.test/pause:9" {
				r.Errorf("it was overwritten: %v, %v", d, err)
			}
		},
	} {
		for _, before := range []string{
			"anything",
			"PATCH /apis/apps/v1/namespaces/" + namespace + "/deployments/" + v1beta1.ControllerName,
			"PUT /apis/holdfast.dev/v1beta1/storageclusters/holdfast/status",
		} {
			t.Run(fmt.Sprintf("image %q, before %s", image, before), func(t *testing.T) {
				r := running(t, func(s *v1beta1.StorageClusterSpec) { s.Images.Holdfast = image })
				if before == "anything" {
					r.installAnotherRelease()
				}
				r.traffic.onceBefore(before, r.installAnotherRelease)
				r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.Debug = true })
				outcome(r)
			})
		}
	}
}

func TestNamespace_BeingDeletedIsReportedAndAllIsRepairedOnceItExists(t *testing.T) {
	r := running(t, classes("hb-one"))
	namespaces, held := r.theirs.CoreV1().Namespaces(), r.theirs.CoreV1().ConfigMaps(namespace)
	free := func() {
		_, _ = held.Patch(background, "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	}
	t.Cleanup(free)
	holds := &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "held", Finalizers: []string{"holdfast.test/hold"}}}
	check.Got(held.Create(t.Context(), holds, metav1.CreateOptions{}))(t)
	check.OK(t, namespaces.Delete(t.Context(), namespace, metav1.DeleteOptions{}))
	r.condition("holdfast", v1beta1.ProgressingCondition, reasonNotApplied, "namespace "+namespace+" because it is being terminated")
	if r.class("hb-one") == nil {
		t.Error("what is in no namespace is gone as well")
	}
	sets := r.theirs.AppsV1().DaemonSets(namespace)
	wait.Until(r, "the workload being gone", func() bool { return wait.Get(r, sets.Get, v1beta1.NodeName) == nil })
	r.costs(2*time.Second, math.MaxInt) // the deletions of the last objects are seen
	const watched = 10 * time.Second
	if all := r.costs(watched, 100); len(all) > 100 {
		t.Errorf("%d requests in %s, such as %q", len(all), watched, all[:10])
	}

	free()
	wait.Until(r, "the namespace being gone", func() bool { return wait.Get(r, namespaces.Get, namespace) == nil })
	r.install() // with the account of the controller, without which its workload is not made again
	r.onlyDesired("holdfast")
	if p := meta.FindStatusCondition(r.cluster("holdfast").Status.Conditions, v1beta1.ProgressingCondition); p.Reason == reasonNotApplied {
		t.Errorf("it still says %q", p.Message)
	}
}

// What a release took that did not look at a field. The server that knows it again takes the status, since the rest is as
// it was.
func TestUnreadable_StorageClusterKeepsItsObjects(t *testing.T) {
	r := running(t, nil)
	realapi.ChangePast(t, r.config, "storageclusters", "holdfast", `{"spec":{"resources":{"limits":{"cpu":"1e1.5"}},"csi":{"enabled":false}}}`, "spec.resources.limits")
	message := r.condition("holdfast", v1beta1.DegradedCondition, v1beta1.ReasonUnreadable, `spec.resources.limits: {"cpu":"1e1.5"}`)
	if ready := meta.FindStatusCondition(r.cluster("holdfast").Status.Conditions, v1beta1.ReadyCondition); ready.Status != metav1.ConditionFalse || ready.Reason != v1beta1.ReasonUnreadable || ready.Message != message {
		t.Errorf("Ready is %+v", ready)
	}
	set := r.theirs.AppsV1().DaemonSets(namespace)
	before := check.Got(set.Get(t.Context(), v1beta1.NodeName, metav1.GetOptions{}))(t)
	check.OK(t, set.Delete(t.Context(), v1beta1.NodeName, metav1.DeleteOptions{}))
	wait.Until(r, "the DaemonSet again", func() bool {
		now := wait.Get(r, set.Get, v1beta1.NodeName)
		return now != nil && now.UID != before.UID
	})
	if c := r.cluster("holdfast"); c.Unreadable() == nil || c.Status.Phase != v1beta1.ClusterDegraded || c.Spec.CSI.Enabled == nil {
		text, _ := json.Marshal(c)
		t.Errorf("it became %s", text)
	}
	check.Got(r.ours.HoldfastV1beta1().StorageClusters().Patch(t.Context(), "holdfast", types.MergePatchType, []byte(`{"spec":{"resources":null,"csi":null}}`), metav1.PatchOptions{}))(t)
	r.reconciled("holdfast")
	conditions := r.cluster("holdfast").Status.Conditions
	if ready := meta.FindStatusCondition(conditions, v1beta1.ReadyCondition); ready.Reason == v1beta1.ReasonUnreadable || !meta.IsStatusConditionFalse(conditions, v1beta1.DegradedCondition) {
		t.Errorf("when it can be read again, its conditions are %+v", conditions)
	}
}
