package agent

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// watchSharedVolumes checks regularly whether they can be mounted here: an NFS client may be installed at any time.
func (a *Agent) watchSharedVolumes(ctx context.Context) {
	tick := time.NewTicker(a.SurveyEvery)
	defer tick.Stop()
	for {
		a.checkSharedVolumes()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (a *Agent) checkSharedVolumes() {
	now := &metav1.Condition{Type: v1beta1.SharedVolumesCondition, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonReady}
	if reason, err := a.SharedVolumes(); err != nil {
		now.Status, now.Reason, now.Message = metav1.ConditionFalse, reason, err.Error()
	}
	last := a.sharedVolumes.Swap(now)
	if last != nil && *last == *now {
		return
	}
	a.log.Info("checked whether shared volumes can be mounted on this node", "can", now.Status, "reason", now.Reason, "message", now.Message)
	a.node.change()
}

func (a *Agent) addSharedVolumes(s *v1beta1.StorageNodeStatus) {
	c := a.sharedVolumes.Load()
	if c == nil { // not looked at yet
		return
	}
	now := *c
	now.ObservedGeneration = s.ObservedGeneration
	meta.SetStatusCondition(&s.Conditions, now)
}
