package web

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/report/facts"
)

// The types of a report are its own, so that a change of the kinds changes no field by accident. A field that the kinds
// have too has the same name, and a reference is theirs. A field without omitempty is in every report. Sizes are in bytes.

// Report is the answer at reportPath. Lists are in the order of the names, but for the last three.
type Report struct {
	Cluster    *Cluster    `json:"cluster"` // null without a StorageCluster
	Nodes      []Node      `json:"nodes"`   // with their pools; those that are not ready too
	Volumes    []Volume    `json:"volumes"`
	Snapshots  []Snapshot  `json:"snapshots"`
	NFSServers []NFSServer `json:"nfsServers"` // null if they cannot be read

	Findings   []facts.Finding   `json:"findings"`         // problems first
	Operations []facts.Operation `json:"operations"`       // upgrades and jobs first, then the longest
	Events     []facts.Event     `json:"events"`           // the newest first; null if they cannot be read
	Hidden     map[string]string `json:"hidden,omitempty"` // what cannot be read, and why
}

// Cluster is the StorageCluster and what its nodes can store.
type Cluster struct {
	Name          string               `json:"name"`
	Phase         v1beta1.ClusterPhase `json:"phase,omitempty"` // missing until the controller has looked at it once
	DesiredNodes  int                  `json:"desiredNodes"`
	ReadyNodes    int                  `json:"readyNodes"`
	Version       string               `json:"version,omitempty"`       // on the nodes, the newest while they differ
	OldestVersion string               `json:"oldestVersion,omitempty"` // while they differ
	Upgrade       string               `json:"upgrade,omitempty"`       // the StorageUpgrade in progress
	Usage                              // of all pools that can be used; what an NFS server has is within a volume, and not counted again
	Nodes         []v1beta1.NodeHealth `json:"nodes"` // that need attention
	Conditions    []metav1.Condition   `json:"conditions"`
}

// Usage of one pool, or of several.
type Usage struct {
	Capacity  int64 `json:"capacity"`  // of the file system
	Promised  int64 `json:"promised"`  // to volumes, snapshots and trash
	Used      int64 `json:"used"`      // of the file system, by anyone
	Available int64 `json:"available"` // can still be promised
}

// NodePhase is whether a node can be used.
type NodePhase string

const (
	NodeReady    NodePhase = "Ready"
	NodeNotReady NodePhase = "NotReady"
	NodeUnknown  NodePhase = "Unknown" // its agent is not heard of
)

// Node is what one node can store, one NFS server or one Ceph pool.
type Node struct {
	Name      string                       `json:"name"`
	ServerRef *v1beta1.NamespacedReference `json:"serverRef,omitempty"` // missing for a node
	CephPool  string                       `json:"cephPool,omitempty"`  // missing for a node
	Phase     NodePhase                    `json:"phase"`               // Unknown while the agent is not heard of
	Ready     bool                         `json:"ready"`
	Message   string                       `json:"message,omitempty"` // what is wrong and what to do
	Version   string                       `json:"version,omitempty"` // of its agent
	Volumes   int                          `json:"volumes"`
	Pools     []Pool                       `json:"pools"` // the first is the one for volumes that name none
}

// Pool of a node.
type Pool struct {
	Node      string                       `json:"node"`                // the StorageNode that has it
	ServerRef *v1beta1.NamespacedReference `json:"serverRef,omitempty"` // missing for the pool of a node
	CephPool  string                       `json:"cephPool,omitempty"`  // missing for the pool of a node
	Name      string                       `json:"name"`
	Path      string                       `json:"path,omitempty"`   // a directory of the node, or a place in a Ceph cluster
	Engine    string                       `json:"engine,omitempty"` // Image, Directory, RBD or CephFS
	Usage
	Smallest  int64  `json:"smallest"` // volume that can be made
	Largest   int64  `json:"largest"`  // volume that can be made
	Volumes   int    `json:"volumes"`
	Snapshots int    `json:"snapshots"`
	Message   string `json:"message,omitempty"` // what is wrong and what to do; the sizes are then the last known
}

// Volume on one node.
type Volume struct {
	Name         string                       `json:"name"` // its ID
	ClaimRef     *v1beta1.NamespacedReference `json:"claimRef,omitempty"`
	Node         string                       `json:"node"`                // the StorageNode that has it
	ServerRef    *v1beta1.NamespacedReference `json:"serverRef,omitempty"` // missing where it is on a node
	CephPool     string                       `json:"cephPool,omitempty"`  // missing where it is on a node
	Pool         string                       `json:"pool,omitempty"`      // that has it, or is to have it
	Phase        v1beta1.Phase                `json:"phase"`
	Size         int64                        `json:"size"` // 0 until it exists
	Used         int64                        `json:"used"` // of its pool
	Mode         v1beta1.Mode                 `json:"mode,omitempty"`
	FSType       string                       `json:"fsType,omitempty"` // missing for a block volume
	Provisioning v1beta1.Provisioning         `json:"provisioning,omitempty"`
	SourceRef    *v1beta1.SourceReference     `json:"sourceRef,omitempty"` // of its first content
	OnNodeLoss   v1beta1.OnNodeLoss           `json:"onNodeLoss"`
	Healthy      bool                         `json:"healthy"`                // as far as known
	Attention    bool                         `json:"attention"`              // it failed, is lost, unreachable or not healthy, or takes long
	Message      string                       `json:"message,omitempty"`      // what is wrong and what to do
	CreationTime *metav1.MicroTime            `json:"creationTime,omitempty"` // on disk
}

// Snapshot of a volume.
type Snapshot struct {
	Name         string                  `json:"name"`      // its ID
	SourceRef    v1beta1.SourceReference `json:"sourceRef"` // the Volume that was copied
	Node         string                  `json:"node"`      // the StorageNode that has it
	Pool         string                  `json:"pool,omitempty"`
	Phase        v1beta1.Phase           `json:"phase"`
	Size         int64                   `json:"size"` // of the smallest volume restored from it; 0 until it exists
	Used         int64                   `json:"used"` // kept from being freed, at most
	Mode         v1beta1.Mode            `json:"mode,omitempty"`
	FSType       string                  `json:"fsType,omitempty"`
	Group        string                  `json:"group,omitempty"`        // ID of the group copied at the same instant
	Healthy      bool                    `json:"healthy"`                // as far as known
	Attention    bool                    `json:"attention"`              // it failed, is lost, unreachable or not healthy, or takes long
	Message      string                  `json:"message,omitempty"`      // what is wrong and what to do
	CreationTime *metav1.MicroTime       `json:"creationTime,omitempty"` // the instant whose content it has
}

// NFSServer is one that serves volumes, or one claim.
type NFSServer struct {
	Namespace         string            `json:"namespace"`
	Name              string            `json:"name"`
	Phase             v1beta1.NFSPhase  `json:"phase,omitempty"`     // missing until the controller has looked at it once
	Endpoint          string            `json:"endpoint,omitempty"`  // address and port that clients mount from
	Path              string            `json:"path,omitempty"`      // that clients mount, where one claim is published
	Access            v1beta1.NFSAccess `json:"access,omitempty"`    // unless a volume says otherwise
	Node              string            `json:"node,omitempty"`      // that runs it
	ClaimName         string            `json:"claimName,omitempty"` // in its namespace, of its data
	Capacity          int64             `json:"capacity"`            // of its storage; 0 until known
	Promised          int64             `json:"promised"`            // to volumes and snapshots
	Exports           int               `json:"exports"`
	Clients           int               `json:"clients"` // with a session
	Level             facts.Level       `json:"level"`
	Message           string            `json:"message,omitempty"` // what is wrong and what to do
	CreationTimestamp time.Time         `json:"creationTimestamp"`
}

func showServer(o *v1beta1.NFSServer) NFSServer {
	s := NFSServer{
		Namespace: o.Namespace, Name: o.Name, Phase: o.Status.Phase, Endpoint: o.Status.Endpoint, Path: o.Status.Path, Access: o.Status.Access, Node: o.Status.Node, ClaimName: o.Status.ClaimName,
		Capacity: v1beta1.Bytes(o.Status.Capacity), Promised: v1beta1.Bytes(o.Status.Promised),
		Exports: int(o.Status.Exports), Clients: int(o.Status.Clients), CreationTimestamp: o.CreationTimestamp.UTC(),
	}
	s.Level, s.Message = facts.OfServer(o)
	return s
}

func usageOf(p *v1beta1.Pool) Usage {
	return Usage{p.Capacity.Value(), p.Promised.Value(), p.Used.Value(), p.Available.Value()}
}

func (u Usage) plus(o Usage) Usage {
	return Usage{u.Capacity + o.Capacity, u.Promised + o.Promised, u.Used + o.Used, u.Available + o.Available}
}

// serverOf is the NFS server that a StorageNode is the record of; nil for a node.
func serverOf(node string) *v1beta1.NamespacedReference {
	return v1beta1.ReferenceTo(v1beta1.ServerOf(node))
}

func showPool(node string, p *v1beta1.Pool) Pool {
	return Pool{
		Node: node, ServerRef: serverOf(node), CephPool: v1beta1.CephPoolOf(node), Name: p.Name, Path: p.Path, Engine: string(p.Engine), Usage: usageOf(p),
		Smallest: p.Smallest.Value(), Largest: p.Largest.Value(), Volumes: int(p.Volumes), Snapshots: int(p.Snapshots), Message: p.Message,
	}
}

func showNode(n *v1beta1.StorageNode) Node {
	ready, why := facts.Ready(n)
	if fence := facts.OfFence(n); fence != nil {
		why = fence.What
	}
	why = cmp.Or(why, facts.NodeUserRefused(n), facts.KeyRefused(n))
	s := Node{
		Name: n.Name, ServerRef: serverOf(n.Name), CephPool: v1beta1.CephPoolOf(n.Name), Phase: phaseOf[ready], Ready: ready == metav1.ConditionTrue,
		Message: why, Version: n.Status.Version, Pools: []Pool{},
	}
	for i := range n.Status.Pools {
		p := showPool(n.Name, &n.Status.Pools[i])
		s.Pools = append(s.Pools, p)
		s.Volumes += p.Volumes
	}
	return s
}

var phaseOf = map[metav1.ConditionStatus]NodePhase{
	metav1.ConditionTrue: NodeReady, metav1.ConditionFalse: NodeNotReady, metav1.ConditionUnknown: NodeUnknown,
}

func showVolume(v *v1beta1.Volume, now time.Time) Volume {
	s := Volume{
		Name: v.Name, ClaimRef: v.Spec.ClaimRef, Node: v.Spec.Node, ServerRef: serverOf(v.Spec.Node), CephPool: v1beta1.CephPoolOf(v.Spec.Node), Pool: v.PoolName(), Phase: orPending(v.Status.Phase),
		Size: v1beta1.Bytes(v.Status.Size), Used: v1beta1.Bytes(v.Status.Used),
		Mode: v.Status.Mode, FSType: v.Status.FSType, Provisioning: v.Status.Provisioning, OnNodeLoss: v.Spec.NodeLossPolicy(),
		SourceRef: v.Spec.SourceRef, CreationTime: v.Status.CreationTime,
	}
	s.Healthy, s.Message = wellbeing(v, v.Status.Conditions, v.Status.Error)
	_, s.Attention = facts.OfVolume(v, now)
	return s
}

// orPending is the phase of what no agent has seen yet: it waits for one.
func orPending(p v1beta1.Phase) v1beta1.Phase { return cmp.Or(p, v1beta1.PhasePending) }

func showSnapshot(o *v1beta1.Snapshot, now time.Time) Snapshot {
	s := Snapshot{
		Name: o.Name, SourceRef: o.Spec.SourceRef, Node: o.Spec.Node, Pool: o.Status.Pool, Phase: orPending(o.Status.Phase),
		Size: v1beta1.Bytes(o.Status.Size), Used: v1beta1.Bytes(o.Status.Used), Mode: o.Status.Mode, FSType: o.Status.FSType, Group: o.Status.Group,
		CreationTime: o.Status.CreationTime,
	}
	s.Healthy, s.Message = wellbeing(o, o.Status.Conditions, o.Status.Error)
	_, s.Attention = facts.OfSnapshot(o, now)
	return s
}

// wellbeing says whether it is healthy, with a message. Of an object that cannot be decoded nothing else is known.
func wellbeing(o v1beta1.Object, conditions []metav1.Condition, failed *v1beta1.Error) (well bool, message string) {
	if o.Unreadable() != nil {
		return false, kube.UnreadableMessage(o)
	}
	c := meta.FindStatusCondition(conditions, v1beta1.HealthyCondition)
	return c == nil || c.Status == metav1.ConditionTrue, facts.Said(conditions, failed)
}
