package cluster

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	storage "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
	"github.com/holdfast-storage/holdfast/operator/render"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func (r *rig) class(name string) *storage.StorageClass {
	return wait.Get(r, r.theirs.StorageV1().StorageClasses().Get, name)
}

func classes(names ...string) func(*v1beta1.StorageClusterSpec) {
	return func(s *v1beta1.StorageClusterSpec) {
		s.StorageClasses = nil
		for _, name := range names {
			s.StorageClasses = append(s.StorageClasses, v1beta1.StorageClassSpec{Name: name})
		}
	}
}

func TestClass_OwnIsTheDefaultWhereThereIsNoOtherWhenItIsMade(t *testing.T) {
	r, _ := inMemory(t)
	classes := r.theirs.StorageV1().StorageClasses()
	theirs := &storage.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "hb-default", Annotations: map[string]string{render.DefaultClass: "true"}}, Provisioner: "other.example"}
	check.Got(classes.Create(t.Context(), theirs, metav1.CreateOptions{}))(t)
	wait.Until(r, "it being seen", r.controller.otherDefault)
	r.create("holdfast", nil)
	is := func(want bool, why string, change func(*v1beta1.StorageClusterSpec)) {
		t.Helper()
		r.change("holdfast", change)
		r.reconciled("holdfast")
		if c := r.class(render.OwnClass); c == nil || isDefault(c) != want {
			t.Errorf("%s, and it is %v", why, c)
		}
	}
	debug := func(s *v1beta1.StorageClusterSpec) { s.Debug = !s.Debug }
	is(false, "the cluster has another default", debug)
	check.OK(t, classes.Delete(t.Context(), theirs.Name, metav1.DeleteOptions{}))
	is(false, "there is a moment without a default", debug)
	is(true, "the spec says so", func(s *v1beta1.StorageClusterSpec) { s.DefaultClass = new(true) })
	check.Got(classes.Create(t.Context(), theirs, metav1.CreateOptions{}))(t)
	is(true, "another has come later", func(s *v1beta1.StorageClusterSpec) { s.DefaultClass = nil })
}

func TestClass_ForeignIsLeftAloneAndReportedInTheCondition(t *testing.T) {
	r := newRig(t)
	theirs := &storage.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "hb-one"}, Provisioner: "other.example"}
	check.Got(r.theirs.StorageV1().StorageClasses().Create(t.Context(), theirs, metav1.CreateOptions{}))(t)
	t.Cleanup(func() {
		_ = r.theirs.StorageV1().StorageClasses().Delete(background, "hb-one", metav1.DeleteOptions{})
	})
	r.start()
	r.create("holdfast", classes("hb-one", "hb-two"))
	r.condition("holdfast", v1beta1.ProgressingCondition, reasonForeign, "StorageClass hb-one", "not created by Holdfast")
	wait.Until(r, "the other class", func() bool { return r.class("hb-two") != nil })
	r.change("holdfast", classes("hb-two"))
	r.reconciled("holdfast")
	c := r.class("hb-one")
	if c == nil || c.Provisioner != "other.example" || len(c.OwnerReferences)+len(c.Labels) > 0 {
		t.Errorf("it was touched: %v", c)
	}
	r.change("holdfast", classes("hb-one", "hb-two"))
	r.condition("holdfast", v1beta1.ProgressingCondition, reasonForeign)
	// It is handed over by hand, whatever it is.
	label := []byte(`{"metadata":{"labels":{"app.kubernetes.io/managed-by":"holdfast-operator"}}}`)
	check.Got(r.theirs.StorageV1().StorageClasses().Patch(t.Context(), "hb-one", types.MergePatchType, label, metav1.PatchOptions{}))(t)
	wait.Until(r, "the class being ours", func() bool { c := r.class("hb-one"); return c != nil && c.Provisioner == "csi.holdfast.dev" })
	r.reconciled("holdfast")
}

func TestChange_DisabledObjectsAreDeletedAndEnabledOnesCreated(t *testing.T) {
	r := newRig(t)
	r.secret("credentials")
	r.start()
	r.cephKeys()
	c := r.create("holdfast", func(s *v1beta1.StorageClusterSpec) { everything(s); cephPools(s) })
	r.reconciled("holdfast")
	drivers := r.theirs.StorageV1().CSIDrivers()
	if driver := wait.Get(r, drivers.Get, "csi.holdfast.dev"); driver == nil || !*driver.Spec.AttachRequired {
		t.Errorf("with pools in Ceph clusters: %v", driver)
	}
	budget := mark(c, schema.GroupVersionKind{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"}, namespace, v1beta1.ControllerName)
	budget.SetLabels(render.Labels(c)) // as an earlier release has made it
	budget.Object["spec"] = map[string]any{"maxUnavailable": int64(1), "selector": map[string]any{"matchLabels": map[string]any{"app": "controller"}}}
	check.OK(t, r.set.ApplySparing(t.Context(), []*unstructured.Unstructured{budget}, nil).Err())
	before := r.set.List()
	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) {
		*s = v1beta1.StorageClusterSpec{Images: s.Images, Service: v1beta1.ServiceSpec{Name: "renamed"}, StorageClasses: []v1beta1.StorageClassSpec{{Name: "hb-three"}}}
	})
	r.onlyDesired("holdfast")
	if len(r.set.List()) >= len(before) {
		t.Errorf("%d objects of %d are left", len(r.set.List()), len(before))
	}
	if driver := wait.Get(r, drivers.Get, "csi.holdfast.dev"); driver == nil || *driver.Spec.AttachRequired {
		t.Errorf("without pools in Ceph clusters: %v", driver)
	}
	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.CSI.Enabled = new(bool) })
	r.onlyDesired("holdfast")
	if driver := wait.Get(r, drivers.Get, "csi.holdfast.dev"); driver != nil {
		t.Errorf("without CSI: %v", driver)
	}
	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.CSI = v1beta1.CSISpec{}; cephPools(s) })
	r.onlyDesired("holdfast")
	if driver := wait.Get(r, drivers.Get, "csi.holdfast.dev"); driver == nil || !*driver.Spec.AttachRequired {
		t.Errorf("with CSI and pools in Ceph clusters again: %v", driver)
	}
}

// onlyDesired waits until what exists of ours is what is rendered, and no more.
func (r *rig) onlyDesired(name string) {
	r.Helper()
	r.reconciled(name)
	wait.Until(r, "nothing but the desired objects", func() bool {
		var want, have []string
		for _, o := range r.wanted(name, nil) {
			want = append(want, o.GetKind()+" "+o.GetName())
			if r.get(o) == nil {
				return false
			}
		}
		for _, o := range r.set.List() {
			have = append(have, o.GetKind()+" "+o.GetName())
		}
		slices.Sort(want)
		slices.Sort(have)
		return slices.Equal(want, have)
	})
}

func TestChange_OldControllerWorkloadServesUntilTheNewOneIsReady(t *testing.T) {
	r := running(t, classes("hb-one"))
	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.Controller.Kind = v1beta1.AsStatefulSet })
	sets, deployments := r.theirs.AppsV1().StatefulSets(namespace), r.theirs.AppsV1().Deployments(namespace)
	wait.Until(r, "the StatefulSet", func() bool { return wait.Get(r, sets.Get, v1beta1.ControllerName) != nil })
	r.reconciled("holdfast")
	if wait.Get(r, deployments.Get, v1beta1.ControllerName) == nil {
		t.Fatal("there is no Deployment, while the StatefulSet is not ready")
	}
	// The images of the sidecars are not on this machine: a controller manager that finds them ready is played here.
	wait.Until(r, "the Deployment being gone", func() bool {
		wait.Modify(r, sets.Get, sets.UpdateStatus, v1beta1.ControllerName, func(set *apps.StatefulSet) {
			set.Status.ObservedGeneration, set.Status.Replicas, set.Status.ReadyReplicas, set.Status.UpdatedReplicas = set.Generation, 2, 2, 2
		})
		return wait.Get(r, deployments.Get, v1beta1.ControllerName) == nil
	})

	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.Controller.Kind = v1beta1.AsDeployment })
	wait.Until(r, "the Deployment again", func() bool { return wait.Get(r, deployments.Get, v1beta1.ControllerName) != nil })
	r.reconciled("holdfast")
	if wait.Get(r, sets.Get, v1beta1.ControllerName) == nil {
		t.Fatal("there is no StatefulSet, while the Deployment is not ready")
	}
	wait.Until(r, "the StatefulSet being gone", func() bool {
		wait.Modify(r, deployments.Get, deployments.UpdateStatus, v1beta1.ControllerName, func(d *apps.Deployment) {
			d.Status.ObservedGeneration, d.Status.Replicas, d.Status.ReadyReplicas, d.Status.UpdatedReplicas, d.Status.AvailableReplicas = d.Generation, 2, 2, 2, 2
		})
		return wait.Get(r, sets.Get, v1beta1.ControllerName) == nil
	})
}

func TestPause_ObjectsAreNotTouchedAndTheStatusStaysFresh(t *testing.T) {
	r := running(t, classes("hb-one", "hb-two"))
	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.Paused = true })
	r.condition("holdfast", v1beta1.ProgressingCondition, reasonPaused)
	if phase := r.cluster("holdfast").Status.Phase; phase != v1beta1.ClusterPaused {
		t.Errorf("the phase is %s", phase)
	}
	r.traffic.take()
	check.OK(t, r.theirs.StorageV1().StorageClasses().Delete(t.Context(), "hb-one", metav1.DeleteOptions{}))
	r.volume("v1")
	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.StorageClasses[1].Name = "hb-three" })
	wait.Until(r, "the fresh status", func() bool {
		s := r.cluster("holdfast").Status
		return s.Volumes == 1 && s.ObservedGeneration == r.cluster("holdfast").Generation
	})
	for _, request := range r.traffic.take() {
		if !strings.HasPrefix(request, "GET ") && !strings.HasSuffix(request, "/storageclusters/holdfast/status") {
			t.Errorf("while it was paused: %s", request)
		}
	}
	if r.class("hb-one") != nil || r.class("hb-two") == nil || r.class("hb-three") != nil {
		t.Error("the classes were touched")
	}
	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.Paused = false })
	wait.Until(r, "all being put right", func() bool { return r.class("hb-one") != nil && r.class("hb-two") == nil && r.class("hb-three") != nil })
}

func (r *rig) volume(name string) {
	r.Helper()
	v := &v1beta1.Volume{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{v1beta1.AgentFinalizer}}, Spec: v1beta1.VolumeSpec{Name: name, Node: "node1"}}
	check.Got(r.ours.HoldfastV1beta1().Volumes().Create(r.Context(), v, metav1.CreateOptions{}))(r)
}

func (r *rig) noVolume(name string) {
	r.Helper()
	volumes := r.ours.HoldfastV1beta1().Volumes()
	if err := volumes.Delete(r.Context(), name, metav1.DeleteOptions{}); kube.IgnoreNotFound(err) != nil {
		r.Fatal(err)
	}
	if _, err := volumes.Patch(r.Context(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); kube.IgnoreNotFound(err) != nil {
		r.Fatal(err)
	}
}

func TestIdle_ClusterCostsNoRequest(t *testing.T) {
	hostfs.Long(t)
	r := newRig(t)
	r.secret("credentials")
	r.start()
	r.create("holdfast", everything)
	r.reconciled("holdfast")
	// Pods of this cluster come up or fail; the operator reports that once.
	quiet := func() bool {
		r.traffic.take()
		return len(r.costs(3*time.Second, 0)) == 0
	}
	wait.Until(r, "a quiet cluster", quiet)
	r.traffic.take()
	if all := r.costs(15*time.Second, 0); len(all) > 0 {
		t.Errorf("an idle cluster cost %d requests: %q", len(all), all)
	}
	// Fields that others write and Holdfast does not own cost nothing either.
	theirs := []byte(`{"metadata":{"annotations":{"example.com/seen":"yes"},"labels":{"example.com/team":"a"}}}`)
	check.Got(r.theirs.StorageV1().StorageClasses().Patch(t.Context(), "hb-one", types.MergePatchType, theirs, metav1.PatchOptions{}))(t)
	if all := r.costs(time.Second, 0); len(all) > 0 {
		t.Errorf("a foreign annotation cost %d requests: %q", len(all), all)
	}
	if live := r.class("hb-one"); live.Annotations["example.com/seen"] != "yes" || live.Labels["example.com/team"] != "a" {
		t.Error("what others have written was removed")
	}
}

func TestRestart_OfTheControllerChangesNothing(t *testing.T) {
	r := newRig(t)
	secret := r.secret("credentials")
	r.start()
	r.create("holdfast", everything)
	r.reconciled("holdfast")
	was := map[string]string{}
	for _, o := range r.wanted("holdfast", secret) {
		live := r.get(o)
		delete(live.Object, "status")
		live.SetManagedFields(nil)
		live.SetResourceVersion("")
		was[o.GetKind()+" "+o.GetName()] = essence(live) + string(live.GetUID())
	}
	r.stop()
	r.traffic.take()
	applied := 0
	r.start()
	wait.Until(r, "the second controller having applied all", func() bool {
		for _, request := range r.traffic.take() {
			applied += strings.Count(request, "PATCH")
		}
		return applied >= len(was)
	})
	r.reconciled("holdfast")
	for _, o := range r.wanted("holdfast", secret) {
		live := r.get(o)
		if live == nil || essence(live)+string(live.GetUID()) != was[o.GetKind()+" "+o.GetName()] {
			t.Errorf("%s %s has changed", o.GetKind(), o.GetName())
		}
	}
}

func TestKinds_LearnedKindIsUsedAndForgottenKindIsNot(t *testing.T) {
	r := running(t, nil)
	monitors := schema.GroupVersionResource{Group: "monitoring.coreos.com", Version: "v1", Resource: "podmonitors"}
	definition := &unstructured.Unstructured{}
	check.OK(t, yaml.Unmarshal([]byte(podMonitors), &definition.Object))
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
