package upgrade

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/api/client/informers"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
	"github.com/holdfast-storage/holdfast/operator/render"
	"github.com/holdfast-storage/holdfast/operator/rollout"
	"github.com/holdfast-storage/holdfast/test/rig/alongside"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/miniapi"
	"github.com/holdfast-storage/holdfast/test/rig/mortal"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

const ours = "holdfast-system"

// rig is an API in memory, in which Kubernetes' own controllers do what a test says.
type rig struct {
	*testing.T
	api        *miniapi.Server
	client     *holdfast.Clientset
	kubernetes *kubernetes.Clientset
	broken     string // image whose node pods do not become ready
	deaf       string // image whose node pods do not register with the kubelet

	mu      turn
	made    int // node pods, for their names
	replace []string
}

// turn is a mutex. Unlike for one of sync, time passes in a bubble while another goroutine waits for it.
type turn chan struct{}

func (c turn) Lock()   { c <- struct{}{} }
func (c turn) Unlock() { <-c }

func newRig(t *testing.T, changes ...func(*v1beta1.StorageClusterSpec)) *rig {
	t.Helper()
	api := miniapi.New(t)
	r := &rig{T: t, mu: make(turn, 1), api: api, client: holdfast.NewForConfigOrDie(api.Config()), kubernetes: kubernetes.NewForConfigOrDie(api.Config())}
	cluster := &v1beta1.StorageCluster{ObjectMeta: metav1.ObjectMeta{Name: "holdfast"}, Spec: v1beta1.StorageClusterSpec{Images: v1beta1.Images{Holdfast: oldImage}}}
	for _, change := range changes {
		change(&cluster.Spec)
	}
	cluster = check.Got(r.client.HoldfastV1beta1().StorageClusters().Create(t.Context(), cluster, metav1.CreateOptions{}))(t)
	for _, n := range []string{"a", "b", "c"} {
		node := check.Got(r.client.HoldfastV1beta1().StorageNodes().Create(t.Context(), &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: n}}, metav1.CreateOptions{}))(t)
		kubernetesNode := &core.Node{ObjectMeta: metav1.ObjectMeta{Name: n, Labels: map[string]string{core.LabelOSStable: "linux"}}}
		check.Got(r.kubernetes.CoreV1().Nodes().Create(t.Context(), kubernetesNode, metav1.CreateOptions{}))(t)
		csiNode := &storage.CSINode{ObjectMeta: metav1.ObjectMeta{Name: n}}
		check.Got(r.kubernetes.StorageV1().CSINodes().Create(t.Context(), csiNode, metav1.CreateOptions{}))(t)
		node.Status.Conditions = []metav1.Condition{{Type: v1beta1.ReadyCondition, Status: metav1.ConditionTrue}}
		check.Got(r.client.HoldfastV1beta1().StorageNodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}))(t)
	}
	r.install(cluster)
	t.Cleanup(r.explain)
	return r
}

func inBubble(t *testing.T, test func(t *testing.T, r *rig)) {
	synctest.Test(t, func(t *testing.T) { test(t, newRig(t)) })
}

// explain says how far the upgrades of a test that failed came.
func (r *rig) explain() {
	if !r.Failed() {
		return
	}
	for _, name := range []string{"up", "up2"} {
		if u := r.get(name); u != nil {
			r.Logf("%s: %+v %+v", u.Name, u.Finalizers, u.Status)
		}
	}
}

// patch changes the StorageCluster.
func (r *rig) patch(change string) {
	r.Helper()
	clusters := r.client.HoldfastV1beta1().StorageClusters()
	check.Got(clusters.Patch(r.Context(), "holdfast", types.MergePatchType, []byte(change), metav1.PatchOptions{}))(r)
}

// register is what the kubelet of a node does when the pod of an image comes.
func (r *rig) register(node string, image v1beta1.Image) {
	n, err := r.kubernetes.StorageV1().CSINodes().Get(r.Context(), node, metav1.GetOptions{})
	if err != nil {
		return
	}
	if n.Spec.Drivers = nil; string(image) != r.deaf {
		n.Spec.Drivers = []storage.CSINodeDriver{{Name: csiDriver, NodeID: node}}
	}
	_, _ = r.kubernetes.StorageV1().CSINodes().Update(r.Context(), n, metav1.UpdateOptions{}) // which has no other writer
	// What it takes to start the pod. A driver that does not register is forgotten before.
	select {
	case <-time.After(time.Second):
	case <-r.Context().Done():
	}
}

// install makes the workloads as the cluster's own loop would.
func (r *rig) install(cluster *v1beta1.StorageCluster) {
	r.Helper()
	objects := check.Got(render.Objects(render.Input{Cluster: cluster, Namespace: ours, Snapshots: true, Has: func(schema.GroupKind) bool { return true }}))(r)
	check.OK(r, rollout.StampAll(objects))
	resources := map[string]string{"DaemonSet": "daemonsets", "Deployment": "deployments", "StatefulSet": "statefulsets"}
	client := dynamic.NewForConfigOrDie(r.api.Config())
	for _, o := range objects {
		if resource := resources[o.GetKind()]; resource != "" && o.GetName() != "holdfast-snapshot-controller" { // which is not upgraded
			at := client.Resource(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: resource}).Namespace(ours)
			check.Got(at.Apply(r.Context(), o.GetName(), o, metav1.ApplyOptions{FieldManager: apply.FieldManager, Force: true}))(r)
		}
	}
}

// live starts what stands for the controllers of Kubernetes and for the kubelets.
func (r *rig) live() {
	r.Helper()
	kube, kinds := kubeinformers.NewSharedInformerFactory(r.kubernetes, 0), informers.NewSharedInformerFactory(r.client, 0)
	on := func(i cache.SharedIndexInformer, do func(any)) {
		check.Got(i.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: do, UpdateFunc: func(_, o any) { do(o) }, DeleteFunc: do}))(r)
	}
	on(kube.Apps().V1().DaemonSets().Informer(), func(any) { r.daemonSet() })
	on(kube.Core().V1().Pods().Informer(), func(any) { r.daemonSet() })
	on(kube.Apps().V1().Deployments().Informer(), func(o any) { r.deployment(o.(*apps.Deployment)) })
	on(kube.Apps().V1().StatefulSets().Informer(), func(o any) { r.statefulSet(o.(*apps.StatefulSet)) })
	on(kinds.Holdfast().V1beta1().NodeJobs().Informer(), func(o any) { r.nodeJob(o.(*v1beta1.NodeJob)) })
	kube.StartWithContext(r.Context())
	kinds.StartWithContext(r.Context())
	kube.WaitForCacheSyncWithContext(r.Context())
	kinds.WaitForCacheSyncWithContext(r.Context())
	wait.Until(r, "the first node pods", func() bool {
		set, err := r.kubernetes.AppsV1().DaemonSets(ours).Get(r.Context(), v1beta1.NodeName, metav1.GetOptions{})
		return err == nil && set.Status.DesiredNumberScheduled == 3 && len(r.nodePods()) == 3
	})
}

func (r *rig) nodePods() map[string]*core.Pod {
	list, err := r.kubernetes.CoreV1().Pods(ours).List(context.Background(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=node"})
	if err != nil {
		return nil
	}
	pods := map[string]*core.Pod{}
	for _, p := range list.Items {
		pods[p.Spec.NodeName] = &p
	}
	return pods
}

// daemonSet has one pod of the template on each node that has none.
func (r *rig) daemonSet() {
	r.mu.Lock()
	defer r.mu.Unlock()
	ctx := r.Context()
	set, err := r.kubernetes.AppsV1().DaemonSets(ours).Get(ctx, v1beta1.NodeName, metav1.GetOptions{})
	if err != nil {
		return
	}
	pods := r.nodePods()
	for _, node := range []string{"a", "b", "c"} {
		if pods[node] != nil || ctx.Err() != nil {
			continue
		}
		r.made++
		p := &core.Pod{ObjectMeta: *set.Spec.Template.ObjectMeta.DeepCopy(), Spec: *set.Spec.Template.Spec.DeepCopy()}
		p.Name, p.Namespace, p.Spec.NodeName = fmt.Sprintf("%s-%d", v1beta1.NodeName, r.made), ours, node
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, apps.SchemeGroupVersion.WithKind("DaemonSet"))}
		image := render.ImageOf(&p.Spec)
		ready := core.ConditionTrue
		if string(image) == r.broken && node == "b" {
			ready = core.ConditionFalse
		}
		p.Status = core.PodStatus{Phase: core.PodRunning, Conditions: []core.PodCondition{{Type: core.PodReady, Status: ready}}}
		r.register(node, image)
		if _, err := r.kubernetes.CoreV1().Pods(ours).Create(ctx, p, metav1.CreateOptions{}); err == nil {
			r.replace = append(r.replace, node+"="+string(image[strings.LastIndexByte(string(image), ':')+1:]))
		}
	}
	if set.Status.ObservedGeneration != set.Generation || set.Status.DesiredNumberScheduled != 3 {
		set.Status.ObservedGeneration, set.Status.DesiredNumberScheduled = set.Generation, 3
		_, _ = r.kubernetes.AppsV1().DaemonSets(ours).UpdateStatus(ctx, set, metav1.UpdateOptions{}) // a change makes it try again
	}
}

func (r *rig) deployment(d *apps.Deployment) {
	if d.Status.ObservedGeneration == d.Generation {
		return
	}
	d, n := d.DeepCopy(), ptr.Deref(d.Spec.Replicas, 1)
	d.Status = apps.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n}
	_, _ = r.kubernetes.AppsV1().Deployments(d.Namespace).UpdateStatus(r.Context(), d, metav1.UpdateOptions{}) // a change makes it try again
}

func (r *rig) statefulSet(s *apps.StatefulSet) {
	if s.Namespace == ours {
		if s.Status.ObservedGeneration == s.Generation {
			return
		}
		s, n := s.DeepCopy(), ptr.Deref(s.Spec.Replicas, 1)
		s.Status = apps.StatefulSetStatus{ObservedGeneration: s.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n}
		_, _ = r.kubernetes.AppsV1().StatefulSets(ours).UpdateStatus(r.Context(), s, metav1.UpdateOptions{}) // a change makes it try again
		return
	}
	// That of the database has one pod, or none.
	pods, name := r.kubernetes.CoreV1().Pods(s.Namespace), s.Name+"-0"
	if ptr.Deref(s.Spec.Replicas, 1) == 0 {
		_ = pods.Delete(r.Context(), name, metav1.DeleteOptions{}) // it may be gone
		return
	}
	p := &core.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owner("StatefulSet", s.Name)}}
	p.Spec.Volumes = using("data-" + name)
	_, _ = pods.Create(r.Context(), p, metav1.CreateOptions{}) // it may be there
}

func (r *rig) nodeJob(job *v1beta1.NodeJob) {
	if job.Status.Phase != "" || job.DeletionTimestamp != nil {
		return
	}
	job = job.DeepCopy()
	job.Status = pulled(reads1)
	_, _ = r.client.HoldfastV1beta1().NodeJobs().UpdateStatus(r.Context(), job, metav1.UpdateOptions{}) // a change makes it try again
}

// database uses a volume of ours.
func (r *rig) database() {
	r.Helper()
	volume := &core.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	volume.Spec.CSI = &core.CSIPersistentVolumeSource{Driver: csiDriver}
	volume.Spec.ClaimRef = &core.ObjectReference{Namespace: "team", Name: "data-db-0"}
	check.Got(r.kubernetes.CoreV1().PersistentVolumes().Create(r.Context(), volume, metav1.CreateOptions{}))(r)
	set := &apps.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db"}}
	set.Spec.Replicas = ptr.To[int32](1)
	set.Spec.VolumeClaimTemplates = []core.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}}
	check.Got(r.kubernetes.AppsV1().StatefulSets("team").Create(r.Context(), set, metav1.CreateOptions{}))(r)
}

// controller runs until stop is called.
func (r *rig) controller(config *rest.Config) (stop func()) {
	r.Helper()
	log := slog.New(slog.NewTextHandler(r.Output(), nil))
	client, theirs := holdfast.NewForConfigOrDie(config), kubernetes.NewForConfigOrDie(config)
	ctx, cancel := context.WithCancel(r.Context())
	watches := kube.NewWatches(ctx, client, theirs, ours)
	set := check.Got(apply.New(apply.Config{
		Client: dynamic.NewForConfigOrDie(config), Name: "cluster", Namespace: ours, Log: log,
		Kinds: []schema.GroupVersionKind{
			core.SchemeGroupVersion.WithKind("ConfigMap"),
			apps.SchemeGroupVersion.WithKind("DaemonSet"), apps.SchemeGroupVersion.WithKind("Deployment"), apps.SchemeGroupVersion.WithKind("StatefulSet"),
		},
		Resources: func(version string) (*metav1.APIResourceList, error) {
			if version == "v1" {
				return &metav1.APIResourceList{APIResources: []metav1.APIResource{{Name: "configmaps", Kind: "ConfigMap", Namespaced: true}}}, nil
			}
			return &metav1.APIResourceList{APIResources: []metav1.APIResource{
				{Name: "daemonsets", Kind: "DaemonSet", Namespaced: true},
				{Name: "deployments", Kind: "Deployment", Namespaced: true},
				{Name: "statefulsets", Kind: "StatefulSet", Namespaced: true},
			}}, nil
		},
	}))(r)
	c := check.Got(New(Config{Client: client, Kubernetes: theirs, Owned: set, Watches: watches, Namespace: ours, Driver: csiDriver, Metadata: 1, NFS: noServers{}, Log: log}))(r)
	check.OK(r, set.Start(ctx))
	watches.Start()
	return alongside.Run(ctx, r, cancel, c.Run)
}

// dying runs a controller that is killed at one of its writes, if it gets that far. It returns how many it made.
func (r *rig) dying(at int, name string) int {
	r.Helper()
	m := mortal.AfterWrites(at - 1)
	m.Counts = func(q *http.Request) bool { return q.Method != http.MethodGet } // events, too
	stop := r.controller(m.Client(r.api.Config()))
	defer stop()
	r.untilEnd("of the controller or of the upgrade", func() bool { return m.IsDead() || r.over(name) })
	return m.Writes()
}

func (r *rig) upgrade(name string, spec v1beta1.StorageUpgradeSpec) {
	r.Helper()
	check.Got(r.client.HoldfastV1beta1().StorageUpgrades().Create(r.Context(), &v1beta1.StorageUpgrade{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{}))(r)
}

func (r *rig) get(name string) *v1beta1.StorageUpgrade {
	r.Helper()
	return wait.Get(r, r.client.HoldfastV1beta1().StorageUpgrades().Get, name)
}

// untilEnd waits as long as a node may take, and longer.
func (r *rig) untilEnd(what string, so func() bool) {
	r.Helper()
	for end := time.Now().Add(defaultNodeTimeout); time.Now().Before(end) && !so(); {
		time.Sleep(10 * time.Second) //nolint:forbidigo // in virtual time
	}
	wait.Until(r, "the end "+what, so)
}

// over says whether an upgrade has ended, or is gone.
func (r *rig) over(name string) bool {
	u := r.get(name)
	return u == nil || hasEnded(u) && len(u.Finalizers) == 0
}

// runs says what the nodes and the controller run.
func (r *rig) runs() string {
	r.Helper()
	var all []string
	for node, p := range r.nodePods() {
		all = append(all, node+"="+string(render.ImageOf(&p.Spec)))
	}
	slices.Sort(all)
	deployments := check.Got(r.kubernetes.AppsV1().Deployments(ours).List(r.Context(), metav1.ListOptions{}))(r)
	for _, d := range deployments.Items {
		all = append(all, "controller="+string(render.ImageOf(&d.Spec.Template.Spec)))
	}
	sets := check.Got(r.kubernetes.AppsV1().StatefulSets(ours).List(r.Context(), metav1.ListOptions{}))(r)
	for _, s := range sets.Items {
		all = append(all, "controller="+string(render.ImageOf(&s.Spec.Template.Spec)))
	}
	return strings.Join(all, " ")
}

func (r *rig) wantRuns(image v1beta1.Image) {
	r.Helper()
	want := strings.ReplaceAll("a=I b=I c=I controller=I", "I", string(image))
	if have := r.runs(); have != want {
		r.Errorf("what runs is\n%s, want\n%s", have, want)
	}
	c := check.Got(r.client.HoldfastV1beta1().StorageClusters().Get(r.Context(), "holdfast", metav1.GetOptions{}))(r)
	if c.Spec.Paused || c.Annotations[v1beta1.PausedByAnnotation] != "" || c.Spec.Images.Holdfast != image {
		r.Errorf("the cluster is %v %+v", c.Annotations, c.Spec)
	}
}

// reported are the reasons of the events, each with how often.
func (r *rig) reported() map[string]int {
	r.Helper()
	list := check.Got(r.kubernetes.CoreV1().Events(metav1.NamespaceDefault).List(r.Context(), metav1.ListOptions{}))(r)
	reasons := map[string]int{}
	for _, e := range list.Items {
		reasons[e.InvolvedObject.Name+" "+e.Reason]++
	}
	return reasons
}

// noServers are the NFS servers of a cluster without one.
type noServers struct{ NFSServers }

func (noServers) Outdated(v1beta1.Image) (nfs v1beta1.Image, nodes []string) { return "", nil }

func (noServers) Upgrade(context.Context, v1beta1.Image, time.Time) (next, waiting string, unawaited []string, err error) {
	return "", "", nil, nil
}

func (noServers) Workloads() []types.NamespacedName { return nil }

func (noServers) RollBack(context.Context, v1beta1.Image) error { return nil }
