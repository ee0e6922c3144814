package held

import (
	"fmt"
	"strings"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
)

// mostNamed is how many nodes a message names.
const mostNamed = 5

// Text says what a spec would hide, where, and what to do.
func Text(all []Hidden) string { return text("so its pools and nodes are not changed", all) }

func text(consequence string, all []Hidden) string {
	lines := make([]string, 0, len(all))
	for _, h := range all {
		holds := kube.Count(int(h.Pool.Volumes), "volume")
		if h.Pool.Snapshots > 0 {
			holds += " and " + kube.Count(int(h.Pool.Snapshots), "snapshot")
		}
		lines = append(lines, fmt.Sprintf("%s: %s; pool %s holds %s on %s", h.Field, h.Why, h.Pool.Name, holds, some(h.Pool.Nodes)))
	}
	return "the spec would hide volumes, " + consequence + ": " + strings.Join(lines, ". ") +
		". Revert the change and add another pool, or delete or move the volumes first; " +
		"where they are in the new place already, name the pool in the annotation holdfast.dev/allow-hiding"
}

func some(nodes []string) string {
	if len(nodes) == 1 {
		if pool := v1beta1.CephPoolOf(nodes[0]); pool != "" {
			return "Ceph pool " + pool
		}
		return "node " + nodes[0]
	}
	return "nodes " + kube.Few(nodes, mostNamed, ", ", ", and %d more")
}
