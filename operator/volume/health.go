package volume

import (
	"context"
	"errors"
	"slices"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	watch "github.com/holdfast-storage/holdfast/api/client/informers/api/v1beta1"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// fresh is for how long after its start a fault is reported to the users of a volume by a process that was started
// later. Reporting it twice is better than not at all.
const fresh = 5 * time.Minute

// recordHealth writes an event about the claim of each volume in which something is found wrong, and about the pods that use
// it, until ctx ends: who runs an application looks at these, and not at Volumes.
func (l *leader) recordHealth(ctx context.Context) error {
	queue := workqueue.NewTyped[string]()
	context.AfterFunc(ctx, queue.ShutDown)
	informer := watch.ToTypedVolumeInformer(l.Watches.Holdfast.Holdfast().V1beta1().Volumes()).TypedInformer()
	registered, err := informer.AddTypedEventHandler(watch.VolumeHandlerFuncs{
		AddFunc: func(v *v1beta1.Volume) {
			if c := fault(v); c != nil && time.Since(c.LastTransitionTime.Time) < fresh {
				queue.Add(v.Name)
			}
		},
		UpdateFunc: func(old, now *v1beta1.Volume) {
			was, is := fault(old), fault(now)
			if is != nil && (was == nil || was.Reason != is.Reason) {
				queue.Add(now.Name)
			}
		},
	})
	if err != nil {
		return err
	}
	defer func() { _ = informer.RemoveEventHandler(registered) }()
	if !cache.WaitFor(ctx, "", registered.HasSyncedChecker()) {
		return errors.New("the volumes could not be listed before this process stopped leading")
	}
	for {
		name, over := queue.Get()
		if over {
			return nil
		}
		if v, err := l.volumes.Get(name); err == nil {
			if err := l.warnUsers(ctx, v); err != nil && ctx.Err() == nil {
				l.Log.Warn("the users of a volume could not get an event about its problem", "volume", name, "error", err)
			}
		}
		queue.Done(name)
	}
}

// fault is the condition of a volume that has something wrong in itself, or nil.
func fault(v *v1beta1.Volume) *metav1.Condition {
	c := meta.FindStatusCondition(v.Status.Conditions, v1beta1.HealthyCondition)
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != v1beta1.ReasonPoolErrors && !slices.Contains(v1beta1.OwnFaults, c.Reason) {
		return nil
	}
	return c
}

func (l *leader) warnUsers(ctx context.Context, v *v1beta1.Volume) error {
	c, of := fault(v), v.Spec.ClaimRef
	if c == nil || of == nil {
		return nil
	}
	claim, err := l.Kubernetes.CoreV1().PersistentVolumeClaims(of.Namespace).Get(ctx, of.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	l.warnf(claim, c.Reason, "volume %s: %s", v.Name, c.Message)
	pods, err := l.Kubernetes.CoreV1().Pods(of.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range pods.Items {
		if p := &pods.Items[i]; uses(p, of.Name) {
			l.warnf(p, c.Reason, "claim %s, volume %s: %s", of.Name, v.Name, c.Message)
		}
	}
	return nil
}

// uses says whether a pod that has not ended uses a claim, one that was made for it included.
func uses(p *core.Pod, claim string) bool {
	if p.Status.Phase == core.PodSucceeded || p.Status.Phase == core.PodFailed {
		return false
	}
	return slices.ContainsFunc(p.Spec.Volumes, func(v core.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim || v.Ephemeral != nil && p.Name+"-"+v.Name == claim
	})
}
