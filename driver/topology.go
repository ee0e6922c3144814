package driver

import (
	"cmp"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-storage/holdfast/backend"
)

// topology is where a volume or snapshot is: on the node that its backend names, or else on this one.
func (d *Driver) topology(node string) *csi.Topology {
	return &csi.Topology{Segments: map[string]string{TopologyKey: cmp.Or(node, d.NodeID)}}
}

// nodeOf returns the node that t names; a topology that names anything else is of no node of ours.
func nodeOf(t *csi.Topology) string {
	segments := t.GetSegments()
	if len(segments) != 1 {
		return ""
	}
	return segments[TopologyKey]
}

// candidates returns the nodes that may have what is asked for; none means any. It fails where this driver has none of
// them, so that the caller tries another. Preferred topologies are wishes: external-provisioner names there what the
// scheduler chose, and with --strict-topology names nothing else as requisite.
func (d *Driver) candidates(want *csi.TopologyRequirement) ([]string, error) {
	if len(want.GetRequisite()) == 0 {
		return nil, nil
	}
	var nodes []string
	for _, t := range want.GetRequisite() {
		if node := nodeOf(t); node != "" && (d.NodeID == "" || node == d.NodeID) {
			nodes = append(nodes, node)
		}
	}
	switch {
	case len(nodes) > 0:
		return nodes, nil
	case d.NodeID == "":
		return nil, fmt.Errorf("%w: none of the %d requisite topologies has the form {%s: NODE}", backend.ErrExhausted, len(want.GetRequisite()), TopologyKey)
	}
	return nil, fmt.Errorf("%w: this is node %s, and none of the %d requisite topologies is {%s: %s}",
		backend.ErrExhausted, d.NodeID, len(want.GetRequisite()), TopologyKey, d.NodeID)
}
