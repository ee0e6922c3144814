package cluster

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/miniapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// inMemory is a rig over an API in memory, which has no admission policies, with one node. refuse lets it take no object
// whose path ends so from then on; of "" it takes all again.
func inMemory(t *testing.T) (r *rig, refuse func(path string)) {
	t.Helper()
	r = &rig{T: t, config: miniapi.New(t).Config(), served: inKubernetes, events: &events{}, traffic: &traffic{}}
	refused := &atomic.Value{}
	refused.Store("")
	r.config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(q *http.Request) (*http.Response, error) {
			if path := refused.Load().(string); path != "" && q.Method == http.MethodPatch && strings.HasSuffix(q.URL.Path, path) {
				return nil, errors.New("a policy engine refuses it")
			}
			return next.RoundTrip(q)
		})
	})
	r.ours, r.theirs = holdfast.NewForConfigOrDie(r.config), kubernetes.NewForConfigOrDie(r.config)
	r.objects = dynamic.NewForConfigOrDie(r.config)
	check.Got(r.theirs.CoreV1().Namespaces().Create(t.Context(), home(), metav1.CreateOptions{}))(t)
	account := &core.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: v1beta1.ControllerName}}
	check.Got(r.theirs.CoreV1().ServiceAccounts(namespace).Create(t.Context(), account, metav1.CreateOptions{}))(t)
	node := &core.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1", Labels: map[string]string{core.LabelOSStable: "linux"}}}
	check.Got(r.theirs.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}))(t)
	r.start()
	wait.Until(r, "the kinds", func() bool { return r.controller.Kinds.Whole("volumes") && r.controller.Kinds.Whole("snapshots") })
	return r, func(path string) { refused.Store(path) }
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
