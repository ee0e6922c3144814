package nodejob

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
)

func (c *Controller) reconcile(ctx context.Context, name string) (time.Duration, error) {
	cached, _ := c.jobs.Get(name) // the only error of a cache is that there is none
	if cached == nil {
		c.logs.forget(name)
		c.written.Forget(name)
		return 0, nil
	}
	job := c.written.Newest(cached).DeepCopy()
	switch {
	case job.Unreadable() == nil:
	case hasEnded(job): // its result stays true
		return 0, nil
	default:
		return 0, c.reportUnreadable(ctx, job)
	}
	if hasEnded(job) || job.DeletionTimestamp != nil {
		c.logs.forget(name)
	}
	o, err := c.observe(ctx, job)
	if err != nil {
		return 0, err
	}
	return c.apply(ctx, job, newPlan(job, o))
}

// reportUnreadable reports a job that cannot be decoded, and leaves it and its pods alone.
func (c *Controller) reportUnreadable(ctx context.Context, job *v1beta1.NodeJob) error {
	written, err := c.unreadable.Report(ctx, c.Client, job, component)
	if written == nil {
		return err
	}
	c.written.Wrote(written.(*v1beta1.NodeJob))
	return kube.RecordOnce(ctx, c.Kubernetes, component, kube.Event{
		About: job, Kind: v1beta1.SchemeGroupVersion.WithKind("NodeJob"), Type: core.EventTypeWarning, Reason: v1beta1.ReasonUnreadable, Message: kube.UnreadableMessage(job),
	})
}

func (c *Controller) observe(ctx context.Context, job *v1beta1.NodeJob) (observed, error) {
	o := observed{
		now: c.Now(), settings: c.settings(), nodes: kube.Cached(c.nodes.List), pods: kube.Selected(c.pods.Pods(c.Namespace).List, labelsOf(job.UID)),
	}
	if hasEnded(job) || job.DeletionTimestamp != nil {
		return o, nil
	}
	if err := c.observePods(ctx, job, &o); err != nil {
		return o, err
	}
	o.logs = c.logs.of(o.pods)
	if job.Spec.Task != v1beta1.CleanupTask {
		return o, nil
	}
	o.pools = map[string][]v1beta1.Pool{}
	for _, n := range kube.Cached(c.storageNodes.List) {
		o.pools[n.Name] = n.Status.Pools
	}
	var err error
	o.refusals, err = c.inUse(ctx, job.Spec.Pool, o.pools)
	return o, err
}

// observePods adds the pods of the newest attempts that are not cached: they are gone, or were created a moment ago.
func (c *Controller) observePods(ctx context.Context, job *v1beta1.NodeJob, o *observed) error {
	for _, n := range job.Status.Nodes {
		name := podName(job, n.Name, n.Attempts)
		if n.Phase != v1beta1.JobRunning || n.Attempts == 0 || slices.ContainsFunc(o.pods, func(p *core.Pod) bool { return p.Name == name }) {
			continue
		}
		pod, err := kube.Live(ctx, c.Kubernetes.CoreV1().Pods(c.Namespace).Get, name)
		if err != nil {
			return err
		}
		if pod != nil {
			o.pods = append(o.pods, pod)
		}
	}
	return nil
}

// apply creates pods, writes the status, and only then deletes pods whose result is in the status. So no result is lost:
// until it is written, its pod exists, with its log and termination message.
func (c *Controller) apply(ctx context.Context, job *v1beta1.NodeJob, p plan) (time.Duration, error) {
	pods := c.Kubernetes.CoreV1().Pods(c.Namespace)
	var failed []error
	for _, pod := range p.create {
		if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			p.notMade(pod.Annotations[nodeAnnotation], err, c.Now())
			failed = append(failed, fmt.Errorf("creating the pod of node %s: %w", pod.Annotations[nodeAnnotation], err))
		}
	}
	for _, pod := range p.read {
		c.logs.read(ctx, job.Name, job.Spec.CompletionWord, pod)
	}
	if err := c.giveUpWiped(ctx, job, p.status); err != nil {
		return 0, errors.Join(append(failed, err)...)
	}
	if p.finished {
		if err := c.announce(ctx, job, p.status); err != nil {
			c.Log.Warn("an event could not be written", "job", job.Name, "error", err)
		}
	}
	// It fails with a conflict if the job has changed, which is then reconciled again.
	if _, _, err := c.written.WriteStatus(ctx, job, p.status); kube.IgnoreNotFound(err) != nil {
		return 0, errors.Join(append(failed, err)...)
	}
	for _, pod := range p.end {
		failed = append(failed, kube.DeleteExactly(ctx, pods.Delete, pod))
	}
	return p.again, errors.Join(failed...)
}

// notMade does not count the attempt of a node whose pod the API server refused.
func (p *plan) notMade(node string, cause error, now time.Time) {
	for i := range p.status.Nodes {
		n := &p.status.Nodes[i]
		if n.Name != node {
			continue
		}
		n.Attempts--
		n.Message = kube.Shorten("its pod cannot be created: "+cause.Error(), longestMessage)
		if apierrors.IsInvalid(cause) || apierrors.IsBadRequest(cause) {
			n.Phase = v1beta1.JobFailed
		}
	}
	p.conclude(now)
}

func (c *Controller) announce(ctx context.Context, job *v1beta1.NodeJob, s v1beta1.NodeJobStatus) error {
	e := kube.Event{About: job, Kind: v1beta1.SchemeGroupVersion.WithKind("NodeJob"), Type: core.EventTypeWarning, Reason: ReasonFailed}
	if s.Completed {
		e.Type, e.Reason = core.EventTypeNormal, ReasonCompleted
	}
	if c := meta.FindStatusCondition(s.Conditions, v1beta1.CompleteCondition); c != nil {
		e.Message = c.Message
	}
	return kube.RecordOnce(ctx, c.Kubernetes, component, e)
}
