package cluster

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	storage "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
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

func TestClass_RenamedOrImmutableIsRecreatedAndTheOldOneIsDeleted(t *testing.T) {
	r := newRig(t).start()
	r.create("holdfast", classes("hb-one", "hb-two"))
	wait.Until(r, "the classes", func() bool { return r.class("hb-one") != nil && r.class("hb-two") != nil })
	two := r.class("hb-two").UID
	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.StorageClasses[0].Name = "hb-renamed" })
	wait.Until(r, "the new name", func() bool { return r.class("hb-renamed") != nil && r.class("hb-one") == nil })
	if r.class("hb-two").UID != two {
		t.Error("a class that was not renamed was recreated")
	}
	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) {
		s.StorageClasses[1].ReclaimPolicy, s.StorageClasses[1].Parameters = "Retain", map[string]string{"provisioning": "thick"}
	})
	wait.Until(r, "the new class", func() bool {
		c := r.class("hb-two")
		return c != nil && c.ReclaimPolicy != nil && *c.ReclaimPolicy == "Retain" && c.Parameters["provisioning"] == "thick"
	})
	r.reconciled("holdfast")
}

func TestClass_OwnIsTheDefaultWhereThereIsNoOtherWhenItIsMade(t *testing.T) {
	r := newRig(t)
	classes := r.theirs.StorageV1().StorageClasses()
	theirs := &storage.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "hb-default", Annotations: map[string]string{render.DefaultClass: "true"}}, Provisioner: "other.example"}
	check.Got(classes.Create(t.Context(), theirs, metav1.CreateOptions{}))(t)
	t.Cleanup(func() { _ = classes.Delete(context.Background(), theirs.Name, metav1.DeleteOptions{}) })
	r.start()
	r.create("holdfast", nil)
	is := func(want bool) func() bool {
		return func() bool { c := r.class(render.OwnClass); return c != nil && isDefault(c) == want }
	}
	wait.Until(r, "the class, which is not the default", is(false))
	r.reconciled("holdfast")
	if !is(false)() {
		t.Error("the cluster has two default classes")
	}
	check.OK(t, classes.Delete(t.Context(), theirs.Name, metav1.DeleteOptions{}))
	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.Debug = true })
	r.reconciled("holdfast")
	if !is(false)() {
		t.Error("it took the moment in which there was no default")
	}
	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.DefaultClass = new(true) })
	wait.Until(r, "it being the default, as the spec says", is(true))
	theirs.ResourceVersion = ""
	check.Got(classes.Create(t.Context(), theirs, metav1.CreateOptions{}))(t)
	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.DefaultClass = nil })
	r.reconciled("holdfast")
	if !is(true)() {
		t.Error("another that came later took its place")
	}
}

func TestClass_ForeignIsLeftAloneAndReportedInTheCondition(t *testing.T) {
	r := newRig(t)
	theirs := &storage.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "hb-one"}, Provisioner: "other.example"}
	check.Got(r.theirs.StorageV1().StorageClasses().Create(t.Context(), theirs, metav1.CreateOptions{}))(t)
	t.Cleanup(func() {
		_ = r.theirs.StorageV1().StorageClasses().Delete(context.Background(), "hb-one", metav1.DeleteOptions{})
	})
	r.start()
	r.create("holdfast", classes("hb-one", "hb-two"))
	message := r.condition("holdfast", v1beta1.ProgressingCondition, reasonForeign)
	if !strings.Contains(message, "StorageClass hb-one") || !strings.Contains(message, "not created by Holdfast") {
		t.Errorf("the condition says %q", message)
	}
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
	r.create("holdfast", everything)
	r.reconciled("holdfast")
	before := r.set.List()
	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) {
		*s = v1beta1.StorageClusterSpec{Images: s.Images, Service: v1beta1.ServiceSpec{Name: "renamed"}, StorageClasses: []v1beta1.StorageClassSpec{{Name: "hb-three"}}}
	})
	r.onlyDesired("holdfast")
	if len(r.set.List()) >= len(before) {
		t.Errorf("%d objects of %d are left", len(r.set.List()), len(before))
	}
	driver, err := r.theirs.StorageV1().CSIDrivers().Get(t.Context(), "csi.holdfast.dev", metav1.GetOptions{})
	if err != nil || *driver.Spec.AttachRequired {
		t.Errorf("attach: %v, %v", driver.Spec.AttachRequired, err)
	}
	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.CSI.Enabled = new(bool) })
	r.onlyDesired("holdfast")
	if _, err := r.theirs.StorageV1().CSIDrivers().Get(t.Context(), "csi.holdfast.dev", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the CSIDriver without CSI: %v", err)
	}
	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.CSI = v1beta1.CSISpec{AttachRequired: true} })
	r.onlyDesired("holdfast")
	driver, err = r.theirs.StorageV1().CSIDrivers().Get(t.Context(), "csi.holdfast.dev", metav1.GetOptions{})
	if err != nil || !*driver.Spec.AttachRequired {
		t.Errorf("attach again: %v", err)
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
	r := newRig(t).start()
	r.create("holdfast", classes("hb-one"))
	r.reconciled("holdfast")
	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.Controller.Kind = v1beta1.AsStatefulSet })
	sets, deployments := r.theirs.AppsV1().StatefulSets(namespace), r.theirs.AppsV1().Deployments(namespace)
	wait.Until(r, "the StatefulSet", func() bool {
		_, err := sets.Get(t.Context(), v1beta1.ControllerName, metav1.GetOptions{})
		return err == nil
	})
	r.reconciled("holdfast")
	if _, err := deployments.Get(t.Context(), v1beta1.ControllerName, metav1.GetOptions{}); err != nil {
		t.Fatalf("the Deployment, while the StatefulSet is not ready: %v", err)
	}
	// The images of the sidecars are not on this machine: a controller manager that finds them ready is played here.
	wait.Until(r, "the Deployment being gone", func() bool {
		wait.Modify(r, sets.Get, sets.UpdateStatus, v1beta1.ControllerName, func(set *apps.StatefulSet) {
			set.Status.ObservedGeneration, set.Status.Replicas, set.Status.ReadyReplicas, set.Status.UpdatedReplicas = set.Generation, 2, 2, 2
		})
		_, err := deployments.Get(t.Context(), v1beta1.ControllerName, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

func TestPause_ObjectsAreNotTouchedAndTheStatusStaysFresh(t *testing.T) {
	r := newRig(t).start()
	r.create("holdfast", classes("hb-one", "hb-two"))
	r.reconciled("holdfast")
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
	class := &unstructured.Unstructured{}
	class.SetAPIVersion("storage.k8s.io/v1")
	class.SetKind("StorageClass")
	class.SetName("hb-one")
	r.patch(class, `{"metadata":{"annotations":{"example.com/seen":"yes"},"labels":{"example.com/team":"a"}}}`)
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

func TestPrune_DisruptionBudgetOfAnEarlierReleaseIsDeleted(t *testing.T) {
	r := newRig(t).start()
	c := r.create("holdfast", nil)
	r.reconciled("holdfast")
	budget := mark(c, schema.GroupVersionKind{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"}, namespace, v1beta1.ControllerName)
	labels := budget.GetLabels()
	labels[v1beta1.InstanceLabel] = c.Name
	budget.SetLabels(labels)
	budget.Object["spec"] = map[string]any{"maxUnavailable": int64(1), "selector": map[string]any{"matchLabels": map[string]any{"app": "controller"}}}
	check.OK(t, r.set.ApplySparing(t.Context(), []*unstructured.Unstructured{budget}, nil).Err())
	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.Debug = true })
	wait.Until(r, "its end", func() bool {
		_, err := r.of(budget).Get(t.Context(), v1beta1.ControllerName, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}
