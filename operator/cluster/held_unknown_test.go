package cluster

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/miniapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// holdingInMemory is a rig over an API in memory, which has no admission policies, and a cluster whose two pools hold a
// volume each. While the returned switch is on, writes of the DaemonSet are refused.
func holdingInMemory(t *testing.T) (*rig, *atomic.Bool) {
	t.Helper()
	r, refuses := &rig{T: t, config: miniapi.New(t).Config(), served: inKubernetes, events: &events{}, traffic: &traffic{}}, &atomic.Bool{}
	r.config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(q *http.Request) (*http.Response, error) {
			if refuses.Load() && q.Method == http.MethodPatch && strings.HasSuffix(q.URL.Path, "/daemonsets/"+v1beta1.NodeName) {
				return nil, errors.New("a policy engine refuses the hostPath")
			}
			return next.RoundTrip(q)
		})
	})
	r.ours, r.theirs = holdfast.NewForConfigOrDie(r.config), kubernetes.NewForConfigOrDie(r.config)
	check.Got(r.theirs.CoreV1().Namespaces().Create(t.Context(), home(), metav1.CreateOptions{}))(t)
	account := &core.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: v1beta1.ControllerName}}
	check.Got(r.theirs.CoreV1().ServiceAccounts(namespace).Create(t.Context(), account, metav1.CreateOptions{}))(t)
	node := &core.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1", Labels: map[string]string{core.LabelOSStable: "linux"}}}
	check.Got(r.theirs.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}))(t)
	r.start()
	wait.Until(r, "the kinds", func() bool { return r.controller.Kinds.Whole("volumes") && r.controller.Kinds.Whole("snapshots") })
	r.holding()
	return r, refuses
}

// inKubernetes are the kinds of objects of a StorageCluster that the API in memory serves.
func inKubernetes(groupVersion string) (*metav1.APIResourceList, error) {
	groups := []string{"", "apps", "policy", "apiextensions.k8s.io", rbac.Group, storage.GroupName}
	global := []string{"CustomResourceDefinition", "Namespace", "CSIDriver", "StorageClass", "ClusterRole", "ClusterRoleBinding"}
	all := &metav1.APIResourceList{}
	for _, kind := range Kinds() {
		if slices.Contains(groups, kind.Group) && kind.GroupVersion().String() == groupVersion {
			plural, _ := meta.UnsafeGuessKindToResource(kind)
			all.APIResources = append(all.APIResources, metav1.APIResource{Name: plural.Resource, Kind: kind.Kind, Namespaced: !slices.Contains(global, kind.Kind)})
		}
	}
	return all, nil
}

// held are the names of the pools that the status says to hold volumes.
func (r *rig) held() string {
	var names []string
	for _, p := range r.cluster("holdfast").Status.Pools {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func morePools(s *v1beta1.StorageClusterSpec) {
	s.Pools = append(s.Pools, v1beta1.PoolSpec{Name: "x", Path: "/srv/x"})
}

func withoutFiles(s *v1beta1.StorageClusterSpec) { s.Pools = s.Pools[1:] }

func TestHeldPools_StayProtectedWhileTheDaemonSetIsRefused(t *testing.T) {
	r, refuses := holdingInMemory(t)
	refuses.Store(true)
	r.change("holdfast", morePools)
	r.condition("holdfast", v1beta1.DegradedCondition, reasonNotApplied, "a policy engine refuses the hostPath")
	if held := r.held(); held != "disks files" {
		t.Errorf("while it is not known what runs, held are %q", held)
	}
	r.change("holdfast", withoutFiles)
	r.condition("holdfast", v1beta1.DegradedCondition, reasonHidden, "nothing of it is applied", "pool files holds 1 volume on node node1")
	if path := r.directory(); path != "/srv/files" {
		t.Errorf("the first pool of the nodes is in %q", path)
	}

	refuses.Store(false)
	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.Debug = true })
	r.condition("holdfast", v1beta1.DegradedCondition, reasonHidden, "its pools and nodes are not changed")
	if path := r.directory(); path != "/srv/files" {
		t.Errorf("once it is known what runs, the first pool of the nodes is in %q", path)
	}
	r.noVolume("v1")
	wait.Until(r, "the removal of the empty pool", func() bool { return r.directory() != "/srv/files" && r.held() == "disks" })
}

func TestHeldPools_StayProtectedWhenAUserDeletesTheDaemonSetOfASpecThatHides(t *testing.T) {
	r, _ := holdingInMemory(t)
	r.change("holdfast", withoutFiles)
	r.condition("holdfast", v1beta1.DegradedCondition, reasonHidden)
	sets := r.theirs.AppsV1().DaemonSets(namespace)
	check.OK(t, sets.Delete(t.Context(), v1beta1.NodeName, metav1.DeleteOptions{}))
	wait.Until(r, "the DaemonSet", func() bool {
		_, err := sets.Get(t.Context(), v1beta1.NodeName, metav1.GetOptions{})
		return err == nil
	})
	wait.Never(r, "a configuration without the pool", time.Second, func() bool { return r.directory() != "/srv/files" || r.held() != "disks files" })
}

func TestHeldPools_StayInTheStatusWhileAKindIsBeingDeleted(t *testing.T) {
	r, _ := holdingInMemory(t)
	const kind = "volumes.holdfast.dev"
	definitions := dynamic.NewForConfigOrDie(r.config).Resource(kube.Definitions)
	check.Got(definitions.Patch(t.Context(), kind, types.MergePatchType, []byte(`{"metadata":{"finalizers":["test/stays"]}}`), metav1.PatchOptions{}))(t)
	check.OK(t, definitions.Delete(t.Context(), kind, metav1.DeleteOptions{}))
	wait.Until(r, "its deletion being seen", func() bool { return !r.controller.Kinds.Whole("volumes") })
	r.noVolume("v1")
	r.noVolume("v2")
	wait.Never(r, "a status without the pools", time.Second, func() bool { return r.held() != "disks files" })
}

func TestHeldPools_KeepNoClusterThatIsDeletedWhileTheDaemonSetIsRefused(t *testing.T) {
	r, refuses := holdingInMemory(t)
	refuses.Store(true)
	r.change("holdfast", morePools)
	r.condition("holdfast", v1beta1.DegradedCondition, reasonNotApplied)
	check.OK(t, r.ours.HoldfastV1beta1().StorageClusters().Delete(t.Context(), "holdfast", metav1.DeleteOptions{}))
	r.condition("holdfast", v1beta1.ProgressingCondition, reasonVolumesExist)
	r.noVolume("v1")
	r.noVolume("v2")
	wait.Until(r, "its removal", func() bool { return r.cluster("holdfast") == nil })
}
