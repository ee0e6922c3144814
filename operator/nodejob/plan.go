package nodejob

import (
	"cmp"
	"slices"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
)

const (
	defaultTimeout = 10 * time.Minute
	defaultBackoff = 3
	firstRetry     = 2 * time.Second
	slowestRetry   = time.Minute
)

// observed is all that a decision depends on.
type observed struct {
	now      time.Time
	nodes    []*core.Node
	pods     []*core.Pod // of this job; live if not cached
	logs     map[types.UID]logState
	refusals map[string]string         // by node, why the task must not run there
	pools    map[string][]v1beta1.Pool // of nodes, as their agents reported last; only for the task Cleanup
	settings settings
}

// plan is what to do now, and the status that follows.
type plan struct {
	status   v1beta1.NodeJobStatus
	create   []*core.Pod
	end      []*core.Pod   // to delete once their result is in the status
	read     []*core.Pod   // whose logs to read
	again    time.Duration // when to look again, if nothing happens before; 0: not needed
	finished bool          // with this plan
}

// newPlan decides. The selected nodes are written into the status before anything runs, so that a later pass cannot
// select others.
func newPlan(job *v1beta1.NodeJob, o observed) plan {
	p := plan{status: *job.Status.DeepCopy()}
	p.deleteFinished(job, o.pods)
	if hasEnded(job) || job.DeletionTimestamp != nil {
		return p
	}
	p.status.ObservedGeneration = job.Generation
	if _, err := job.Spec.Timeout.Or(0); err != nil {
		p.fail("InvalidTimeout", "spec.timeout: "+err.Error(), o.now)
		return p
	}
	work, err := workOf(&job.Spec, o.settings)
	if err != nil {
		p.fail("InvalidTask", err.Error(), o.now)
		return p
	}
	if len(p.status.Nodes) == 0 {
		p.begin(job, o)
		return p
	}
	r := round{plan: &p, job: job, work: work, observed: o, budget: tailLimit(len(p.status.Nodes))}
	r.index()
	for i := range p.status.Nodes {
		if n := &p.status.Nodes[i]; n.Phase == v1beta1.JobPending || n.Phase == v1beta1.JobRunning {
			r.node(n)
		}
	}
	p.conclude(o.now)
	return p
}

// deleteFinished deletes, on nodes whose result is recorded, the pods that still run and those of older attempts.
func (p *plan) deleteFinished(job *v1beta1.NodeJob, pods []*core.Pod) {
	lastAttempt := map[string]int32{} // of nodes that have finished
	for _, n := range p.status.Nodes {
		if n.Phase == v1beta1.JobCompleted || n.Phase == v1beta1.JobFailed {
			lastAttempt[n.Name] = n.Attempts
		}
	}
	for _, pod := range pods {
		last, finished := lastAttempt[pod.Annotations[nodeAnnotation]]
		if finished && (!over(pod) || attemptOf(job, pod) < last) {
			p.endIfAny(pod)
		}
	}
}

func hasEnded(job *v1beta1.NodeJob) bool {
	return job.Status.Phase == v1beta1.JobCompleted || job.Status.Phase == v1beta1.JobFailed
}

func (p *plan) begin(job *v1beta1.NodeJob, o observed) {
	s, err := selectNodes(&job.Spec, o.nodes)
	if err != nil {
		p.fail("InvalidSelector", err.Error(), o.now)
		return
	}
	if len(s.nodes) == 0 {
		p.fail("NoNodes", s.none(), o.now)
		return
	}
	if why := o.settings.unreadable; job.Spec.Task == v1beta1.CleanupTask && why != "" {
		p.fail("InvalidTask", "the directories of pools are not known: "+why, o.now)
		return
	}
	isKnown := func(n string) bool { _, known := o.where(job.Spec.Pool, n); return known }
	if job.Spec.Task == v1beta1.CleanupTask && !slices.ContainsFunc(s.nodes, isKnown) {
		p.fail("InvalidTask", unknownPlace(job.Spec.Pool), o.now)
		return
	}
	for _, n := range s.nodes {
		p.status.Nodes = append(p.status.Nodes, v1beta1.NodeResult{Name: n, Phase: v1beta1.JobPending})
	}
	start := timeOf(o.now)
	p.status.StartTime = &start
	p.conclude(o.now)
}

// round is one pass over the nodes of a job.
type round struct {
	*plan
	observed

	job    *v1beta1.NodeJob
	work   work
	budget int // bytes of each node's log

	podsOf    map[string][]*core.Pod // by node
	nodeNamed map[string]*core.Node
}

func (r *round) index() {
	r.podsOf, r.nodeNamed = map[string][]*core.Pod{}, map[string]*core.Node{}
	for _, p := range r.pods {
		node := p.Annotations[nodeAnnotation]
		r.podsOf[node] = append(r.podsOf[node], p)
	}
	for _, n := range r.nodes {
		r.nodeNamed[n.Name] = n
	}
}

// node continues with one node that has not finished.
func (r *round) node(n *v1beta1.NodeResult) {
	pod := r.latest(n)
	v := r.look(n, pod)
	left := r.left(n)
	switch {
	case v.done:
		r.finish(n, pod, v1beta1.JobCompleted, v)
	case v.failed && (v.final || n.Attempts > r.retries()):
		r.finish(n, pod, v1beta1.JobFailed, v)
	case v.reading:
		r.wait(n, pod, v, left)
	case left <= 0 && r.lastWords(pod):
		r.wait(n, pod, v, 0)
	case left <= 0:
		v.message = "not done after " + r.timeout().String() + kube.Because(": ", v.message)
		r.finish(n, pod, v1beta1.JobFailed, v)
	case v.failed || n.Attempts == 0:
		r.attempt(n, pod, v, left)
	default:
		r.wait(n, pod, v, left)
	}
}

// latest returns the pod of the newest attempt and deletes older ones. There may be pods of attempts that the status does
// not have yet.
func (r *round) latest(n *v1beta1.NodeResult) (latest *core.Pod) {
	for _, p := range r.podsOf[n.Name] {
		switch {
		case latest == nil || attemptOf(r.job, p) > attemptOf(r.job, latest):
			r.endIfAny(latest)
			latest = p
		default:
			r.endIfAny(p)
		}
	}
	if latest != nil && attemptOf(r.job, latest) >= n.Attempts {
		n.Attempts = attemptOf(r.job, latest)
		return latest
	}
	r.endIfAny(latest)
	return nil
}

// attemptOf reads the attempt from the name; 0 if the pod is not one of ours.
func attemptOf(job *v1beta1.NodeJob, p *core.Pod) int32 {
	for a := range int32(maxAttempts) {
		if p.Name == podName(job, p.Annotations[nodeAnnotation], a+1) {
			return a + 1
		}
	}
	return 0
}

const maxAttempts = 21 // one more than the largest backoffLimit

// look judges the current attempt. One whose pod has completed is done whatever the state of its node.
func (r *round) look(n *v1beta1.NodeResult, pod *core.Pod) verdict {
	v := verdict{message: n.Message} // why its pod could not be created
	switch {
	case n.Attempts == 0: // a pod, if there is one, is of no attempt of this job
	case pod != nil:
		v = judge(pod, r.work, r.job.Spec.CompletionWord, r.logs[pod.UID])
	case r.exists(podName(r.job, n.Name, n.Attempts)): // its annotation was changed
		v = verdict{message: "its pod has not been seen yet"}
	default:
		v = verdict{failed: true, message: "its pod was deleted"}
	}
	node, refusal := r.nodeNamed[n.Name], r.refusal(n.Name)
	switch {
	case v.done:
	case node == nil:
		return verdict{failed: true, final: true, message: cmp.Or(refusal, "the node is gone")}
	case refusal != "" && (v.failed || n.Attempts == 0):
		v.failed, v.final, v.message = true, true, refusal
	case !v.failed && unready(node) != "":
		v.message = unready(node) + kube.Because("; ", v.message)
	}
	return v
}

// exists says whether there is a pod of a name, whatever node it names.
func (r *round) exists(name string) bool {
	return slices.ContainsFunc(r.pods, func(p *core.Pod) bool { return p.Name == name })
}

func unready(n *core.Node) string {
	for _, c := range n.Status.Conditions {
		if c.Type == core.NodeReady && c.Status != core.ConditionTrue {
			return "the node is not ready (" + c.Reason + ")"
		}
	}
	return ""
}
