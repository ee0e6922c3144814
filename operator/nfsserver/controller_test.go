package nfsserver

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/operator/render"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func TestServer_IsCreatedAndReportsItsAddress(t *testing.T) {
	r := newRig(t)
	r.create("data", nil)
	r.serve("data")
	service, err := r.theirs.CoreV1().Services(r.namespace).Get(t.Context(), "nfs-data", metav1.GetOptions{})
	check.OK(t, err)
	s := r.server("data")
	if s.Status.Endpoint != service.Spec.ClusterIP+":2049" || s.Status.Access != v1beta1.NFSReadWrite || s.Status.ClaimName != "nfs-data" || s.Status.StorageClassName != noClass {
		t.Errorf("the status is %+v", s.Status)
	}
	if got := r.argument("data", "--address="); got != "--address="+service.Spec.ClusterIP {
		t.Errorf("the server got %s", got)
	}
	claim, err := r.theirs.CoreV1().PersistentVolumeClaims(r.namespace).Get(t.Context(), "nfs-data", metav1.GetOptions{})
	if err != nil || len(claim.OwnerReferences) != 0 {
		t.Errorf("the claim: %v, owned by %v", err, claim.OwnerReferences)
	}
	// The event follows the write.
	wait.Until(r, "the event", func() bool { return len(r.events.with("Normal ChangedStatus")) > 0 })
	if found := r.events.with("Normal ChangedStatus"); len(found) != 1 || !strings.Contains(found[0], s.Status.Endpoint) {
		t.Errorf("the events are %v", found)
	}
}

func TestServer_StatusFollowsTheReportsOfThePod(t *testing.T) {
	r := newRig(t)
	s := r.create("data", nil)
	r.serve("data")
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
	address := r.server("data").Status.Endpoint
	patch := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	edit := func(text string) []byte { return []byte(text) }
	services := r.theirs.CoreV1().Services(r.namespace)
	_, err := r.theirs.RbacV1().ClusterRoles().Patch(t.Context(), rightsName, types.MergePatchType, edit(`{"rules":[]}`), metav1.PatchOptions{})
	patch("rules", err)
	wait.Until(r, "the rules", func() bool {
		role, err := r.theirs.RbacV1().ClusterRoles().Get(t.Context(), rightsName, metav1.GetOptions{})
		return err == nil && len(role.Rules) > 3
	})

	old, err := services.Get(t.Context(), "nfs-data", metav1.GetOptions{})
	patch("reading", err)
	patch("deleting the Service", services.Delete(t.Context(), "nfs-data", metav1.DeleteOptions{}))
	wait.Until(r, "another Service of the same address", func() bool {
		s, err := services.Get(t.Context(), "nfs-data", metav1.GetOptions{})
		return err == nil && s.UID != old.UID && s.Spec.ClusterIP == old.Spec.ClusterIP
	})
	if got := r.server("data").Status.Endpoint; got != address {
		t.Errorf("the endpoint was %s and is %s", address, got)
	}
	patch("deleting the account", r.theirs.CoreV1().ServiceAccounts(r.namespace).Delete(t.Context(), rightsName, metav1.DeleteOptions{}))
	wait.Until(r, "the account", func() bool {
		_, err := r.theirs.CoreV1().ServiceAccounts(r.namespace).Get(t.Context(), rightsName, metav1.GetOptions{})
		return err == nil
	})
}

// bind makes a PersistentVolume for a claim, of which nothing is used.
func (r *rig) bind(claim, class string) {
	r.Helper()
	r.bindTo(claim, class, core.PersistentVolumeReclaimRetain)
}

func (r *rig) bindTo(claim, class string, policy core.PersistentVolumeReclaimPolicy) {
	r.Helper()
	pv := &core.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: r.namespace, Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": "a test"}}, Spec: core.PersistentVolumeSpec{
		Capacity: core.ResourceList{core.ResourceStorage: resource.MustParse("1Gi")}, AccessModes: []core.PersistentVolumeAccessMode{core.ReadWriteOnce},
		StorageClassName: class, ClaimRef: &core.ObjectReference{Namespace: r.namespace, Name: claim}, PersistentVolumeReclaimPolicy: policy,
		PersistentVolumeSource: core.PersistentVolumeSource{NFS: &core.NFSVolumeSource{Server: "192.0.2.1", Path: "/"}},
	}}
	check.Got(r.theirs.CoreV1().PersistentVolumes().Create(r.Context(), pv, metav1.CreateOptions{}))(r)
	r.Cleanup(func() { _ = r.theirs.CoreV1().PersistentVolumes().Delete(background, pv.Name, metav1.DeleteOptions{}) })
}

func TestServer_ClassThatRefusesExpansionIsReported(t *testing.T) {
	r := newRig(t)
	r.create("data", nil) // of a class that does not exist
	r.bind("nfs-data", noClass)
	r.serve("data")
	r.change("data", func(s *v1beta1.NFSServerSpec) { s.Storage.Size = new(resource.MustParse("3Gi")) })
	r.condition("data", v1beta1.DegradedCondition, reasonNotApplied, "cannot grow to 3Gi")
	wait.Until(r, "the event", func() bool { return len(r.events.with("Warning FailedCreation: claim nfs-data cannot grow")) == 1 })
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
	if s, err := r.theirs.CoreV1().Services(r.namespace).Get(t.Context(), "nfs-data", metav1.GetOptions{}); err != nil || s.Spec.Ports[0].Port != 80 {
		t.Errorf("the foreign Service: %v, %v", s.Spec.Ports, err)
	}
	if _, err := r.theirs.CoreV1().ServiceAccounts(r.namespace).Get(t.Context(), rightsName, metav1.GetOptions{}); err != nil {
		t.Errorf("the foreign account: %v", err)
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
	wait.Until(r, "the event", func() bool { return len(r.events.with("Warning FailedCreation: namespace")) == 1 })
	level("privileged")
	r.serve("data")
}

func TestServer_UpgradeChangesItsImage(t *testing.T) {
	r := newRig(t)
	r.changeCluster(func(s *v1beta1.StorageClusterSpec) { s.Images.Holdfast = "r/holdfast:1" })
	r.create("data", nil)
	r.serve("data")
	r.create("never", nil) // does not hold the upgrade up
	r.changeCluster(func(s *v1beta1.StorageClusterSpec) { s.Paused = true })
	r.condition("data", v1beta1.ProgressingCondition, reasonPaused)
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
		role, err := r.theirs.RbacV1().Roles(realapi.Namespace).Get(t.Context(), rightsName, metav1.GetOptions{})
		if err != nil {
			return nil
		}
		return role.Rules[1].ResourceNames
	}
	account := func() bool {
		_, err := r.theirs.CoreV1().ServiceAccounts(r.namespace).Get(t.Context(), rightsName, metav1.GetOptions{})
		return err == nil
	}
	wait.Until(r, "the Leases of both", func() bool { return len(leases()) == 4 })
	wait.Until(r, "the one account of both", func() bool {
		b, err := r.theirs.RbacV1().ClusterRoleBindings().Get(t.Context(), rightsName, metav1.GetOptions{})
		return err == nil && len(b.Subjects) == 1 && b.Subjects[0].Namespace == r.namespace && b.Subjects[0].Name == rightsName
	})
	r.delete("one")
	r.gone("one")
	wait.Until(r, "the Leases of one", func() bool { return slices.Equal(leases(), leasesOf(r.server("two"))) })
	if !account() {
		t.Error("the account that the other needs is gone")
	}
	r.delete("two")
	r.gone("two")
	wait.Until(r, "no rights", func() bool { return leases() == nil && !account() })
}
