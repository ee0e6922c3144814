package held

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// mostNamed is how many nodes a message names.
const mostNamed = 5

// Text says what a spec would hide, where, and what to do.
func Text(all []Hidden) string { return text("so its pools and nodes are not changed", all) }

func text(consequence string, all []Hidden) string {
	lines := make([]string, 0, len(all))
	for _, h := range all {
		lines = append(lines, fmt.Sprintf("%s: %s; pool %s holds %s on %s", h.Field, h.Why, h.Pool.Name,
			Count(int(h.Pool.Volumes), int(h.Pool.Snapshots)), some(h.Pool.Nodes)))
	}
	return "the spec would hide volumes, " + consequence + ": " + strings.Join(lines, ". ") +
		". Revert the change and add another pool, or delete or move the volumes first; " +
		"where they are in the new place already, name the pool in the annotation holdfast.dev/allow-hiding"
}

// Count formats numbers of volumes and snapshots.
func Count(volumes, snapshots int) string {
	text := plural(volumes, "volume")
	if snapshots > 0 {
		text += " and " + plural(snapshots, "snapshot")
	}
	return text
}

func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

func some(nodes []string) string {
	if len(nodes) > mostNamed {
		nodes = append(slices.Clone(nodes[:mostNamed]), fmt.Sprintf("and %d more", len(nodes)-mostNamed))
	}
	if len(nodes) == 1 {
		if pool := v1beta1.CephPoolOf(nodes[0]); pool != "" {
			return "Ceph pool " + pool
		}
		return "node " + nodes[0]
	}
	return "nodes " + strings.Join(nodes, ", ")
}
