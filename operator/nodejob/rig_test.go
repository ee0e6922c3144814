package nodejob_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"testing"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/operator/nodejob"
	"github.com/holdfast-storage/holdfast/test/rig/alongside"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/miniapi"
	"github.com/holdfast-storage/holdfast/test/rig/mortal"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

const namespace = "ours"

// rig is an API in memory with nodes whose kubelets do what a test says.
type rig struct {
	*testing.T
	api        *miniapi.Server
	client     *holdfast.Clientset
	kubernetes *kubernetes.Clientset
	run        func(k *kubelet, p *core.Pod) // of a pod that was bound to its node

	mu    sync.Mutex
	began map[string]int // pods by node
}

func newRig(t *testing.T, run func(*kubelet, *core.Pod), nodes ...string) *rig {
	t.Helper()
	api := miniapi.New(t)
	r := &rig{
		T: t, api: api, client: holdfast.NewForConfigOrDie(api.Config()), kubernetes: kubernetes.NewForConfigOrDie(api.Config()),
		run: run, began: map[string]int{},
	}
	ready := core.NodeStatus{Conditions: []core.NodeCondition{{Type: core.NodeReady, Status: core.ConditionTrue}}}
	for _, name := range nodes {
		n := &core.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: ready}
		check.Got(r.kubernetes.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}))(t)
	}
	r.kubelets()
	return r
}

// kubelets run each pod once, on the node that it is made for.
func (r *rig) kubelets() {
	factory := kubeinformers.NewSharedInformerFactory(r.kubernetes, 0)
	check.Got(factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(o any) {
		p := o.(*core.Pod).DeepCopy()
		node := p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Values[0]
		r.mu.Lock()
		r.began[node]++
		k := &kubelet{rig: r, node: node, nth: r.began[node]}
		r.mu.Unlock()
		r.run(k, p)
	}}))(r)
	factory.StartWithContext(r.Context())
	factory.WaitForCacheSyncWithContext(r.Context())
}

// kubelet is that of one node, with one pod.
type kubelet struct {
	*rig
	node string
	nth  int // pod of this node
}

func (k *kubelet) status(p *core.Pod, s core.PodStatus) {
	p.Status = s
	if _, err := k.kubernetes.CoreV1().Pods(p.Namespace).UpdateStatus(context.Background(), p, metav1.UpdateOptions{}); err != nil && k.Context().Err() == nil {
		k.Log("a kubelet could not report:", err)
	}
}

func (k *kubelet) runs(p *core.Pod) {
	p.ResourceVersion = ""
	k.status(p, core.PodStatus{Phase: core.PodRunning, ContainerStatuses: []core.ContainerStatus{{
		Name: "job", ImageID: "sha256:1", State: core.ContainerState{Running: &core.ContainerStateRunning{}},
	}}})
}

func (k *kubelet) exits(p *core.Pod, code int32) {
	phase := core.PodSucceeded
	if code != 0 {
		phase = core.PodFailed
	}
	p.ResourceVersion = ""
	k.api.EndLog(p.Namespace, p.Name)
	k.status(p, core.PodStatus{Phase: phase, ContainerStatuses: []core.ContainerStatus{{
		Name: "job", ImageID: "sha256:1",
		State: core.ContainerState{Terminated: &core.ContainerStateTerminated{ExitCode: code, ContainerID: "c", FinishedAt: metav1.Now()}},
	}}})
}

func (k *kubelet) writes(p *core.Pod, text string) { k.api.WriteLog(p.Namespace, p.Name, text) }

// controller runs until stop is called.
func (r *rig) controller(config *rest.Config) (stop func()) {
	r.Helper()
	client, theirs := holdfast.NewForConfigOrDie(config), kubernetes.NewForConfigOrDie(config)
	ctx, cancel := context.WithCancel(r.Context())
	watches := kube.NewWatches(ctx, client, theirs, namespace)
	c := check.Got(nodejob.New(nodejob.Config{
		Client: client, Kubernetes: theirs, Watches: watches, Namespace: namespace,
		Log: slog.New(slog.NewTextHandler(r.Output(), nil)),
	}))(r)
	watches.Start()
	return alongside.Run(ctx, r, cancel, c.Run)
}

// dying runs a controller that is killed at one of its writes, if it gets that far. It returns how many it made.
func (r *rig) dying(at int, job *v1beta1.NodeJob) int {
	r.Helper()
	m := mortal.AfterWrites(at - 1)
	m.Counts = func(q *http.Request) bool { return q.Method != http.MethodGet } // events, too
	stop := r.controller(m.Client(r.api.Config()))
	defer stop()
	wait.Until(r, "the end, of the controller or of the job", func() bool {
		return m.IsDead() || r.get(job).Status.CompletionTime != nil
	})
	return m.Writes()
}

func (r *rig) get(job *v1beta1.NodeJob) *v1beta1.NodeJob {
	r.Helper()
	return wait.Get(r, r.client.HoldfastV1beta1().NodeJobs().Get, job.Name)
}

// end waits until the job has ended and returns it.
func (r *rig) end(job *v1beta1.NodeJob) (now *v1beta1.NodeJob) {
	r.Helper()
	wait.For(r, "the end of the job", func() error {
		if now = r.get(job); now.Status.CompletionTime == nil {
			return fmt.Errorf("it is %+v", now.Status)
		}
		return nil
	})
	return now
}

func (r *rig) job(spec v1beta1.NodeJobSpec) *v1beta1.NodeJob { r.Helper(); return r.named("job", spec) }

func (r *rig) named(name string, spec v1beta1.NodeJobSpec) *v1beta1.NodeJob {
	r.Helper()
	job := &v1beta1.NodeJob{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	return check.Got(r.client.HoldfastV1beta1().NodeJobs().Create(r.Context(), job, metav1.CreateOptions{}))(r)
}

// reported are the events of a job.
func (r *rig) reported() (reasons []string) {
	r.Helper()
	list := check.Got(r.kubernetes.CoreV1().Events(metav1.NamespaceDefault).List(r.Context(), metav1.ListOptions{}))(r)
	for _, e := range list.Items {
		reasons = append(reasons, fmt.Sprintf("%s %s", e.Type, e.Reason))
	}
	return reasons
}

// nothingRuns waits until all pods that go on have been ended.
func (r *rig) nothingRuns() {
	r.Helper()
	wait.Until(r, "the end of all pods", func() bool {
		list := check.Got(r.kubernetes.CoreV1().Pods(namespace).List(r.Context(), metav1.ListOptions{}))(r)
		return !slices.ContainsFunc(list.Items, func(p core.Pod) bool { return p.Status.Phase == core.PodRunning })
	})
}
