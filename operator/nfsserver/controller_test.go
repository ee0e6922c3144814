package nfsserver

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/operator/render"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func TestServer_StatusFollowsTheReportsOfThePod(t *testing.T) {
	r := newRig(t)
	s := r.create("data", nil)
	r.serve("data")
	address := r.service("data").Spec.ClusterIP
	if got := r.argument("data", "--address="); got != "--address="+address || r.server("data").Status.Endpoint != address+":2049" {
		t.Errorf("the server got %s, and the endpoint is %s", got, r.server("data").Status.Endpoint)
	}
	wait.Until(r, "the event", func() bool { return len(r.events.With("Normal ChangedStatus")) == 1 }) // it follows the write
	nodes := r.ours.HoldfastV1beta1().StorageNodes()
	check.Got(nodes.Create(t.Context(), &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: s.NodeName()}}, metav1.CreateOptions{}))(t)
	wait.Modify(r, nodes.Get, nodes.UpdateStatus, s.NodeName(), func(node *v1beta1.StorageNode) {
		node.Status.Pools = []v1beta1.Pool{{Name: "default", Capacity: resource.MustParse("900Mi"), Promised: resource.MustParse("300Mi")}}
	})
	r.made(r.volume(s, "a"))
	b := r.volume(s, "b")
	wait.Until(r, "the export that there is", func() bool { return r.server("data").Status.Exports == 1 })
	r.made(b)
	clients := []byte(`{"status":{"clients":3}}`)
	check.Got(r.ours.HoldfastV1beta1().NFSServers(r.namespace).Patch(t.Context(), "data", types.MergePatchType, clients, metav1.PatchOptions{}, "status"))(t)
	wait.Until(r, "the numbers", func() bool {
		is := r.server("data").Status
		return is.Exports == 2 && is.Clients == 3 && is.Columns == (v1beta1.NFSServerColumns{Capacity: "900Mi", Promised: "300Mi"})
	})
}

func TestServer_BrokenPodIsReplacedWhenTheSpecIsCorrected(t *testing.T) {
	r := newRig(t)
	r.create("data", func(s *v1beta1.NFSServerSpec) { s.MaxExports = 1 })
	r.argument("data", "--max-exports=1") // its pod never becomes ready
	wait.Until(r, "a pod", func() bool { return r.pod("data") != nil })
	r.change("data", func(s *v1beta1.NFSServerSpec) { s.MaxExports = 2 })
	r.argument("data", "--max-exports=2")
	r.serve("data")
}

// kube/apply and operator/cluster repair objects of every kind. These have more to them: rights, the address that clients
// mount, and an account that other servers have too.
func TestServer_EditedOrDeletedObjectsAreRepaired(t *testing.T) {
	r := newRig(t)
	r.create("data", nil)
	r.serve("data")
	roles, services := r.theirs.RbacV1().ClusterRoles(), r.theirs.CoreV1().Services(r.namespace)
	check.Got(roles.Patch(t.Context(), rightsName, types.MergePatchType, []byte(`{"rules":[]}`), metav1.PatchOptions{}))(t)
	wait.Until(r, "the rules", func() bool { role := wait.Get(r, roles.Get, rightsName); return role != nil && len(role.Rules) > 3 })

	old, endpoint := r.service("data"), r.server("data").Status.Endpoint
	check.OK(t, services.Delete(t.Context(), old.Name, metav1.DeleteOptions{}))
	wait.Until(r, "another Service of the same address", func() bool {
		s := r.service("data")
		return s != nil && s.UID != old.UID && s.Spec.ClusterIP == old.Spec.ClusterIP
	})
	if got := r.server("data").Status.Endpoint; got != endpoint {
		t.Errorf("the endpoint was %s and is %s", endpoint, got)
	}
}

// bind makes a PersistentVolume for a claim, of which nothing is used.
func (r *rig) bind(claim string, policy core.PersistentVolumeReclaimPolicy) {
	r.Helper()
	made := metav1.ObjectMeta{Name: r.namespace, Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": "a test"}}
	pv := &core.PersistentVolume{ObjectMeta: made, Spec: core.PersistentVolumeSpec{
		Capacity: core.ResourceList{core.ResourceStorage: resource.MustParse("1Gi")}, AccessModes: []core.PersistentVolumeAccessMode{core.ReadWriteOnce},
		StorageClassName: noClass, ClaimRef: &core.ObjectReference{Namespace: r.namespace, Name: claim}, PersistentVolumeReclaimPolicy: policy,
		PersistentVolumeSource: core.PersistentVolumeSource{NFS: &core.NFSVolumeSource{Server: "192.0.2.1", Path: "/"}},
	}}
	check.Got(r.theirs.CoreV1().PersistentVolumes().Create(r.Context(), pv, metav1.CreateOptions{}))(r)
	r.Cleanup(func() { _ = r.theirs.CoreV1().PersistentVolumes().Delete(background, pv.Name, metav1.DeleteOptions{}) })
}

func TestServer_ClassThatRefusesExpansionIsReported(t *testing.T) {
	r := newRig(t)
	r.create("data", nil) // of a class that does not exist
	r.bind("nfs-data", core.PersistentVolumeReclaimRetain)
	r.serve("data")
	r.change("data", func(s *v1beta1.NFSServerSpec) { s.Storage.Size = new(resource.MustParse("3Gi")) })
	r.condition("data", v1beta1.DegradedCondition, reasonNotApplied, "cannot grow to 3Gi")
	wait.Until(r, "the event", func() bool { return len(r.events.With("Warning FailedCreation: claim nfs-data cannot grow")) == 1 })
}

func TestServer_ForeignObjectsAreLeftAlone(t *testing.T) {
	r := newRig(t)
	service := &core.Service{ObjectMeta: metav1.ObjectMeta{Name: "nfs-data"}, Spec: core.ServiceSpec{Ports: []core.ServicePort{{Port: 80}}}}
	check.Got(r.theirs.CoreV1().Services(r.namespace).Create(t.Context(), service, metav1.CreateOptions{}))(t)
	account := &core.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: rightsName}}
	check.Got(r.theirs.CoreV1().ServiceAccounts(r.namespace).Create(t.Context(), account, metav1.CreateOptions{}))(t)
	r.create("data", nil)
	r.condition("data", v1beta1.DegradedCondition, reasonForeign, "Service nfs-data", "ServiceAccount holdfast-nfs")
	if r.statefulSet("data") != nil {
		t.Error("a pod was created that no client would reach")
	}
	r.delete("data")
	r.gone("data")
	if s := r.service("data"); s == nil || s.Spec.Ports[0].Port != 80 || r.account() == nil {
		t.Errorf("the foreign objects: %v, %v", s, r.account())
	}
}

func TestServer_NamespaceThatForbidsThePodIsReportedWithTheRemedy(t *testing.T) {
	r := newRig(t)
	level := func(value string) {
		t.Helper()
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, enforceLabel, value)
		check.Got(r.theirs.CoreV1().Namespaces().Patch(t.Context(), r.namespace, types.MergePatchType, patch, metav1.PatchOptions{}))(t)
	}
	level("baseline")
	r.create("data", nil)
	r.condition("data", v1beta1.AvailableCondition, reasonPodSecurity, "baseline", "kubectl label")
	wait.Until(r, "the event", func() bool { return len(r.events.With("Warning FailedCreation: namespace")) == 1 })
	level("privileged")
	r.serve("data")
}

func TestServer_UpgradeChangesItsImage(t *testing.T) {
	r := newRig(t)
	r.create("never", nil) // does not hold the upgrade up
	r.pausedForUpgrade("data")
	began := now()
	if next, waiting, _ := r.upgrade(began); next != r.namespace+"/data" || !strings.Contains(waiting, next) {
		t.Errorf("at first: %s, %q", next, waiting)
	}
	if image := r.image("data"); image != "r/nfs:2" {
		t.Errorf("the image is %s", image)
	}
	r.serve("data")
	wait.Until(r, "the step being done, without the server that never served", func() bool {
		next, _, unawaited := r.upgrade(began)
		return next == "" && slices.Equal(unawaited, []string{r.namespace + "/never"})
	})

	bind := &core.Binding{ObjectMeta: metav1.ObjectMeta{Name: r.pod("data").Name}, Target: core.ObjectReference{Kind: "Node", Name: "far"}}
	check.OK(t, r.theirs.CoreV1().Pods(r.namespace).Bind(t.Context(), bind, metav1.CreateOptions{}))
	outdated := func(image v1beta1.Image) string {
		to, nodes := r.controller.Outdated(image)
		return fmt.Sprint(to, nodes)
	}
	wait.Until(r, "the node of its pod", func() bool { return outdated("r/holdfast:3") == "r/nfs:3[far]" })
	if got := outdated("r/holdfast:2"); got != "[]" {
		t.Errorf("%s is to be brought where it is", got)
	}
	atOnce := int64(0) // no kubelet would end it
	check.OK(t, r.theirs.CoreV1().Pods(r.namespace).Delete(t.Context(), bind.Name, metav1.DeleteOptions{GracePeriodSeconds: &atOnce}))
}

// now is in whole seconds, as the times in a status are.
func now() time.Time { return time.Now().Truncate(time.Second) }

// upgrade makes one step of an upgrade to r/holdfast:2.
func (r *rig) upgrade(began time.Time) (next, waiting string, unawaited []string) {
	r.Helper()
	r.withoutConflict(func() (err error) {
		next, waiting, unawaited, err = r.controller.Upgrade(r.Context(), "r/holdfast:2", began)
		return err
	})
	return next, waiting, unawaited
}

// withoutConflict repeats what conflicts with the controller's loop, which runs beside it.
func (r *rig) withoutConflict(do func() error) {
	r.Helper()
	wait.Until(r, "a pass without a conflict", func() bool {
		err := do()
		if err != nil && !apierrors.IsConflict(err) {
			r.Fatal(err)
		}
		return err == nil
	})
}

func (r *rig) image(name string) string {
	return string(render.ImageOf(&r.statefulSet(name).Spec.Template.Spec))
}

// pausedForUpgrade has servers at work in a cluster that is paused for an upgrade.
func (r *rig) pausedForUpgrade(names ...string) {
	r.Helper()
	r.changeCluster(func(s *v1beta1.StorageClusterSpec) { s.Images.Holdfast = "r/holdfast:1" })
	for _, name := range names {
		r.create(name, nil)
		r.serve(name)
	}
	r.changeCluster(func(s *v1beta1.StorageClusterSpec) { s.Paused = true })
	for _, name := range names {
		r.condition(name, v1beta1.ProgressingCondition, reasonPaused)
	}
}

func TestServer_UpgradeUpdatesTheNextWhenTheOneBeforeServes(t *testing.T) {
	r := newRig(t)
	r.pausedForUpgrade("a", "b")
	began := now()
	for range 2 {
		if next, _, _ := r.upgrade(began); next != r.namespace+"/a" || r.image("a") != "r/nfs:2" || r.image("b") != "r/nfs:1" {
			t.Fatalf("next is %s: a has %s, b %s", next, r.image("a"), r.image("b"))
		}
	}
	r.serve("a")
	wait.Until(r, "the turn of the second", func() bool { next, _, _ := r.upgrade(began); return next == r.namespace+"/b" })
	if r.image("b") != "r/nfs:2" {
		t.Errorf("b has %s", r.image("b"))
	}
	r.serve("b")
	wait.Until(r, "the end", func() bool { next, _, _ := r.upgrade(began); return next == "" })
	r.withoutConflict(func() error { return r.controller.RollBack(t.Context(), "r/holdfast:1") })
	if r.image("a") != "r/nfs:1" || r.image("b") != "r/nfs:1" {
		t.Errorf("rolled back, a has %s, b %s", r.image("a"), r.image("b"))
	}
}

// Anyone who may edit NetworkPolicies in its namespace can do that.
func TestServer_UpgradeDoesNotWaitForOneWhoseObjectsUsersTookOver(t *testing.T) {
	r := newRig(t)
	r.pausedForUpgrade("a", "b")
	began := now()
	taken := []byte(`[{"op":"replace","path":"/metadata/managedFields","value":[{}]},{"op":"remove","path":"/metadata/labels"}]`)
	check.Got(r.theirs.NetworkingV1().NetworkPolicies(r.namespace).Patch(t.Context(), "nfs-a", types.JSONPatchType, taken, metav1.PatchOptions{}))(t)
	wait.Until(r, "the turn of the second", func() bool {
		next, _, unawaited := r.upgrade(began)
		return next == r.namespace+"/b" && slices.Equal(unawaited, []string{r.namespace + "/a"})
	})
}

func TestServer_RightsAreSharedAndDeletedWithTheLastServer(t *testing.T) {
	r := newRig(t)
	r.create("one", nil)
	r.create("two", nil)
	leases := func() []string {
		if role := wait.Get(r, r.theirs.RbacV1().Roles(realapi.Namespace).Get, rightsName); role != nil {
			return role.Rules[1].ResourceNames
		}
		return nil
	}
	wait.Until(r, "the Leases of both", func() bool { return len(leases()) == 4 })
	wait.Until(r, "the one account of both", func() bool {
		b := wait.Get(r, r.theirs.RbacV1().ClusterRoleBindings().Get, rightsName)
		return b != nil && len(b.Subjects) == 1 && b.Subjects[0].Namespace == r.namespace && b.Subjects[0].Name == rightsName
	})
	r.delete("one")
	r.gone("one")
	wait.Until(r, "the Leases of one", func() bool { return slices.Equal(leases(), leasesOf(r.server("two"))) })
	if r.account() == nil {
		t.Error("the account that the other needs is gone")
	}
	r.delete("two")
	r.gone("two")
	wait.Until(r, "no rights", func() bool { return leases() == nil && r.account() == nil })
}

func TestUnreadable_ServerIsNamedAndTheOthersServe(t *testing.T) {
	r := newRig(t)
	bad := &unstructured.Unstructured{Object: map[string]any{"kind": "NFSServer", "spec": map[string]any{
		"storage": map[string]any{"size": "1Gi"}, "resources": map[string]any{"limits": map[string]any{"memory": "1e1.5"}},
	}}}
	bad.SetNamespace(r.namespace)
	bad.SetName("bad")
	realapi.PutPast(t, r.config, "nfsservers", bad, "spec.resources.limits")
	message := r.condition("bad", v1beta1.DegradedCondition, v1beta1.ReasonUnreadable, `spec.resources.limits: {"memory":"1e1.5"}`)
	if ready := meta.FindStatusCondition(r.server("bad").Status.Conditions, v1beta1.ReadyCondition); ready.Status != metav1.ConditionFalse || ready.Reason != v1beta1.ReasonUnreadable || ready.Message != message {
		t.Errorf("Ready is %+v", ready)
	}
	wait.Until(r, "the event", func() bool { return len(r.events.With("Warning Unreadable")) == 1 })
	r.create("data", nil)
	r.serve("data")
	if s := r.server("bad"); len(s.Finalizers) > 0 || s.Unreadable() == nil {
		t.Errorf("it became %+v", s)
	}
	if r.service("bad") != nil {
		t.Error("something was made for it")
	}
	check.Got(r.ours.HoldfastV1beta1().NFSServers(r.namespace).Patch(t.Context(), "bad", types.MergePatchType, []byte(`{"spec":{"resources":null}}`), metav1.PatchOptions{}))(t)
	r.serve("bad")
	r.condition("bad", v1beta1.ReadyCondition, v1beta1.ReasonReady)
}

// onTheFirstNode has a directory of this machine, which is the first node of a test cluster.
func (r *rig) onTheFirstNode(s *v1beta1.NFSServerSpec) {
	dir := filepath.Join("/var/lib", r.namespace)
	r.Cleanup(func() { _ = os.RemoveAll(dir) })
	s.Storage = &v1beta1.NFSStorage{HostPath: dir}
	s.NodeSelectorTerms = []core.NodeSelectorTerm{{MatchExpressions: []core.NodeSelectorRequirement{
		{Key: core.LabelHostname, Operator: core.NodeSelectorOpIn, Values: []string{"node1"}},
	}}}
}

func TestKubelet_RunsThePodAsSpecified(t *testing.T) {
	r := newRig(t)
	const image v1beta1.Image = "holdfast.test/pause:1" // it runs, and answers no probe
	r.changeCluster(func(s *v1beta1.StorageClusterSpec) { s.Images.NFS = image })
	wait.Until(r, "the controller knowing of the image", func() bool {
		c, err := r.controller.clusters.Get(clusterName)
		return err == nil && c.Spec.Images.NFS == image
	})
	r.create("data", r.onTheFirstNode)
	wait.Until(r, "the container running", func() bool {
		p := r.pod("data")
		return p != nil && len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].State.Running != nil
	})
	wait.Until(r, "the node in the status", func() bool { return r.server("data").Status.Node == "node1" })
	if phase := r.server("data").Status.Phase; phase != v1beta1.NFSPending {
		t.Errorf("a server that does not answer is %s", phase)
	}
	set := r.statefulSet("data")
	if set.Generation != 1 || len(set.Spec.Template.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields) != 1 {
		t.Errorf("its pod was made %d times, to be at %v", set.Generation, set.Spec.Template.Spec.Affinity)
	}
	r.delete("data")
	r.gone("data")
}

func TestKubelet_WithoutLoopDevicesTheServerReportsWhatIsMissing(t *testing.T) {
	r := newRig(t)
	r.create("data", func(s *v1beta1.NFSServerSpec) {
		r.onTheFirstNode(s)
		s.Engine = v1beta1.EngineImage
	})
	wait.Until(r, "the reason", func() bool {
		message := r.condition("data", v1beta1.AvailableCondition, reasonPod)
		return strings.Contains(message, "Insufficient holdfast.dev/loop-set") && strings.Contains(message, "engine Directory")
	})
}
