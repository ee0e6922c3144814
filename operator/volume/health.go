package volume

import (
	"fmt"
	"slices"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube/podstatus"
)

// fresh is how long after its start a fault is reported to the users of a volume by a process that was started
// later. Reporting it twice is better than not at all.
const fresh = 5 * time.Minute

// fault is what is wrong with one volume itself. Its reason is empty if nothing is.
type fault struct {
	volume types.UID
	reason string
}

func faultOf(v *v1beta1.Volume) fault {
	if c := faultCondition(v); c != nil {
		return fault{v.UID, c.Reason}
	}
	return fault{volume: v.UID}
}

// faultCondition is the condition of a volume that has something wrong in itself, or nil.
func faultCondition(v *v1beta1.Volume) *metav1.Condition {
	c := meta.FindStatusCondition(v.Status.Conditions, v1beta1.HealthyCondition)
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != v1beta1.ReasonPoolErrors && !slices.Contains(v1beta1.OwnFaults, c.Reason) {
		return nil
	}
	return c
}

// isNews says whether to report the fault of a volume to its users. last is what this process knew of the volume before.
func isNews(v *v1beta1.Volume, last fault, now time.Time) bool {
	c := faultCondition(v)
	switch {
	case c == nil || v.Spec.ClaimRef == nil:
		return false
	case last.volume != v.UID: // it is new here
		return now.Sub(c.LastTransitionTime.Time) < fresh
	}
	return last.reason != c.Reason
}

// planHealth is an event about the fault of a volume on its claim, and on the pods that use it: the owner of an
// application looks at these, and not at Volumes.
func planHealth(v *v1beta1.Volume, claim *core.PersistentVolumeClaim, pods []core.Pod) []event {
	c := faultCondition(v)
	events := []event{{claim, c.Reason, fmt.Sprintf("volume %s: %s", v.Name, c.Message)}}
	for i := range pods {
		if !podstatus.HasEnded(&pods[i]) && slices.Contains(podstatus.Claims(&pods[i]), claim.Name) {
			events = append(events, event{&pods[i], c.Reason, fmt.Sprintf("claim %s, volume %s: %s", claim.Name, v.Name, c.Message)})
		}
	}
	return events
}
