package cluster

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// everyObject lists the whole API: each object of each kind that can be listed, but for those that come and go by
// themselves.
func (r *rig) everyObject() []string {
	r.Helper()
	lists := check.Got(discovery.ServerPreferredResources(r.theirs.Discovery()))(r)
	var all []string
	for _, list := range lists {
		version := check.Got(schema.ParseGroupVersion(list.GroupVersion))(r)
		for _, resource := range list.APIResources {
			if !slices.Contains(resource.Verbs, "list") || slices.Contains(passing, resource.Name) {
				continue
			}
			found, err := r.objects.Resource(version.WithResource(resource.Name)).List(r.Context(), metav1.ListOptions{})
			if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
				continue // it has just gone
			}
			check.OK(r, err)
			for _, o := range found.Items {
				all = append(all, fmt.Sprintf("%s %s/%s", resource.Name, o.GetNamespace(), o.GetName()))
			}
		}
	}
	slices.Sort(all)
	return all
}

func without(all, some []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(one string) bool { return slices.Contains(some, one) })
}

// restored waits until the whole API is as it was.
func (r *rig) restored(before []string) {
	r.Helper()
	now := before
	defer func() {
		if r.Failed() {
			r.Logf("left behind: %v; gone too: %v", without(now, before), without(before, now))
		}
	}()
	wait.Until(r, "the whole API being as it was", func() bool {
		now = r.everyObject()
		return slices.Equal(now, before)
	})
}

// passing are the kinds whose objects the control plane makes and removes all the time.
var passing = []string{"events", "leases", "endpoints", "endpointslices", "componentstatuses"}

func (r *rig) delete(name string) {
	r.Helper()
	check.OK(r, r.ours.HoldfastV1beta1().StorageClusters().Delete(r.Context(), name, metav1.DeleteOptions{}))
}

func (r *rig) gone(name string) {
	r.Helper()
	wait.Until(r, "the end of StorageCluster "+name, func() bool { return r.cluster(name) == nil })
}

// empty removes what this package needs of the cluster, so that all that is found later was made by an operator.
func (r *rig) empty() {
	r.Helper()
	propagation := metav1.DeletePropagationBackground
	_ = r.theirs.CoreV1().Namespaces().Delete(r.Context(), namespace, metav1.DeleteOptions{PropagationPolicy: &propagation})
	for _, name := range slices.Concat(ownDefinitions, dataDefinitions) {
		_ = r.objects.Resource(kube.Definitions).Delete(r.Context(), name, metav1.DeleteOptions{})
	}
	wait.Until(r, "an empty cluster", func() bool {
		_, err := r.theirs.CoreV1().Namespaces().Get(r.Context(), namespace, metav1.GetOptions{})
		for _, name := range slices.Concat(ownDefinitions, dataDefinitions) {
			if _, err := r.objects.Resource(kube.Definitions).Get(r.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return false
			}
		}
		return apierrors.IsNotFound(err)
	})
}

func TestUninstall_DeletionIsRefusedWhileThereAreVolumesAndThenLeavesNothing(t *testing.T) {
	r := newRig(t)
	r.empty()
	r.node("node1")
	before := r.everyObject()
	r.install()
	for _, o := range rights(t) {
		check.Got(r.of(o).Apply(t.Context(), o.GetName(), o, metav1.ApplyOptions{FieldManager: "kubectl", Force: true}))(t)
	}
	r.putSecret("credentials", secretData())
	r.start()
	r.create("holdfast", everything)
	r.reconciled("holdfast")
	r.volume("v1")
	r.volume("v2")
	node, err := r.theirs.CoreV1().Nodes().Patch(t.Context(), "node1", types.MergePatchType, []byte(`{"metadata":{"labels":{"topology.holdfast.dev/node":"node1"}}}`), metav1.PatchOptions{})
	if err != nil || node.Labels[v1beta1.TopologyKey] == "" {
		t.Fatal(err)
	}

	r.delete("holdfast")
	r.condition("holdfast", v1beta1.ProgressingCondition, reasonVolumesExist, "2 volumes", "Orphan")
	if phase := r.cluster("holdfast").Status.Phase; phase != v1beta1.ClusterTerminating {
		t.Errorf("the phase is %s", phase)
	}
	wait.Until(r, "the event", func() bool { return len(r.events.With("Warning Terminating", "2 volumes")) == 1 })
	// What is to stay is kept in order.
	check.OK(t, r.theirs.StorageV1().StorageClasses().Delete(t.Context(), "hb-one", metav1.DeleteOptions{}))
	wait.Until(r, "the class that was deleted by hand", func() bool { return r.class("hb-one") != nil })

	r.noVolume("v1")
	wait.Until(r, "the count", func() bool { return r.cluster("holdfast").Status.Volumes == 1 })
	if r.class("hb-one") == nil {
		t.Error("it began too early")
	}
	r.noVolume("v2")
	wait.Until(r, "the end of the StorageCluster and its kind", func() bool { return r.cluster("holdfast") == nil })
	r.restored(before)
	if node, err = r.theirs.CoreV1().Nodes().Get(t.Context(), "node1", metav1.GetOptions{}); err != nil || node.Labels[v1beta1.TopologyKey] != "" {
		t.Errorf("the label of the node: %q, %v", node.Labels[v1beta1.TopologyKey], err)
	}
}

const ofTheManifest = `{"metadata":{"labels":{"app.kubernetes.io/name":"holdfast","app.kubernetes.io/part-of":"holdfast"}}}`

// shared replaces the namespace by one of others, as Helm installs into, with a ConfigMap of theirs.
func (r *rig) shared() (before []string) {
	r.Helper()
	r.empty()
	check.Got(r.theirs.CoreV1().Namespaces().Create(r.Context(), &core.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}))(r)
	theirs := &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}}
	wait.Until(r, "the ConfigMap of others", func() bool {
		_, err := r.theirs.CoreV1().ConfigMaps(namespace).Create(r.Context(), theirs, metav1.CreateOptions{})
		return err == nil
	})
	wait.Until(r, "what Kubernetes has in each namespace", func() bool {
		before = r.everyObject()
		return slices.Contains(before, "configmaps "+namespace+"/kube-root-ca.crt") && slices.Contains(before, "serviceaccounts "+namespace+"/default")
	})
	r.install()
	for _, o := range rights(r.T) {
		check.Got(r.of(o).Apply(r.Context(), o.GetName(), o, metav1.ApplyOptions{FieldManager: "helm", Force: true}))(r)
	}
	r.Cleanup(func() { // other tests need that of the manifest
		_, _ = r.theirs.CoreV1().Namespaces().Patch(background, namespace, types.MergePatchType, []byte(ofTheManifest), metav1.PatchOptions{})
	})
	return before
}

func (r *rig) namespace() *core.Namespace {
	r.Helper()
	return check.Got(r.theirs.CoreV1().Namespaces().Get(r.Context(), namespace, metav1.GetOptions{}))(r)
}

func TestUninstall_NamespaceOfOthersStaysWithWhatTheyHaveInIt(t *testing.T) {
	r := newRig(t)
	before := r.shared()
	was := r.namespace()
	c := r.create("holdfast", classes("hb-one"))
	given := mark(c, namespaceKind, "", namespace) // as an earlier release has given it to the StorageCluster
	check.Got(r.of(given).Apply(t.Context(), namespace, given, metav1.ApplyOptions{FieldManager: "holdfast-operator", Force: true}))(t)
	r.start()
	r.reconciled("holdfast")
	wait.Until(r, "the account being marked", func() bool {
		account := wait.Get(r, r.theirs.CoreV1().ServiceAccounts(namespace).Get, v1beta1.ControllerName)
		return account != nil && len(account.OwnerReferences) == 1
	})
	wait.Until(r, "the namespace having no owner, and no label but its own", func() bool {
		ns := r.namespace()
		return len(ns.OwnerReferences) == 0 && len(ns.Labels) == len(was.Labels)
	})
	r.delete("holdfast")
	r.gone("holdfast")
	r.restored(before)
	if ns := r.namespace(); ns.UID != was.UID || ns.DeletionTimestamp != nil {
		t.Errorf("the namespace is going, or another: %v", ns)
	}
}

// node makes a node where there is none, as on an API server without a kubelet.
func (r *rig) node(name string) {
	r.Helper()
	nodes := r.theirs.CoreV1().Nodes()
	_, err := nodes.Create(r.Context(), &core.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return
	}
	check.OK(r, err)
	r.Cleanup(func() {
		check.Report(r, nodes.Delete(background, name, metav1.DeleteOptions{}))
	})
}

func TestUninstall_FinalizersOfExternalAttacherAreRemoved(t *testing.T) {
	r := newRig(t).start()
	volumes := r.theirs.CoreV1().PersistentVolumes()
	finalizers := func(name string) []string {
		pv := check.Got(volumes.Get(t.Context(), name, metav1.GetOptions{}))(t)
		return pv.Finalizers
	}
	r.persistentVolume("hb-ours", "csi.holdfast.dev", "external-attacher/csi-holdfast-dev", "example.com/kept")
	r.persistentVolume("hb-theirs", "csi.example.com", "external-attacher/csi-holdfast-dev", "example.com/kept")
	r.create("holdfast", nil)
	r.reconciled("holdfast")
	r.delete("holdfast")
	r.condition("holdfast", v1beta1.ProgressingCondition, reasonVolumesExist, "1 PersistentVolume ")
	check.OK(t, volumes.Delete(t.Context(), "hb-ours", metav1.DeleteOptions{}))
	r.gone("holdfast")
	if ours := finalizers("hb-ours"); slices.Contains(ours, "external-attacher/csi-holdfast-dev") || !slices.Contains(ours, "example.com/kept") {
		t.Errorf("ours has %v", ours)
	}
	if theirs := finalizers("hb-theirs"); !slices.Contains(theirs, "external-attacher/csi-holdfast-dev") {
		t.Errorf("that of another driver has %v", theirs)
	}
}

func TestOrphan_LeavesVolumesAndTheirKindsInPlace(t *testing.T) {
	hostfs.Long(t)
	r := running(t, func(s *v1beta1.StorageClusterSpec) { s.DeletionPolicy = v1beta1.OrphanVolumes })
	r.volume("v1")
	r.delete("holdfast")
	wait.Until(r, "the end of the StorageCluster, its kind and the namespace", func() bool {
		_, errKind := r.objects.Resource(kube.Definitions).Get(t.Context(), ownDefinitions[0], metav1.GetOptions{})
		_, errNamespace := r.theirs.CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
		return r.cluster("holdfast") == nil && apierrors.IsNotFound(errKind) && apierrors.IsNotFound(errNamespace)
	})
	v, err := r.ours.HoldfastV1beta1().Volumes().Get(t.Context(), "v1", metav1.GetOptions{})
	if err != nil || v.DeletionTimestamp != nil {
		t.Fatalf("the volume: %v", err)
	}
	for _, name := range dataDefinitions {
		d, err := r.objects.Resource(kube.Definitions).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || d.GetDeletionTimestamp() != nil || len(d.GetOwnerReferences()) > 0 || d.GetLabels()[apply.ManagedByLabel] != "" {
			t.Errorf("%s: %v, owners %v, labels %v", name, err, d.GetOwnerReferences(), d.GetLabels())
		}
	}
	// The next one takes over what is there.
	r.install()
	r.stop()
	r.start()
	r.create("another", nil)
	wait.Until(r, "the volume being counted", func() bool { return r.cluster("another").Status.Volumes == 1 })
}

func TestUninstall_FinalizerRemovedByForceLosesNoVolume(t *testing.T) {
	r := running(t, nil)
	r.volume("v1")
	r.delete("holdfast")
	r.condition("holdfast", v1beta1.ProgressingCondition, reasonVolumesExist)
	r.stop()
	check.Got(r.ours.HoldfastV1beta1().StorageClusters().Patch(t.Context(), "holdfast", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}))(t)
	wait.Until(r, "the garbage collector having done its work", func() bool {
		_, err := r.objects.Resource(kube.Definitions).Get(t.Context(), ownDefinitions[0], metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	v, err := r.ours.HoldfastV1beta1().Volumes().Get(t.Context(), "v1", metav1.GetOptions{})
	if err != nil || v.DeletionTimestamp != nil {
		t.Errorf("the volume: %v", err)
	}
}

func TestStorageCluster_SecondIsRefusedAndTakesOverWithoutARemoval(t *testing.T) {
	r := newRig(t).start()
	// Without a pod that comes up, nothing else makes the controller look.
	r.cordonReal(true)
	t.Cleanup(func() { r.cordonReal(false) })
	classes := func(names ...string) func(*v1beta1.StorageClusterSpec) {
		return func(s *v1beta1.StorageClusterSpec) {
			classes(names...)(s)
			s.NodeSelectorTerms = terms("nowhere", core.NodeSelectorOpExists)
		}
	}
	r.create("first", classes("hb-one"))
	r.reconciled("first")
	r.volume("v1")
	first := r.cluster("first") // of creation times there are no parts of a second
	wait.Until(r, "the next second", func() bool { return time.Now().Unix() > first.CreationTimestamp.Unix() })
	r.create("also", classes("hb-two"))
	r.condition("also", v1beta1.AvailableCondition, reasonRefused, "first")
	wait.Until(r, "the event", func() bool { return len(r.events.With("also Warning FailedCreation", "first")) == 1 })
	c := r.cluster("also")
	if c.Status.Phase != v1beta1.ClusterPending || len(c.Finalizers) > 0 {
		t.Errorf("phase %s, finalizers %v", c.Status.Phase, c.Finalizers)
	}
	if r.class("hb-two") != nil || r.class("hb-one") == nil {
		t.Error("it changed something")
	}
	was := len(r.set.List())
	r.delete("also")
	r.gone("also")
	r.reconciled("first")
	if len(r.set.List()) != was || r.class("hb-one") == nil {
		t.Error("the deletion of the refused one removed something")
	}

	second := r.create("second", classes("hb-one", "hb-two"))
	r.condition("second", v1beta1.AvailableCondition, reasonRefused)
	class := r.class("hb-one").UID
	r.delete("first")
	r.gone("first")
	r.reconciled("second")
	if c := r.class("hb-one"); c == nil || c.UID != class || len(c.OwnerReferences) != 1 || c.OwnerReferences[0].UID != second.UID {
		t.Errorf("the class was not handed over: %v", c)
	}
	wait.Until(r, "the other class", func() bool { return r.class("hb-two") != nil })
	wait.Never(r, "the garbage collector, for what was handed over,", 3*time.Second, func() bool {
		return r.class("hb-one") == nil || r.cluster("second") == nil
	})
	if meta.FindStatusCondition(r.cluster("second").Status.Conditions, v1beta1.AvailableCondition).Reason == reasonRefused {
		t.Error("it is still refused")
	}
}

// rights of the controller, which are installed with the kinds.
func rights(t *testing.T) (all []*unstructured.Unstructured) {
	files, err := filepath.Glob("../../deploy/*/controller-rbac.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no rights: %v", err)
	}
	for _, o := range decodeFile(t, files[len(files)-1]) {
		if o.GetKind() == "ServiceAccount" || o.GetKind() == "Role" || o.GetKind() == "RoleBinding" {
			o.SetNamespace(namespace)
		}
		all = append(all, o)
	}
	return all
}
