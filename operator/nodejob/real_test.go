package nodejob_test

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/operator/nodejob"
	"github.com/holdfast-storage/holdfast/test/rig/alongside"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func TestMain(m *testing.M) { os.Exit(realapi.Main(m)) }

// kubeletRig is a controller on a real API server, whose nodes have real kubelets.
type kubeletRig struct {
	*testing.T
	client     *holdfast.Clientset
	kubernetes *kubernetes.Clientset
	nodes      int
	ahead      atomic.Int64 // by how much the clock of the controller is ahead, a time.Duration
}

func newKubeletRig(t *testing.T) *kubeletRig {
	t.Helper()
	config := realapi.Config(t)
	r := &kubeletRig{T: t, client: holdfast.NewForConfigOrDie(config), kubernetes: kubernetes.NewForConfigOrDie(config)}
	nodes := check.Got(r.kubernetes.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}))(t)
	r.nodes = len(nodes.Items)
	r.start()
	return r
}

// start runs a controller until stop is called or the test ends.
func (r *kubeletRig) start() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	watches := kube.NewWatches(ctx, r.client, r.kubernetes, realapi.Namespace)
	c := check.Got(nodejob.New(nodejob.Config{
		Client: r.client, Kubernetes: r.kubernetes, Watches: watches, Namespace: realapi.Namespace,
		Log: slog.New(slog.NewTextHandler(r.Output(), nil)),
		Now: func() time.Time { return time.Now().Add(time.Duration(r.ahead.Load())) },
	}))(r)
	watches.Start()
	return alongside.Run(ctx, r, cancel, c.Run)
}

// job runs a shell command on all nodes; it is removed with the test, with its pods.
func (r *kubeletRig) job(script string, change func(*v1beta1.NodeJobSpec)) *v1beta1.NodeJob {
	r.Helper()
	job := &v1beta1.NodeJob{
		ObjectMeta: metav1.ObjectMeta{Name: "test." + rand.String(8)},
		Spec:       v1beta1.NodeJobSpec{Image: "busybox:1", Command: []string{"sh", "-c", script}, BackoffLimit: ptr.To[int32](0), Timeout: v1beta1.DurationOf(3 * time.Minute)},
	}
	if change != nil {
		change(&job.Spec)
	}
	job = check.Got(r.client.HoldfastV1beta1().NodeJobs().Create(r.Context(), job, metav1.CreateOptions{}))(r)
	r.Cleanup(func() { r.remove(job) })
	return job
}

// remove deletes the job and waits until the garbage collector has taken its pods.
func (r *kubeletRig) remove(job *v1beta1.NodeJob) {
	if err := r.client.HoldfastV1beta1().NodeJobs().Delete(context.Background(), job.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		r.Error(err)
	}
	wait.Until(r, "the pods of the job being gone", func() bool { return len(r.pods(job)) == 0 })
}

func (r *kubeletRig) pods(job *v1beta1.NodeJob) []core.Pod {
	r.Helper()
	list := check.Got(r.kubernetes.CoreV1().Pods(realapi.Namespace).List(context.WithoutCancel(r.Context()), metav1.ListOptions{LabelSelector: nodejob.JobLabel + "=" + string(job.UID)}))(r)
	return list.Items
}

func (r *kubeletRig) get(job *v1beta1.NodeJob) *v1beta1.NodeJob {
	r.Helper()
	return check.Got(r.client.HoldfastV1beta1().NodeJobs().Get(context.Background(), job.Name, metav1.GetOptions{}))(r)
}

// end waits for the job and returns it.
func (r *kubeletRig) end(job *v1beta1.NodeJob, phase v1beta1.JobPhase) *v1beta1.NodeJob {
	r.Helper()
	wait.Until(r, "the end of the job", func() bool {
		p := r.get(job).Status.Phase
		return p == v1beta1.JobCompleted || p == v1beta1.JobFailed
	})
	now := r.get(job)
	if now.Status.Phase != phase || now.Status.Completed != (phase == v1beta1.JobCompleted) || len(now.Status.Nodes) != r.nodes {
		r.Fatalf("the job ended as %+v", now.Status)
	}
	return now
}

func TestKubelet_RunsAJobOnEveryNode(t *testing.T) {
	r := newKubeletRig(t)
	job := r.end(r.job("echo hello; echo from here", nil), v1beta1.JobCompleted)
	if s := job.Status; int(s.SucceededNodes) != r.nodes || int(s.DesiredNodes) != r.nodes {
		t.Errorf("it has succeeded on %d of %d nodes, want %d", s.SucceededNodes, s.DesiredNodes, r.nodes)
	}
	for _, n := range job.Status.Nodes {
		if n.Log != "hello\nfrom here\n" || n.ExitCode == nil || *n.ExitCode != 0 || n.Attempts != 1 || n.Message != "" {
			t.Errorf("node %s: %+v", n.Name, n)
		}
	}
	ofJob := metav1.ListOptions{FieldSelector: "involvedObject.name=" + job.Name}
	events := check.Got(r.kubernetes.CoreV1().Events(metav1.NamespaceDefault).List(t.Context(), ofJob))(t)
	if len(events.Items) != 1 || events.Items[0].Reason != nodejob.ReasonCompleted {
		t.Errorf("the events are %+v", events.Items)
	}
	if pods := r.pods(job); len(pods) != r.nodes {
		t.Errorf("%d pods are left to look at, want %d", len(pods), r.nodes)
	}
	r.remove(job)
}

func TestKubelet_CompletionWordEndsAContainerThatKeepsRunning(t *testing.T) {
	r := newKubeletRig(t)
	job := r.end(r.job("echo begun; sleep 1; echo all is DONE now; trap exit TERM; sleep 1000 & wait", func(s *v1beta1.NodeJobSpec) { s.CompletionWord = "is DONE" }), v1beta1.JobCompleted)
	for _, n := range job.Status.Nodes {
		if !strings.HasPrefix(n.Log, "begun\n") || !strings.Contains(n.Log, "is DONE") {
			t.Errorf("node %s: %+v", n.Name, n)
		}
	}
	wait.Until(r, "the pods being ended", func() bool { return len(r.pods(job)) == 0 })
}

func TestKubelet_MissingImageIsNamed(t *testing.T) {
	hostfs.Long(t)
	r := newKubeletRig(t)
	job := r.job("true", func(s *v1beta1.NodeJobSpec) {
		s.Image, s.Timeout = "nowhere.invalid/none:1", v1beta1.DurationOf(time.Hour)
	})
	wait.Until(r, "the reason being reported while it waits", func() bool {
		now := r.get(job)
		return len(now.Status.Nodes) > 0 && strings.Contains(now.Status.Nodes[0].Message, "image nowhere.invalid/none:1 cannot be pulled")
	})
	r.ahead.Store(int64(time.Hour))
	wake := []byte(`{"metadata":{"labels":{"test":"wake"}}}`)
	check.Got(r.client.HoldfastV1beta1().NodeJobs().Patch(t.Context(), job.Name, types.MergePatchType, wake, metav1.PatchOptions{}))(t)
	job = r.end(job, v1beta1.JobFailed)
	if m := job.Status.Nodes[0].Message; !strings.Contains(m, "not done after 1h0m0s: image nowhere.invalid/none:1 cannot be pulled") {
		t.Errorf("it says %q", m)
	}
}

func TestKubelet_PullSucceedsThoughTheImageHasNothingToRun(t *testing.T) {
	r := newKubeletRig(t)
	job := r.job("", func(s *v1beta1.NodeJobSpec) {
		*s = v1beta1.NodeJobSpec{Task: v1beta1.PullTask, TaskImage: "holdfast.test/pause:1", BackoffLimit: ptr.To[int32](0), Timeout: s.Timeout}
	})
	r.end(job, v1beta1.JobCompleted)
}

func TestKubelet_JobDeletedWhileItRunsLeavesNothing(t *testing.T) {
	r := newKubeletRig(t)
	job := r.job("trap exit TERM; sleep 1000 & wait", nil)
	wait.Until(r, "its pods", func() bool { return len(r.pods(job)) == r.nodes })
	r.remove(job)
}
