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

// The answers are types of their own, so that a change of the kinds changes no answer by accident. What the kinds have too
// has the same name, and a reference is theirs. What fields mean is in their tags, from which the OpenAPI document is made.
// A field without omitempty is in every answer.

// List is one page of a list.
type List[T any] struct {
	Items     []T    `json:"items" doc:"The items of this page, in the order of their names."`
	Continue  string `json:"continue,omitempty" doc:"Give this as the parameter continue to get the next page. Missing on the last one."`
	Total     int    `json:"total" doc:"How many items there are on all pages."`
	Remaining int    `json:"remaining" doc:"How many items come after this page."`
}

// Cluster is the StorageCluster and what its nodes can store.
type Cluster struct {
	Name          string               `json:"name" doc:"Name of the StorageCluster."`
	Phase         v1beta1.ClusterPhase `json:"phase,omitempty" doc:"Where it stands. Missing until the controller has looked at it once."`
	DesiredNodes  int                  `json:"desiredNodes" doc:"Number of nodes that are to store."`
	ReadyNodes    int                  `json:"readyNodes" doc:"Number of those that are ready."`
	Version       string               `json:"version,omitempty" doc:"Version of Holdfast on the nodes, the newest while they differ."`
	OldestVersion string               `json:"oldestVersion,omitempty" doc:"The oldest version of Holdfast on the nodes, while they differ."`
	Upgrade       string               `json:"upgrade,omitempty" doc:"The StorageUpgrade at work."`
	Usage
	Volumes    int          `json:"volumes" doc:"Number of volumes."`
	Snapshots  int          `json:"snapshots" doc:"Number of snapshots."`
	Nodes      []NodeHealth `json:"nodes" doc:"The nodes that are to store."`
	Conditions []Condition  `json:"conditions" doc:"What is so and what is not."`
}

// Usage is that of one pool, or of all pools of nodes that can be used. What an NFS server has is within a volume, and not
// counted again.
type Usage struct {
	Capacity  int64 `json:"capacity" doc:"Bytes of the file system; of a cluster, of those of all pools of nodes that can be used."`
	Promised  int64 `json:"promised" doc:"Bytes promised to volumes, snapshots and trash."`
	Used      int64 `json:"used" doc:"Bytes of the file system that are taken, by anyone."`
	Available int64 `json:"available" doc:"Bytes that can still be promised."`
}

// NodeHealth is a node as the cluster sees it.
type NodeHealth struct {
	Name    string `json:"name" doc:"Name of the node."`
	Ready   bool   `json:"ready" doc:"Whether all is well there."`
	Version string `json:"version,omitempty" doc:"Version of its agent."`
	Message string `json:"message,omitempty" doc:"What is wrong and what to do."`
}

// Condition of an object.
type Condition struct {
	Type               string                 `json:"type" doc:"What it is about."`
	Status             metav1.ConditionStatus `json:"status" doc:"Whether it is so."`
	ObservedGeneration int64                  `json:"observedGeneration,omitempty" doc:"Generation of the spec that it is about."`
	LastTransitionTime time.Time              `json:"lastTransitionTime" doc:"When the status was another one last."`
	Reason             string                 `json:"reason" doc:"Why, in one word."`
	Message            string                 `json:"message" doc:"Why, for people."`
}

// NodePhase is whether a node can be used.
type NodePhase string

const (
	NodeReady    NodePhase = "Ready"
	NodeNotReady NodePhase = "NotReady"
	NodeUnknown  NodePhase = "Unknown" // its agent is not heard of
)

var nodePhases = []NodePhase{NodeReady, NodeNotReady, NodeUnknown}

// Node is what one node can store, one NFS server or one Ceph pool.
type Node struct {
	Name      string                       `json:"name" doc:"Name of the StorageNode."`
	ServerRef *v1beta1.NamespacedReference `json:"serverRef,omitempty" doc:"The NFSServer that this is. Missing for a node."`
	CephPool  string                       `json:"cephPool,omitempty" doc:"Name of the Ceph pool that this is. Missing for a node."`
	Phase     NodePhase                    `json:"phase" doc:"Whether it can be used: its condition Ready. Unknown while its agent is not heard of."`
	Ready     bool                         `json:"ready" doc:"Whether it can be used."`
	Message   string                       `json:"message,omitempty" doc:"What is wrong and what to do."`
	Version   string                       `json:"version,omitempty" doc:"Version of its agent."`
	Volumes   int                          `json:"volumes" doc:"Number of volumes in its pools."`
	Pools     []Pool                       `json:"pools" doc:"Its pools; the first is the one for volumes that name none."`
}

// Pool of a node.
type Pool struct {
	Node      string                       `json:"node" doc:"The StorageNode that has it."`
	ServerRef *v1beta1.NamespacedReference `json:"serverRef,omitempty" doc:"The NFSServer that has it. Missing for the pool of a node."`
	CephPool  string                       `json:"cephPool,omitempty" doc:"Its name, if it is in a Ceph cluster, which all nodes reach. Missing for the pool of a node."`
	Name      string                       `json:"name" doc:"Name of the pool, which nodes may share."`
	Path      string                       `json:"path,omitempty" doc:"Its directory on the node, or its place in a Ceph cluster."`
	Engine    string                       `json:"engine,omitempty" doc:"How a volume is kept: Image, Directory, RBD or CephFS."`
	Usage
	Smallest  int64  `json:"smallest" doc:"Bytes of the smallest volume that can be made."`
	Largest   int64  `json:"largest" doc:"Bytes of the largest volume that can be made."`
	Volumes   int    `json:"volumes" doc:"Number of volumes in it."`
	Snapshots int    `json:"snapshots" doc:"Number of snapshots in it."`
	Message   string `json:"message,omitempty" doc:"What is wrong and what to do; the numbers are then those that were known last. Missing when the pool can be used."`
}

// Volume on one node.
type Volume struct {
	Name         string                       `json:"name" doc:"ID of the volume, and name of its Volume object."`
	ClaimRef     *v1beta1.NamespacedReference `json:"claimRef,omitempty" doc:"The claim it was made for."`
	Node         string                       `json:"node" doc:"The StorageNode that has it."`
	ServerRef    *v1beta1.NamespacedReference `json:"serverRef,omitempty" doc:"The NFSServer that has it. Missing where it is on a node."`
	CephPool     string                       `json:"cephPool,omitempty" doc:"Name of the Ceph pool that has it, which all nodes reach. Missing where it is on a node."`
	Pool         string                       `json:"pool,omitempty" doc:"The pool that holds it, or is to hold it."`
	Phase        v1beta1.Phase                `json:"phase" doc:"Where it stands."`
	Size         int64                        `json:"size" doc:"Bytes that it holds; 0 until it exists."`
	Used         int64                        `json:"used" doc:"Bytes that it takes from its pool."`
	Mode         v1beta1.Mode                 `json:"mode,omitempty" doc:"How it is used."`
	FSType       string                       `json:"fsType,omitempty" doc:"Its file system, if it has one of its own."`
	Provisioning v1beta1.Provisioning         `json:"provisioning,omitempty" doc:"When it takes its space."`
	SourceRef    *v1beta1.SourceReference     `json:"sourceRef,omitempty" doc:"What its first content came from."`
	OnNodeLoss   v1beta1.OnNodeLoss           `json:"onNodeLoss" doc:"What becomes of it when its node is gone for good."`
	Healthy      bool                         `json:"healthy" doc:"Whether it is all right, as far as known."`
	Attention    bool                         `json:"attention" doc:"Whether it needs attention: it failed, is lost or out of reach, is not healthy, or is being made or removed for long."`
	Message      string                       `json:"message,omitempty" doc:"What is wrong and what to do."`
	CreationTime *time.Time                   `json:"creationTime,omitempty" doc:"When it was created on disk."`
}

// Snapshot of a volume.
type Snapshot struct {
	Name         string                  `json:"name" doc:"ID of the snapshot, and name of its Snapshot object."`
	SourceRef    v1beta1.SourceReference `json:"sourceRef" doc:"The Volume that was copied."`
	Node         string                  `json:"node" doc:"The StorageNode that has it."`
	Pool         string                  `json:"pool,omitempty" doc:"The pool that holds it."`
	Phase        v1beta1.Phase           `json:"phase" doc:"Where it stands."`
	Size         int64                   `json:"size" doc:"Bytes of the smallest volume restored from it; 0 until it exists."`
	Used         int64                   `json:"used" doc:"Bytes that it keeps from being freed, at most."`
	Mode         v1beta1.Mode            `json:"mode,omitempty" doc:"How the volume was used."`
	FSType       string                  `json:"fsType,omitempty" doc:"The file system of the volume."`
	Group        string                  `json:"group,omitempty" doc:"ID of the group that was copied at the same instant."`
	Healthy      bool                    `json:"healthy" doc:"Whether it is all right, as far as known."`
	Attention    bool                    `json:"attention" doc:"Whether it needs attention: it failed, is lost or out of reach, is not healthy, or is being made or removed for long."`
	Message      string                  `json:"message,omitempty" doc:"What is wrong and what to do."`
	CreationTime *time.Time              `json:"creationTime,omitempty" doc:"The instant whose content it has."`
}

// NFSServer is one that serves volumes, or one claim.
type NFSServer struct {
	Namespace         string            `json:"namespace" doc:"Namespace of the NFSServer."`
	Name              string            `json:"name" doc:"Name of the NFSServer."`
	Phase             v1beta1.NFSPhase  `json:"phase,omitempty" doc:"Where it stands. Missing until the controller has looked at it once."`
	Endpoint          string            `json:"endpoint,omitempty" doc:"Address and port that clients mount from."`
	Path              string            `json:"path,omitempty" doc:"What clients mount, where one claim is published."`
	Access            v1beta1.NFSAccess `json:"access,omitempty" doc:"What clients may do unless a volume says otherwise."`
	Node              string            `json:"node,omitempty" doc:"The node that runs it."`
	ClaimName         string            `json:"claimName,omitempty" doc:"The claim in its namespace that holds its data."`
	Capacity          int64             `json:"capacity" doc:"Bytes of its storage; 0 until known."`
	Promised          int64             `json:"promised" doc:"Bytes of it that are promised to volumes and snapshots."`
	Exports           int               `json:"exports" doc:"Number of its exports."`
	Clients           int               `json:"clients" doc:"Number of clients that have a session."`
	Level             facts.Level       `json:"level" doc:"How bad it is: problem, warning, note or fine."`
	Message           string            `json:"message,omitempty" doc:"What is wrong and what to do."`
	CreationTimestamp time.Time         `json:"creationTimestamp" doc:"When the NFSServer was made."`
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
	_, why := facts.Ready(n)
	if fence := facts.OfFence(n); fence != nil {
		why = fence.What
	}
	why = cmp.Or(why, facts.NodeUserRefused(n), facts.KeyRefused(n))
	phase := phaseOf(n)
	s := Node{Name: n.Name, ServerRef: serverOf(n.Name), CephPool: v1beta1.CephPoolOf(n.Name), Phase: phase, Ready: phase == NodeReady, Message: why, Version: n.Status.Version, Pools: []Pool{}}
	for i := range n.Status.Pools {
		p := showPool(n.Name, &n.Status.Pools[i])
		s.Pools = append(s.Pools, p)
		s.Volumes += p.Volumes
	}
	return s
}

var phaseOfReady = map[metav1.ConditionStatus]NodePhase{
	metav1.ConditionTrue: NodeReady, metav1.ConditionFalse: NodeNotReady, metav1.ConditionUnknown: NodeUnknown,
}

func phaseOf(n *v1beta1.StorageNode) NodePhase {
	ready, _ := facts.Ready(n)
	return phaseOfReady[ready]
}

func showVolume(v *v1beta1.Volume, now time.Time) Volume {
	s := Volume{
		Name: v.Name, ClaimRef: v.Spec.ClaimRef, Node: v.Spec.Node, ServerRef: serverOf(v.Spec.Node), CephPool: v1beta1.CephPoolOf(v.Spec.Node), Pool: v.PoolName(), Phase: orPending(v.Status.Phase),
		Size: v1beta1.Bytes(v.Status.Size), Used: v1beta1.Bytes(v.Status.Used),
		Mode: v.Status.Mode, FSType: v.Status.FSType, Provisioning: v.Status.Provisioning, OnNodeLoss: v.Spec.NodeLossPolicy(),
		SourceRef: v.Spec.SourceRef, CreationTime: instant(v.Status.CreationTime),
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
		CreationTime: instant(o.Status.CreationTime),
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

func showConditions(all []metav1.Condition) []Condition {
	shown := []Condition{}
	for _, c := range all {
		shown = append(shown, Condition{c.Type, c.Status, c.ObservedGeneration, c.LastTransitionTime.UTC(), c.Reason, c.Message})
	}
	return shown
}

func instant(t *metav1.MicroTime) *time.Time {
	if t == nil {
		return nil
	}
	utc := t.UTC()
	return &utc
}
