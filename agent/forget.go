package agent

import (
	"fmt"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
)

// An object mirrors what is on the disk. One that is deleted without a request to delete its data is forgotten: the agent
// lets it go, the data stays, and the object is written again.

// tellForgotten says on the object, before it goes, that its data stays, and remembers it for the object that follows.
func (a *Agent) tellForgotten(o runtime.Object, k key, claim string) {
	a.log.Warn("an object was deleted without a request to delete its data, which stays; the object is written again", "kind", k.kind, "id", k.name)
	a.eventf(o, core.EventTypeWarning, v1.ReasonForgotten, "%s", forgotten(k, claim, a.Node))
	a.work.forgot(k)
}

// forgotten says what happened to an object, and how to delete what it stands for.
func forgotten(k key, claim, node string) string {
	how := fmt.Sprintf("delete the VolumeSnapshot that it was taken for, or run holdfast snapshots delete %s", k.name)
	if k.kind == v1.SourceVolume {
		how = fmt.Sprintf("run holdfast volumes delete %s", k.name)
		if claim != "" {
			how = fmt.Sprintf("delete the claim %s, or run holdfast volumes delete %s", claim, k.name)
		}
	}
	return fmt.Sprintf("the object was deleted, and nobody has asked for its data to be: %s %s stays on the disk of node %s, and its object is written again. To delete it for good, %s",
		k.kind, k.name, node, how)
}
