package cluster

import (
	"slices"
	"testing"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

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
	r.start()
	r.create("holdfast", classes("hb-one"))
	r.reconciled("holdfast")
	wait.Until(r, "the account being marked", func() bool {
		account, err := r.theirs.CoreV1().ServiceAccounts(namespace).Get(t.Context(), v1beta1.ControllerName, metav1.GetOptions{})
		return err == nil && len(account.OwnerReferences) == 1
	})
	if ns := r.namespace(); len(ns.OwnerReferences) > 0 || len(ns.Labels) != len(was.Labels) {
		t.Errorf("owners %v, labels %v", ns.OwnerReferences, ns.Labels)
	}
	r.delete("holdfast")
	r.gone("holdfast")
	now := before
	defer func() {
		if t.Failed() {
			t.Logf("left behind: %v; gone too: %v", without(now, before), without(before, now))
		}
	}()
	wait.Until(r, "the whole API being as it was", func() bool {
		now = r.everyObject()
		return slices.Equal(now, before)
	})
	if ns := r.namespace(); ns.UID != was.UID || ns.DeletionTimestamp != nil {
		t.Errorf("the namespace is going, or another: %v", ns)
	}
}

func TestNamespace_OfOthersIsTakenFromTheStorageClusterThatAnEarlierReleaseGaveItTo(t *testing.T) {
	hostfs.Long(t)
	r := newRig(t)
	r.shared()
	c := r.create("holdfast", nil)
	check.Got(r.of(mark(c, namespaceKind, "", namespace)).Apply(t.Context(), namespace, mark(c, namespaceKind, "", namespace),
		metav1.ApplyOptions{FieldManager: "holdfast-operator", Force: true}))(t)
	r.start()
	r.reconciled("holdfast")
	wait.Until(r, "the namespace having no owner", func() bool {
		ns := r.namespace()
		return len(ns.OwnerReferences) == 0 && ns.Labels["app.kubernetes.io/managed-by"] == ""
	})
}

func TestNamespace_OfTheManifestBelongsToTheStorageCluster(t *testing.T) {
	r := newRig(t)
	check.Got(r.theirs.CoreV1().Namespaces().Patch(t.Context(), namespace, types.MergePatchType, []byte(ofTheManifest), metav1.PatchOptions{}))(t)
	r.start()
	c := r.create("holdfast", nil)
	wait.Until(r, "the owner", func() bool {
		ns := r.namespace()
		return len(ns.OwnerReferences) == 1 && ns.OwnerReferences[0].UID == c.UID
	})
}
