package admin

import (
	"strings"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// Filter selects the rows of a list. An empty field selects all.
type Filter struct {
	Namespace string   // of the claim
	Claim     string   // NAME or NAMESPACE/NAME
	Node      string   // a StorageNode, or NAMESPACE/NAME of an NFSServer
	Pools     []string // one of these
	Volume    string   // of a Snapshot
	Unhealthy bool
}

// Row returns whether a Volume or Snapshot is selected.
func (f *Filter) Row(r Row) bool {
	return f.Place(r.ClaimRef, r.Node, r.Pool) && (f.Volume == "" || r.source() == f.Volume) && (!f.Unhealthy || r.unhealthy())
}

// Trashed returns whether a deleted volume is selected.
func (f *Filter) Trashed(t Trashed) bool { return f.Place(t.ClaimRef, t.Node, t.Pool) }

// Place returns whether something of a claim, on a node and in a pool, is selected.
func (f *Filter) Place(claim *v1beta1.NamespacedReference, node, pool string) bool {
	if claim == nil {
		claim = &v1beta1.NamespacedReference{}
	}
	return (f.Namespace == "" || claim.Namespace == f.Namespace) &&
		(f.Claim == "" || claim.Name == f.Claim || claim.String() == f.Claim) &&
		(f.Node == "" || node == f.NodeName()) &&
		(len(f.Pools) == 0 || v1beta1.NamesPool(strings.Join(f.Pools, ","), pool))
}

// NodeName returns the name of the StorageNode.
func (f *Filter) NodeName() string {
	if strings.Contains(f.Node, "/") {
		return v1beta1.NodeOfServer(f.Node)
	}
	return f.Node
}

func (r *Row) unhealthy() bool {
	return r.Condition != noProblem || r.Phase == v1beta1.PhaseFailed || r.Phase == v1beta1.PhaseUnreachable || r.Phase == v1beta1.PhaseLost
}
