package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/miniapi"
	"github.com/holdfast-storage/holdfast/test/rig/recorder"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// inMemory is a rig over an API in memory, which has no admission policies, with one node. refuse lets it take no object
// whose path ends so from then on; of "" it takes all again.
func inMemory(t *testing.T) (r *rig, refuse func(path string)) {
	t.Helper()
	r = &rig{T: t, config: miniapi.New(t).Config(), served: inKubernetes, events: &recorder.Recorder{}, traffic: &traffic{}}
	refused := &atomic.Value{}
	refused.Store("")
	r.config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(q *http.Request) (*http.Response, error) {
			if end := refused.Load().(string); end != "" && q.Method == http.MethodPatch && strings.HasSuffix(q.URL.Path, end) {
				return forbids(q, "a policy engine refuses it")
			}
			return next.RoundTrip(q)
		})
	})
	r.ours, r.theirs = holdfast.NewForConfigOrDie(r.config), kubernetes.NewForConfigOrDie(r.config)
	r.objects, r.mapper = dynamic.NewForConfigOrDie(r.config), kindsInMemory()
	check.Got(r.theirs.CoreV1().Namespaces().Create(t.Context(), home(), metav1.CreateOptions{}))(t)
	account := &core.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: v1beta1.ControllerName}}
	check.Got(r.theirs.CoreV1().ServiceAccounts(namespace).Create(t.Context(), account, metav1.CreateOptions{}))(t)
	node := &core.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1", Labels: map[string]string{core.LabelOSStable: "linux"}}}
	check.Got(r.theirs.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}))(t)
	r.start()
	wait.Until(r, "the kinds", func() bool { return r.controller.Kinds.Whole("volumes") && r.controller.Kinds.Whole("snapshots") })
	return r, func(path string) { refused.Store(path) }
}

// forbids answers as the API server does for an admission webhook.
func forbids(q *http.Request, why string) (*http.Response, error) {
	status := apierrors.NewForbidden(schema.GroupResource{Resource: path.Base(path.Dir(q.URL.Path))}, path.Base(q.URL.Path), errors.New(why)).Status()
	status.Kind, status.APIVersion = "Status", "v1"
	body, err := json.Marshal(status)
	header := http.Header{"Content-Type": {"application/json"}}
	return &http.Response{StatusCode: int(status.Code), Header: header, Body: io.NopCloser(bytes.NewReader(body)), Request: q}, err
}

// inKubernetes are the kinds of objects of a StorageCluster that the API in memory serves.
func inKubernetes(groupVersion string) (*metav1.APIResourceList, error) {
	all := &metav1.APIResourceList{}
	for _, kind := range Kinds() {
		m, err := kindsInMemory().RESTMapping(kind.GroupKind(), kind.Version)
		if err == nil && kind.GroupVersion().String() == groupVersion {
			all.APIResources = append(all.APIResources, metav1.APIResource{Name: m.Resource.Resource, Kind: kind.Kind, Namespaced: m.Scope == meta.RESTScopeNamespace})
		}
	}
	return all, nil
}

func kindsInMemory() meta.RESTMapper {
	groups := []string{"", "apps", "policy", "apiextensions.k8s.io", rbac.Group, storage.GroupName}
	global := []string{"CustomResourceDefinition", "Namespace", "CSIDriver", "StorageClass", "ClusterRole", "ClusterRoleBinding"}
	all := meta.NewDefaultRESTMapper(nil)
	for _, kind := range Kinds() {
		if slices.Contains(global, kind.Kind) {
			all.Add(kind, meta.RESTScopeRoot)
		} else if slices.Contains(groups, kind.Group) {
			all.Add(kind, meta.RESTScopeNamespace)
		}
	}
	return all
}
