package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	typed "github.com/holdfast-storage/holdfast/api/client/clientset/typed/api/v1beta1"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/miniapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// call runs the program and returns what it printed.
func call(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out strings.Builder
	err := run(t.Context(), args, &out)
	return out.String(), err
}

// callLine runs the program with the words of a line and more flags.
func callLine(t *testing.T, line string, flags ...string) (string, error) {
	t.Helper()
	return call(t, append(strings.Fields(line), flags...)...)
}

// expects looks for words in a text.
func expects(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%q is not in:\n%s", word, text)
		}
	}
}

func kindsOf(api *miniapi.Server) typed.HoldfastV1beta1Interface {
	return holdfast.NewForConfigOrDie(api.Config()).HoldfastV1beta1()
}

func coreOf(api *miniapi.Server) corev1.CoreV1Interface {
	return kubernetes.NewForConfigOrDie(api.Config()).CoreV1()
}

// running is an API with a cluster in some phase.
func running(t *testing.T, phase v1beta1.ClusterPhase) *miniapi.Server {
	t.Helper()
	api := miniapi.New(t)
	status := v1beta1.StorageClusterStatus{Phase: phase, ObservedGeneration: 1}
	wait.Put(t, &v1beta1.StorageCluster{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Status: status}, kindsOf(api).StorageClusters())
	return api
}

// inFront is a server that answers some requests itself, and passes the others on to an API.
func inFront(t *testing.T, api *miniapi.Server, answered func(http.ResponseWriter, *http.Request) bool) string {
	t.Helper()
	through := httputil.NewSingleHostReverseProxy(check.Got(url.Parse(api.URL()))(t))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !answered(w, r) {
			through.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// onlyServer is the text of a kubeconfig that leads to a server.
func onlyServer(server string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: '%s'}}]\n"+
		"contexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {}}]\ncurrent-context: c\n", server)
}

// reachable returns a kubeconfig for a server, in which another context is the current one.
func reachable(t *testing.T, server string) string {
	t.Helper()
	return file(t, fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
  - {name: here, cluster: {server: '%s'}}
  - {name: nowhere, cluster: {server: 'http://127.0.0.1:1'}}
contexts:
  - {name: here, context: {cluster: here, user: u}}
  - {name: nowhere, context: {cluster: nowhere, user: u}}
users: [{name: u, user: {}}]
current-context: nowhere
`, server))
}

// at are the flags to reach a server.
func at(t *testing.T, server string) []string {
	t.Helper()
	return []string{"--kubeconfig", reachable(t, server), "--context", "here"}
}

func aVolume(name, claim, node, pool, size, used string, phase v1beta1.Phase) *v1beta1.Volume {
	return &v1beta1.Volume{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.VolumeSpec{Name: name, Node: node, Pool: pool, ClaimRef: v1beta1.ReferenceTo(claim)},
		Status: v1beta1.VolumeStatus{Phase: phase, Pool: pool, Size: new(resource.MustParse(size)), Used: new(resource.MustParse(used))},
	}
}

// putPod creates a pod that runs and uses claims.
func putPod(t *testing.T, api *miniapi.Server, namespace, name, node string, labels map[string]string, claims ...string) {
	t.Helper()
	p := &core.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}, Spec: core.PodSpec{NodeName: node}, Status: core.PodStatus{Phase: core.PodRunning}}
	for _, claim := range claims {
		p.Spec.Volumes = append(p.Spec.Volumes, core.Volume{Name: claim, VolumeSource: core.VolumeSource{PersistentVolumeClaim: &core.PersistentVolumeClaimVolumeSource{ClaimName: claim}}})
	}
	wait.Put(t, p, coreOf(api).Pods(namespace))
}

// ofNode are the labels of the pods of nodes, which have counters.
var ofNode = map[string]string{v1beta1.NameLabel: v1beta1.AppName, v1beta1.ComponentLabel: v1beta1.NodeComponent}
