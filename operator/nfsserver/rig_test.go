package nfsserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
	"github.com/holdfast-storage/holdfast/operator/render"
	"github.com/holdfast-storage/holdfast/test/rig/alongside"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
	"github.com/holdfast-storage/holdfast/test/rig/recorder"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func TestMain(m *testing.M) { os.Exit(realapi.Main(m)) }

// rig is a controller over a real API server, and a namespace for servers. Pods of servers are chosen for no node unless a
// test says so: it plays their kubelet.
type rig struct {
	*testing.T
	config     *rest.Config
	restricted *rest.Config // that of the controller
	ours       holdfast.Interface
	theirs     kubernetes.Interface
	namespace  string
	events     *recorder.Recorder
	controller *Controller
	missing    atomic.Value // a kind that is on its way out
	stop       func()
}

var background = context.Background() // for what cleans up

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{T: t, config: realapi.Config(t), events: &recorder.Recorder{}, namespace: "nfs-test-" + rand.String(6)}
	r.ours, r.theirs = holdfast.NewForConfigOrDie(r.config), kubernetes.NewForConfigOrDie(r.config)
	r.makeNamespace(nil)
	r.restricted = r.asController()
	t.Cleanup(r.sweep)
	r.makeCluster(r.namespace)
	return r.start()
}

const clusterName = "of-the-rig"

// makeCluster makes a StorageCluster that allows servers in namespaces.
func (r *rig) makeCluster(allows ...string) {
	r.Helper()
	c := &v1beta1.StorageCluster{ObjectMeta: metav1.ObjectMeta{Name: clusterName}}
	c.Spec.NFS.Namespaces = allows
	check.Got(r.ours.HoldfastV1beta1().StorageClusters().Create(r.Context(), c, metav1.CreateOptions{}))(r)
}

// changeCluster writes the spec of the StorageCluster.
func (r *rig) changeCluster(change func(*v1beta1.StorageClusterSpec)) {
	r.Helper()
	clusters := r.ours.HoldfastV1beta1().StorageClusters()
	wait.Modify(r, clusters.Get, clusters.Update, clusterName, func(c *v1beta1.StorageCluster) { change(&c.Spec) })
}

func (r *rig) makeNamespace(labels map[string]string) {
	r.Helper()
	ns := &core.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.namespace, Labels: labels}}
	check.Got(r.theirs.CoreV1().Namespaces().Create(r.Context(), ns, metav1.CreateOptions{}))(r)
}

func rightKinds() (all []schema.GroupVersionKind) {
	for _, kind := range []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"} {
		all = append(all, schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: kind})
	}
	for _, kind := range []string{"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"} {
		all = append(all, schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: kind})
	}
	return all
}

func (r *rig) set(c apply.Config) *apply.Set {
	r.Helper()
	c.Client, c.Resources = dynamic.NewForConfigOrDie(r.restricted), r.theirs.Discovery().ServerResourcesForGroupVersion
	return check.Got(apply.New(c))(r)
}

// start runs a controller until the test ends or stop is called.
func (r *rig) start() *rig {
	r.Helper()
	log := slog.New(slog.NewTextHandler(r.Output(), nil))
	ours, theirs := holdfast.NewForConfigOrDie(r.restricted), kubernetes.NewForConfigOrDie(r.restricted)
	ctx, cancel := context.WithCancel(context.Background())
	c := Config{
		Client: ours, Kubernetes: theirs, Namespace: realapi.Namespace, Events: r.events, Log: log, StatusDelay: 50 * time.Millisecond,
		Owned:   r.set(apply.Config{Kinds: rightKinds(), Name: "cluster", Namespace: realapi.Namespace, Log: log}),
		Servers: r.set(apply.Config{Kinds: Kinds(), Name: "servers", Everywhere: true, InventoryNamespace: realapi.Namespace, Instance: Label, Stranger: apply.TellOfStranger(theirs), Log: log}),
		Watches: kube.NewWatches(ctx, ours, theirs, realapi.Namespace), Whole: func(kind string) bool { return r.missing.Load() != kind },
	}
	r.controller = check.Got(New(c))(r)
	c.Watches.Start()
	for _, set := range []*apply.Set{c.Owned, c.Servers} {
		check.OK(r, set.Start(ctx))
	}
	r.stop = alongside.Run(ctx, r, cancel, r.controller.Run)
	return r
}

// sweep removes what a test left, by hand: the controller may be what is broken.
func (r *rig) sweep() {
	r.stop()
	free := []byte(`{"metadata":{"finalizers":null}}`)
	servers := r.ours.HoldfastV1beta1().NFSServers(r.namespace)
	if all, err := servers.List(background, metav1.ListOptions{}); err == nil {
		for _, s := range all.Items {
			if r.Failed() {
				text, _ := json.Marshal(s.Status)
				r.Logf("%s %s", s.Name, text)
			}
			r.giveUpVolumes(&s)
			_ = r.ours.HoldfastV1beta1().StorageNodes().Delete(background, s.NodeName(), metav1.DeleteOptions{})
			_ = servers.Delete(background, s.Name, metav1.DeleteOptions{})
			_, _ = servers.Patch(background, s.Name, types.MergePatchType, free, metav1.PatchOptions{})
		}
	}
	_ = r.theirs.CoreV1().Namespaces().Delete(background, r.namespace, metav1.DeleteOptions{})
	_ = r.theirs.RbacV1().ClusterRoles().Delete(background, rightsName, metav1.DeleteOptions{})
	_ = r.theirs.RbacV1().ClusterRoleBindings().Delete(background, rightsName, metav1.DeleteOptions{})
	_ = r.theirs.RbacV1().Roles(realapi.Namespace).Delete(background, rightsName, metav1.DeleteOptions{})
	_ = r.theirs.RbacV1().RoleBindings(realapi.Namespace).Delete(background, rightsName, metav1.DeleteOptions{})
	for _, name := range render.ServerLimits() {
		_ = r.theirs.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Delete(background, name, metav1.DeleteOptions{})
		_ = r.theirs.AdmissionregistrationV1().ValidatingAdmissionPolicies().Delete(background, name, metav1.DeleteOptions{})
	}
	_ = r.ours.HoldfastV1beta1().StorageClusters().DeleteCollection(background, metav1.DeleteOptions{}, metav1.ListOptions{})
}

// create makes a server whose pod no node takes.
func (r *rig) create(name string, change func(*v1beta1.NFSServerSpec)) *v1beta1.NFSServer {
	r.Helper()
	size := resource.MustParse("1Gi")
	s := &v1beta1.NFSServer{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.NFSServerSpec{
		Storage: &v1beta1.NFSStorage{Size: &size, StorageClassName: new(noClass)}, Engine: v1beta1.EngineDirectory,
		NodeSelectorTerms: []core.NodeSelectorTerm{{MatchExpressions: []core.NodeSelectorRequirement{{Key: "test.holdfast.dev/nowhere", Operator: core.NodeSelectorOpExists}}}},
	}}
	if change != nil {
		change(&s.Spec)
	}
	return check.Got(r.ours.HoldfastV1beta1().NFSServers(r.namespace).Create(r.Context(), s, metav1.CreateOptions{}))(r)
}

// noClass is the class of claims that only a test binds.
const noClass = "nfs-test-none"

func (r *rig) server(name string) *v1beta1.NFSServer {
	r.Helper()
	return wait.Get(r, r.ours.HoldfastV1beta1().NFSServers(r.namespace).Get, name)
}

// change writes a spec.
func (r *rig) change(name string, change func(*v1beta1.NFSServerSpec)) {
	r.Helper()
	servers := r.ours.HoldfastV1beta1().NFSServers(r.namespace)
	wait.Modify(r, servers.Get, servers.Update, name, func(s *v1beta1.NFSServer) { change(&s.Spec) })
}

// condition waits until a condition has a reason and its message some words, and returns the message.
func (r *rig) condition(name, kind, reason string, words ...string) (message string) {
	r.Helper()
	wait.Until(r, fmt.Sprintf("the reason %s of %s, with %q", reason, kind, words), func() bool {
		s := r.server(name)
		if s == nil || s.Status.ObservedGeneration != s.Generation {
			return false
		}
		found := meta.FindStatusCondition(s.Status.Conditions, kind)
		if found == nil || found.Reason != reason {
			return false
		}
		message = found.Message
		return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(message, word) })
	})
	return message
}

func (r *rig) statefulSet(name string) *apps.StatefulSet {
	r.Helper()
	return wait.Get(r, r.theirs.AppsV1().StatefulSets(r.namespace).Get, "nfs-"+name)
}

// argument waits until the StatefulSet has one that begins so, and returns it.
func (r *rig) argument(name, begins string) (found string) {
	r.Helper()
	wait.Until(r, "the argument "+begins, func() bool {
		set := r.statefulSet(name)
		if set == nil {
			return false
		}
		args := set.Spec.Template.Spec.Containers[0].Args
		i := slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, begins) })
		if i >= 0 {
			found = args[i]
		}
		return i >= 0
	})
	return found
}

func (r *rig) pod(name string) *core.Pod {
	r.Helper()
	return wait.Get(r, r.theirs.CoreV1().Pods(r.namespace).Get, "nfs-"+name+"-0")
}

func (r *rig) service(name string) *core.Service {
	r.Helper()
	return wait.Get(r, r.theirs.CoreV1().Services(r.namespace).Get, "nfs-"+name)
}

func (r *rig) claim(name string) *core.PersistentVolumeClaim {
	r.Helper()
	return wait.Get(r, r.theirs.CoreV1().PersistentVolumeClaims(r.namespace).Get, name)
}

// account is that of the servers of the namespace.
func (r *rig) account() *core.ServiceAccount {
	r.Helper()
	return wait.Get(r, r.theirs.CoreV1().ServiceAccounts(r.namespace).Get, rightsName)
}

// serve plays the kubelet of a pod that becomes ready, once it is of the newest revision.
func (r *rig) serve(name string) {
	r.Helper()
	r.ready(name)
	wait.Until(r, "NFSServer "+name+" at work", func() bool { s := r.server(name); return s != nil && s.Status.Phase == v1beta1.NFSRunning })
}

// ready makes the newest pod of a server ready, as its kubelet would.
func (r *rig) ready(name string) {
	r.Helper()
	wait.Until(r, "the pod to be made ready", func() bool {
		set, pod := r.statefulSet(name), r.pod(name)
		if set == nil || pod == nil || pod.DeletionTimestamp != nil || set.Status.ObservedGeneration < set.Generation || pod.Labels[apps.StatefulSetRevisionLabel] != set.Status.UpdateRevision {
			return false
		}
		pod.Status.Phase = core.PodRunning
		now := metav1.Now()
		pod.Status.Conditions = []core.PodCondition{{Type: core.PodReady, Status: core.ConditionTrue, LastTransitionTime: now}}
		_, err := r.theirs.CoreV1().Pods(r.namespace).UpdateStatus(background, pod, metav1.UpdateOptions{})
		return err == nil
	})
}

// volume asks for one on a server.
func (r *rig) volume(s *v1beta1.NFSServer, name string) *v1beta1.Volume {
	r.Helper()
	v := &v1beta1.Volume{ObjectMeta: metav1.ObjectMeta{Name: name + "-" + r.namespace}, Spec: v1beta1.VolumeSpec{Name: name, Node: s.NodeName()}}
	return check.Got(r.ours.HoldfastV1beta1().Volumes().Create(r.Context(), v, metav1.CreateOptions{}))(r)
}

// made is what the server writes when the volume is.
func (r *rig) made(v *v1beta1.Volume) {
	r.Helper()
	v.Status.Phase, v.Status.CreationTime = v1beta1.PhaseReady, new(metav1.NowMicro())
	check.Got(r.ours.HoldfastV1beta1().Volumes().UpdateStatus(r.Context(), v, metav1.UpdateOptions{}))(r)
}

func (r *rig) giveUpVolumes(s *v1beta1.NFSServer) {
	_ = r.ours.HoldfastV1beta1().Volumes().DeleteCollection(background, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "spec.node=" + s.NodeName()})
}

func (r *rig) delete(name string) {
	r.Helper()
	check.OK(r, r.ours.HoldfastV1beta1().NFSServers(r.namespace).Delete(r.Context(), name, metav1.DeleteOptions{}))
}

func (r *rig) gone(name string) {
	r.Helper()
	wait.Until(r, "the end of NFSServer "+name, func() bool { return r.server(name) == nil })
}

// installedRights are the account of the controller and what it may do, as they are installed.
func installedRights(t *testing.T) (all []*unstructured.Unstructured) {
	t.Helper()
	text := check.Got(os.ReadFile("../../deploy/base/controller-rbac.yaml"))(t)
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		o := &unstructured.Unstructured{}
		if err := decoder.Decode(o); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, o)
	}
}

func resourceOf(o *unstructured.Unstructured) schema.GroupVersionResource {
	plural, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
	return plural
}

// asController is a connection that may do what the controller may, and no more.
func (r *rig) asController() *rest.Config {
	r.Helper()
	objects := dynamic.NewForConfigOrDie(r.config)
	for _, o := range installedRights(r.T) {
		client := dynamic.ResourceInterface(objects.Resource(resourceOf(o)))
		if o.GetKind() != "ClusterRole" && o.GetKind() != "ClusterRoleBinding" {
			client = objects.Resource(resourceOf(o)).Namespace(realapi.Namespace)
		}
		check.Got(client.Apply(r.Context(), o.GetName(), o, metav1.ApplyOptions{FieldManager: "test", Force: true}))(r)
		r.Cleanup(func() { _ = client.Delete(background, o.GetName(), metav1.DeleteOptions{}) })
	}
	config := rest.CopyConfig(r.config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + realapi.Namespace + ":holdfast-controller",
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + realapi.Namespace, "system:authenticated"},
	}
	return config
}
