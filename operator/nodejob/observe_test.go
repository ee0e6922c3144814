package nodejob

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/miniapi"
)

var errPods = errors.New("pods cannot be read")

// withoutPods fails to read pods.
type withoutPods struct{ next http.RoundTripper }

func (f withoutPods) RoundTrip(q *http.Request) (*http.Response, error) {
	if q.Method == http.MethodGet && strings.Contains(q.URL.Path, "/pods") {
		return nil, errPods
	}
	return f.next.RoundTrip(q)
}

func TestObserve_CacheThatMayBeBehindIsNotBelieved(t *testing.T) {
	api := miniapi.New(t)
	s := newScene(t, "a").step().step() // the job has the attempt 1
	s.running("a")
	client := kubernetes.NewForConfigOrDie(api.Config())
	pod := check.Got(client.CoreV1().Pods("ours").Create(t.Context(), s.pod("a"), metav1.CreateOptions{}))(t)
	jobs := holdfast.NewForConfigOrDie(api.Config()).HoldfastV1beta1().NodeJobs()
	check.Got(jobs.Create(t.Context(), s.job, metav1.CreateOptions{}))(t)

	config := api.Config()
	c := controllerWith(t, holdfast.NewForConfigOrDie(config), kubernetes.NewForConfigOrDie(config), s)
	c.logs.known[pod.UID] = &reading{job: s.job.Name, state: logState{tail: "x"}}
	o := check.Got(c.observe(t.Context(), s.job))(t)
	if len(o.pods) != 1 || o.pods[0].UID != pod.UID || o.logs[pod.UID].tail != "x" {
		t.Errorf("observed are %d pods and the logs %v", len(o.pods), o.logs)
	}
	if p := newPlan(s.job, o); len(p.create) != 0 || p.status.Nodes[0].Attempts != 1 || p.status.Nodes[0].Phase != v1beta1.JobRunning {
		t.Errorf("the cache is believed: %+v", p)
	}

	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return withoutPods{next} })
	c = controllerWith(t, holdfast.NewForConfigOrDie(config), kubernetes.NewForConfigOrDie(config), s)
	api.Requests()
	if _, err := c.reconcile(t.Context(), s.job.Name); !errors.Is(err, errPods) {
		t.Errorf("it goes on without the pods: %v", err)
	}
	if made := api.Requests(); len(made) > 0 {
		t.Errorf("a plan is carried out: %v", made)
	}
}

// controllerWith returns a controller whose caches have the job and the nodes of a scene, and no pods.
func controllerWith(t *testing.T, ours holdfast.Interface, theirs kubernetes.Interface, s *scene) *Controller {
	t.Helper()
	watches := kube.NewWatches(t.Context(), ours, theirs, "ours")
	c := check.Got(New(Config{Client: ours, Kubernetes: theirs, Watches: watches, Namespace: "ours", Now: func() time.Time { return s.now }}))(t)
	check.OK(t, watches.Holdfast.Holdfast().V1beta1().NodeJobs().Informer().GetIndexer().Add(s.job))
	for _, n := range s.nodes {
		check.OK(t, watches.Cluster.Core().V1().Nodes().Informer().GetIndexer().Add(n))
	}
	return c
}
