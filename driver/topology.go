package driver

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-storage/holdfast/backend"
)

// topology is where a volume or snapshot is: on the node that its backend names, or else on this one.
func (d *Driver) topology(node string) *csi.Topology {
	return &csi.Topology{Segments: map[string]string{TopologyKey: cmp.Or(node, d.NodeID)}}
}

// clientKey is the label of the nodes that can use a volume in a Ceph cluster. It is known of each node while there are such
// pools, so that every volume can require it.
func clientKey(reach backend.Reach) string {
	if reach == backend.OneHost {
		return RBDVolumesKey
	}
	return CephFSVolumesKey
}

// clientTopology is where a volume in a Ceph cluster can be used: on the nodes whose kernel has the client.
func clientTopology(reach backend.Reach) *csi.Topology {
	return &csi.Topology{Segments: map[string]string{clientKey(reach): "true"}}
}

// sharedTopology is where a shared volume can be used: everywhere, or only on nodes that can mount such volumes, if the
// class asks for that. It is not said by itself: what is said cannot be taken back from a PersistentVolume, and nodes
// whose agent is of an older release, or that are only about to be made, do not have the label.
func sharedTopology(want *csi.TopologyRequirement) (all []*csi.Topology) {
	for _, t := range want.GetRequisite() {
		value, asked := t.GetSegments()[SharedVolumesKey]
		if !asked {
			return nil
		}
		where := &csi.Topology{Segments: map[string]string{SharedVolumesKey: value}}
		if !slices.ContainsFunc(all, func(other *csi.Topology) bool { return other.GetSegments()[SharedVolumesKey] == value }) {
			all = append(all, where)
		}
	}
	return all
}

// nodeOf returns the node that t names; a topology that names anything else is of no node of ours.
func nodeOf(t *csi.Topology) string {
	segments := t.GetSegments()
	if len(segments) != 1 {
		return ""
	}
	return segments[TopologyKey]
}

// candidates returns the nodes that may have the volume; none means any. It fails where this driver has none of them,
// so that the caller tries another. Preferred topologies are wishes: external-provisioner names there what the
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
		return nil, fmt.Errorf("%w: none of the %d nodes that Kubernetes offers for this claim runs Holdfast (none has the label %s): see spec.nodeSelectorTerms of the StorageCluster, and allowedTopologies of the class", backend.ErrExhausted, len(want.GetRequisite()), TopologyKey)
	}
	return nil, fmt.Errorf("%w: the volume must be on another node: none of the %d that it may be on has the label %s=%s",
		backend.ErrExhausted, len(want.GetRequisite()), TopologyKey, d.NodeID)
}
