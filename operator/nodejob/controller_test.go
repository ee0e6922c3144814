package nodejob_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/operator/nodejob"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func exitsWell(k *kubelet, p *core.Pod) {
	k.runs(p)
	k.writes(p, "hello\n")
	k.exits(p, 0)
}

// failsOnce fails the first pod of node b.
func failsOnce(k *kubelet, p *core.Pod) {
	if k.node == "b" && k.nth == 1 {
		k.runs(p)
		k.exits(p, 7)
		return
	}
	exitsWell(k, p)
}

func TestJob_GivesTheSameResultWhereverItsControllerIsKilled(t *testing.T) {
	for name, c := range map[string]struct {
		run  func(*kubelet, *core.Pod)
		spec v1beta1.NodeJobSpec
		pods string // begun, by node
	}{
		"exit code":       {exitsWell, v1beta1.NodeJobSpec{Image: "i"}, "map[a:1 b:1]"},
		"one more try":    {failsOnce, v1beta1.NodeJobSpec{Image: "i"}, "map[a:1 b:2]"},
		"pull":            {(*kubelet).runs, v1beta1.NodeJobSpec{Task: v1beta1.PullTask, TaskImage: "i"}, "map[a:1 b:1]"},
		"completion word": {wordWithoutRotation, v1beta1.NodeJobSpec{Image: "i", CompletionWord: "done"}, "map[a:1 b:1]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			attempt := func(t *testing.T, at int) (writes int) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, c.run, "a", "b")
					job := r.job(c.spec)
					writes = r.dying(at, job)
					r.controller(r.api.Config())
					now := r.end(job)
					if now.Status.Phase != v1beta1.JobCompleted || now.Status.SucceededNodes != 2 {
						t.Errorf("it ended as %+v", now.Status)
					}
					if begun := fmt.Sprint(r.began); begun != c.pods {
						t.Errorf("begun were %s, want %s", begun, c.pods)
					}
					if reported := r.reported(); !slices.Equal(reported, []string{"Normal JobCompleted"}) {
						t.Errorf("the events are %v", reported)
					}
					r.nothingRuns()
				})
				return writes
			}
			for at := range attempt(t, 0) + 1 {
				t.Run(fmt.Sprintf("at write %d", at+1), func(t *testing.T) {
					t.Parallel()
					attempt(t, at+1)
				})
			}
		})
	}
}

func wordWithoutRotation(k *kubelet, p *core.Pod) {
	k.runs(p)
	k.writes(p, "all is done\n")
}

func TestCompletionWord_RotatedAwayAfterItWasReadCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		followed := make(chan struct{})
		r := newRig(t, func(k *kubelet, p *core.Pod) {
			k.runs(p)
			go func() {
				// The log is followed before the word comes and is rotated away.
				if !k.api.Followed(k.Context(), p.Namespace, p.Name) {
					return
				}
				k.writes(p, "begun on "+k.node+"\n")
				k.writes(p, "all is done\n")
				k.api.RotateLog(p.Namespace, p.Name)
				k.writes(p, "later\n")
				close(followed)
			}()
		}, "a")
		r.controller(r.api.Config())
		now := r.end(r.job(v1beta1.NodeJobSpec{Image: "i", CompletionWord: "is done", BackoffLimit: ptr.To[int32](0)}))
		<-followed
		if now.Status.Phase != v1beta1.JobCompleted || !strings.Contains(now.Status.Nodes[0].Log, "all is done") {
			t.Errorf("it ended as %+v", now.Status)
		}
	})
}

func TestLog_BrokenStreamIsFollowedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(k *kubelet, p *core.Pod) {
			k.runs(p)
			go func() {
				if !k.api.Followed(k.Context(), p.Namespace, p.Name) {
					return
				}
				k.api.BreakWatches()
				k.writes(p, "done\n")
			}()
		}, "a")
		r.controller(r.api.Config())
		if now := r.end(r.job(v1beta1.NodeJobSpec{Image: "i", CompletionWord: "done"})); now.Status.Phase != v1beta1.JobCompleted {
			t.Errorf("it ended as %+v", now.Status)
		}
	})
}

func TestJob_TwoOnTheSameNodesAreCountedApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(k *kubelet, p *core.Pod) {
			k.runs(p)
			k.exits(p, map[string]int32{"good": 0, "bad": 1}[p.Spec.Containers[0].Image])
		}, "a", "b")
		r.controller(r.api.Config())
		for _, name := range []string{"good", "bad"} {
			job := r.named(name, v1beta1.NodeJobSpec{Image: v1beta1.Image(name), BackoffLimit: ptr.To[int32](0)})
			want := map[string]v1beta1.JobPhase{"good": v1beta1.JobCompleted, "bad": v1beta1.JobFailed}[name]
			if now := r.end(job); now.Status.Phase != want {
				t.Errorf("job %s ended as %+v", name, now.Status)
			}
		}
	})
}

func TestJob_FailsWhenANodeIsRemovedWhileItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		removed := make(chan error, 1) // the answer may come when the job has ended already
		r := newRig(t, func(k *kubelet, p *core.Pod) {
			k.runs(p)
			removed <- k.kubernetes.CoreV1().Nodes().Delete(t.Context(), k.node, metav1.DeleteOptions{})
		}, "a")
		r.controller(r.api.Config())
		now := r.end(r.job(v1beta1.NodeJobSpec{Image: "i"}))
		check.Report(t, <-removed)
		if now.Status.Phase != v1beta1.JobFailed || now.Status.Nodes[0].Message != "the node is gone" {
			t.Errorf("it ended as %+v", now.Status)
		}
		if reported := r.reported(); !slices.Equal(reported, []string{"Warning JobFailed"}) {
			t.Errorf("the events are %v", reported)
		}
	})
}

// refusing answers 422 to each pod that is created.
type refusing struct{ next http.RoundTripper }

func (f refusing) RoundTrip(q *http.Request) (*http.Response, error) {
	if q.Method != http.MethodPost || path.Base(q.URL.Path) != "pods" {
		return f.next.RoundTrip(q)
	}
	q.Body.Close()
	const body = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422,"message":"spec.containers[0].image: Required value"}`
	return &http.Response{
		StatusCode: http.StatusUnprocessableEntity, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(body)), Request: q,
	}, nil
}

func TestJob_WithAnInvalidPodIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, exitsWell, "a")
		config := r.api.Config()
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return refusing{next} })
		r.controller(config)
		now := r.end(r.job(v1beta1.NodeJobSpec{Image: "i"}))
		if n := now.Status.Nodes[0]; now.Status.Phase != v1beta1.JobFailed || n.Phase != v1beta1.JobFailed || !strings.Contains(n.Message, "image: Required value") {
			t.Errorf("it ended as %+v", now.Status)
		}
		<-time.After(time.Hour) // whatever is retried
		if reported := r.reported(); !slices.Equal(reported, []string{"Warning JobFailed"}) {
			t.Errorf("the events are %v", reported)
		}
		if again := r.get(now); again.ResourceVersion != now.ResourceVersion {
			t.Errorf("it is written again: %+v", again.Status)
		}
	})
}

// clusters makes StorageClusters, of which the first is held by a finalizer while it is deleted.
func (r *rig) clusters(leaving, stays v1beta1.StorageClusterSpec) {
	r.Helper()
	all := r.client.HoldfastV1beta1().StorageClusters()
	for name, spec := range map[string]v1beta1.StorageClusterSpec{"a-leaving": leaving, "stays": stays} {
		check.Got(all.Create(r.Context(), &v1beta1.StorageCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{"test/held"}}, Spec: spec}, metav1.CreateOptions{}))(r)
	}
	check.OK(r, all.Delete(r.Context(), "a-leaving", metav1.DeleteOptions{}))
}

func TestCleanup_RunsWhereTheNodeOrTheServedStorageClusterHasThePool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		wiped := map[string]string{}
		r := newRig(t, func(k *kubelet, p *core.Pod) {
			mu.Lock()
			wiped[k.node] = p.Spec.Volumes[0].HostPath.Path
			mu.Unlock()
			exitsWell(k, p)
		}, "a", "b")
		r.clusters(v1beta1.StorageClusterSpec{Pools: []v1beta1.PoolSpec{{Name: "fast", Path: "/srv/leaving"}}}, v1beta1.StorageClusterSpec{Pools: []v1beta1.PoolSpec{{Name: "fast", Path: "/srv/stays"}}})
		nodes := r.client.HoldfastV1beta1().StorageNodes()
		n := check.Got(nodes.Create(t.Context(), &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{}))(t)
		n.Status.Pools = []v1beta1.Pool{{Name: "fast", Path: "/srv/moved", ID: "WIPED"}, {Name: "slow", ID: "KEPT"}}
		check.Got(nodes.UpdateStatus(t.Context(), n, metav1.UpdateOptions{}))(t)
		r.controller(r.api.Config())
		now := r.end(r.job(v1beta1.NodeJobSpec{Task: v1beta1.CleanupTask, Pool: "fast"}))
		mu.Lock()
		defer mu.Unlock()
		if want := (map[string]string{"a": "/srv/moved", "b": "/srv/stays"}); !maps.Equal(wiped, want) || now.Status.Phase != v1beta1.JobCompleted {
			t.Errorf("wiped were %v, want %v; it ended as %+v", wiped, want, now.Status)
		}
		n = check.Got(nodes.Get(t.Context(), "a", metav1.GetOptions{}))(t)
		if want := []v1beta1.PoolReplacement{{Name: "fast", ID: "WIPED"}}; !slices.Equal(n.Spec.ReplacePools, want) {
			t.Errorf("given up are %v, want %v: the node would wait for what was wiped", n.Spec.ReplacePools, want)
		}
	})
}

func TestCleanup_ReadsWhichVolumesExist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, exitsWell, "a", "b", "c")
		r.clusters(v1beta1.StorageClusterSpec{}, v1beta1.StorageClusterSpec{Pools: []v1beta1.PoolSpec{{Name: "fast"}, {Name: "slow"}}})
		for _, v := range []*v1beta1.Volume{
			{ObjectMeta: metav1.ObjectMeta{Name: "v1"}, Spec: v1beta1.VolumeSpec{Node: "a", Pool: "fast"}},
			{ObjectMeta: metav1.ObjectMeta{Name: "v2"}, Spec: v1beta1.VolumeSpec{Node: "b", Pool: "slow"}},
		} {
			check.Got(r.client.HoldfastV1beta1().Volumes().Create(t.Context(), v, metav1.CreateOptions{}))(t)
		}
		check.Got(r.client.HoldfastV1beta1().Snapshots().Create(t.Context(), &v1beta1.Snapshot{
			ObjectMeta: metav1.ObjectMeta{Name: "s1"}, Spec: v1beta1.SnapshotSpec{Node: "c"},
		}, metav1.CreateOptions{}))(t)
		r.controller(r.api.Config())
		now := r.end(r.job(v1beta1.NodeJobSpec{Task: v1beta1.CleanupTask, Pool: "fast"}))
		if fmt.Sprint(r.began) != "map[b:1]" || now.Status.SucceededNodes != 1 || now.Status.DesiredNodes != 3 {
			t.Errorf("begun were %v; it ended as %+v", r.began, now.Status)
		}
		for i, want := range []string{"volume v1", "", "snapshot s1"} {
			if m := now.Status.Nodes[i].Message; !strings.Contains(m, want) || want == "" && m != "" {
				t.Errorf("node %s: %q, want %q", now.Status.Nodes[i].Name, m, want)
			}
		}
	})
}

func TestJob_FinishedCostsNoRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, exitsWell, "a")
		r.controller(r.api.Config())
		job := r.end(r.job(v1beta1.NodeJobSpec{Image: "i"}))
		r.api.Requests()
		// A change of the job makes it be looked at; a second job shows when that was.
		label := []byte(`{"metadata":{"labels":{"x":"y"}}}`)
		check.Got(r.client.HoldfastV1beta1().NodeJobs().Patch(t.Context(), job.Name, types.MergePatchType, label, metav1.PatchOptions{}))(t)
		r.end(r.named("other", v1beta1.NodeJobSpec{Task: "none"}))
		for what, n := range r.api.Requests() {
			if strings.Contains(what, "pods") || what == "update nodejobs/status" && n != 1 {
				t.Errorf("%s: %d times", what, n)
			}
		}
	})
}

func TestController_WithoutClientsIsRefused(t *testing.T) {
	if _, err := nodejob.New(nodejob.Config{}); err == nil {
		t.Error("it was taken")
	}
}
