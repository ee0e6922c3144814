package agent

import (
	"fmt"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// An object mirrors what is on the disk. An object that is deleted without a request to delete its data is forgotten:
// the agent removes its finalizer, the data stays, and the object is written again.

// recordForgotten writes an event on the object, before it is gone, that its data stays, and remembers it for the next
// object.
func (a *Agent) recordForgotten(o runtime.Object, k key, claim string) {
	a.log.Warn("an object was deleted without a request to delete its data, which stays; the object is written again", "kind", k.kind, "id", k.name)
	a.Events.Eventf(o, core.EventTypeWarning, v1beta1.ReasonForgotten, "%s", forgotten(k, claim, a.Node))
	a.work.forgotten.Store(k, true)
}

// forgotten says what happened to an object, and how to delete its data.
func forgotten(k key, claim, node string) string {
	how := fmt.Sprintf("delete the VolumeSnapshot that it was taken for, or run holdfast snapshots delete %s", k.name)
	if k.kind == v1beta1.SourceVolume {
		how = fmt.Sprintf("run holdfast volumes delete %s", k.name)
		if claim != "" {
			how = fmt.Sprintf("delete the claim %s, or run holdfast volumes delete %s", claim, k.name)
		}
	}
	return fmt.Sprintf("the object was deleted without a request to delete its data: %s %s stays in the storage of %s, and its object is written again. To delete it for good, %s",
		k.kind, k.name, v1beta1.SiteOf(node), how)
}
