package driver

import (
	"fmt"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-storage/holdfast/backend"
)

// topology is where every volume and snapshot of this driver is.
func (d *Driver) topology() *csi.Topology {
	return &csi.Topology{Segments: map[string]string{TopologyKey: d.NodeID}}
}

// isHere says whether t names this node and nothing else.
func (d *Driver) isHere(t *csi.Topology) bool {
	segments := t.GetSegments()
	return len(segments) == 1 && segments[TopologyKey] == d.NodeID
}

// checkTopology refuses what must be elsewhere, so that the caller tries another node. Preferred topologies are
// wishes, and this driver has one place only.
func (d *Driver) checkTopology(want *csi.TopologyRequirement) error {
	if len(want.GetRequisite()) == 0 || slices.ContainsFunc(want.GetRequisite(), d.isHere) {
		return nil
	}
	return fmt.Errorf("%w: this is node %s, and none of the %d requisite topologies is {%s: %s}",
		backend.ErrExhausted, d.NodeID, len(want.GetRequisite()), TopologyKey, d.NodeID)
}
