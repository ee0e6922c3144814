package volume

import (
	"context"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

const (
	// DefaultGarbageAge is how old a volume without a PersistentVolume and without a claim becomes.
	DefaultGarbageAge = 10 * time.Minute
	// DefaultGarbageEvery is how often such volumes are looked for.
	DefaultGarbageEvery = time.Minute
)

// boundAnnotation is on a volume that has had a PersistentVolume. It is never garbage: when its PersistentVolume is
// gone, its data is meant to stay.
const boundAnnotation = "holdfast.dev/bound"

func (l *leader) collectRegularly(ctx context.Context) {
	tick := time.NewTicker(l.GarbageEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := l.collect(ctx); err != nil && ctx.Err() == nil {
				l.Log.Warn("unused volumes could not be listed; retrying", "error", err)
			}
		}
	}
}

// collect removes volumes that were requested, never became a PersistentVolume, and whose claim is gone. It sends no
// request to the API server while there is no such candidate.
func (l *leader) collect(ctx context.Context) error {
	if err := l.FinishDeletions(ctx, l.GarbageEvery); err != nil {
		return err
	}
	var open []*v1beta1.Volume
	for _, v := range all(l.volumes.List) {
		if l.mayBeGarbage(v) {
			open = append(open, v)
		}
	}
	if len(open) == 0 {
		return nil
	}
	persistent, err := l.persistent(ctx)
	if err != nil {
		return err
	}
	for _, v := range open {
		switch {
		case persistent[v.Name], persistent[v.Spec.Labels[v1beta1.PersistentVolumeLabel]]:
			_, err = l.PatchVolume(ctx, v, map[string]any{"metadata": map[string]any{"annotations": map[string]any{boundAnnotation: "true"}}})
		case time.Since(v.CreationTimestamp.Time) > l.GarbageAge:
			err = l.collectOne(ctx, v)
		}
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

func (l *leader) mayBeGarbage(v *v1beta1.Volume) bool {
	return v.Unreadable() == nil && v.DeletionTimestamp == nil && v.Spec.Labels[v1beta1.ClaimNameLabel] != "" && v.Labels[v1beta1.AdoptedLabel] == "" &&
		v.Annotations[boundAnnotation] == "" && time.Since(v.CreationTimestamp.Time) > l.GarbageEvery
}

// persistent lists the names and volume handles of all PersistentVolumes.
func (l *leader) persistent(ctx context.Context) (map[string]bool, error) {
	const page = 500
	all := map[string]bool{}
	for next := ""; ; {
		list, err := l.Kubernetes.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{Limit: page, Continue: next})
		if err != nil {
			return nil, err
		}
		for _, p := range list.Items {
			all[p.Name] = true
			if p.Spec.CSI != nil {
				all[p.Spec.CSI.VolumeHandle] = true
			}
		}
		if next = list.Continue; next == "" {
			return all, nil
		}
	}
}

// collectOne removes a volume if its claim is gone, after looking once more for its PersistentVolume.
func (l *leader) collectOne(ctx context.Context, v *v1beta1.Volume) error {
	wanted, err := l.wanted(ctx, v)
	if err != nil || wanted {
		return err
	}
	name := v.Spec.Labels[v1beta1.PersistentVolumeLabel]
	if name == "" {
		name = v.Name
	}
	if _, err := l.Kubernetes.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return err // nil when it has come
	}
	l.Log.Info("removing a volume that was requested and never used: its claim is gone", "volume", v.Name, "claim", v.Spec.ClaimRef.String(), "node", v.Spec.Node)
	return l.RemoveUnused(ctx, v, "it was requested and never used: its claim "+v.Spec.ClaimRef.String()+" is gone")
}

// wanted says whether the claim of a volume may still become bound to it.
func (l *leader) wanted(ctx context.Context, v *v1beta1.Volume) (bool, error) {
	namespace, name := v.Spec.Labels[v1beta1.ClaimNamespaceLabel], v.Spec.Labels[v1beta1.ClaimNameLabel]
	claim, err := l.Kubernetes.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return true, err
	}
	other := claim.Spec.VolumeName != "" && claim.Spec.VolumeName != v.Spec.Labels[v1beta1.PersistentVolumeLabel]
	return !other, nil
}

// warnf writes an event.
func (l *leader) warnf(about runtime.Object, reason, format string, args ...any) {
	if l.Events != nil {
		l.Events.Eventf(about, core.EventTypeWarning, reason, format, args...)
	}
}
