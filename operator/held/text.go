package held

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
)

// mostNamed is how many nodes a message names.
const mostNamed = 5

// Text says what a spec would hide, where, and what to do.
func Text(all []Hidden) string { return text("so its pools and nodes are not changed", all) }

func text(consequence string, all []Hidden) string {
	lines, pools := make([]string, 0, len(all)), []string{}
	for _, h := range all {
		holds := kube.Count(int(h.Pool.Volumes), "volume")
		if h.Pool.Snapshots > 0 {
			holds += " and " + kube.Count(int(h.Pool.Snapshots), "snapshot")
		}
		lines = append(lines, fmt.Sprintf("%s: %s; pool %s holds %s on %s", h.Field, h.Why, h.Pool.Name, holds, some(h.Pool.Nodes)))
		pools = append(pools, h.Pool.Name)
	}
	slices.Sort(pools)
	return "the spec would hide volumes, " + consequence + ": " + strings.Join(lines, ". ") +
		". Revert the change and add another pool, or delete or move the volumes first; " +
		"where they are in the new place already: kubectl annotate storageclusters.holdfast.dev --all --overwrite " + v1beta1.AllowHidingAnnotation + "=" + strings.Join(slices.Compact(pools), ",")
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
