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

// The answers are types of their own, so that a change of the kinds changes no answer by accident. What their fields
// mean is in their tags, from which the OpenAPI document is made. A field without omitempty is in every answer.

// List is one page of a list.
type List[T any] struct {
	Items     []T    `json:"items" doc:"The items of this page, in the order of their names."`
	Continue  string `json:"continue,omitempty" doc:"Give this as the parameter continue to get the next page. Missing on the last one."`
	Total     int    `json:"total" doc:"How many items there are on all pages."`
	Remaining int    `json:"remaining" doc:"How many items come after this page."`
}

// Cluster is the StorageCluster and what its nodes can store.
type Cluster struct {
	Name         string               `json:"name" doc:"Name of the StorageCluster."`
	Phase        v1beta1.ClusterPhase `json:"phase,omitempty" doc:"Where it stands. Missing until the controller has looked at it once."`
	DesiredNodes int                  `json:"desiredNodes" doc:"Number of nodes that are to store."`
	ReadyNodes   int                  `json:"readyNodes" doc:"Number of those that are ready."`
	Version      string               `json:"version,omitempty" doc:"Version of Holdfast on all nodes; the oldest and the newest while they differ."`
	Upgrade      string               `json:"upgrade,omitempty" doc:"The StorageUpgrade at work."`
	Room         Room                 `json:"room" doc:"The room of all pools of nodes that can be used. What an NFS server has is within a volume, and not counted again."`
	Volumes      int                  `json:"volumes" doc:"Number of volumes."`
	Snapshots    int                  `json:"snapshots" doc:"Number of snapshots."`
	Nodes        []Health             `json:"nodes" doc:"The nodes that are to store."`
	Conditions   []Condition          `json:"conditions" doc:"What is so and what is not."`
}

// Room is bytes of one pool or of several.
type Room struct {
	Capacity  int64 `json:"capacity" doc:"Bytes of the file system."`
	Promised  int64 `json:"promised" doc:"Bytes promised to volumes, snapshots and trash."`
	Used      int64 `json:"used" doc:"Bytes of the file system that are taken, by anyone."`
	Available int64 `json:"available" doc:"Bytes that can still be promised."`
}

// Health is a node as the cluster sees it.
type Health struct {
	Name    string `json:"name" doc:"Name of the node."`
	Ready   bool   `json:"ready" doc:"Whether all is well there."`
	Version string `json:"version,omitempty" doc:"Version of its agent."`
	Message string `json:"message,omitempty" doc:"What is wrong and what to do."`
}

// Condition of an object.
type Condition struct {
	Type    string                 `json:"type" doc:"What it is about."`
	Status  metav1.ConditionStatus `json:"status" doc:"Whether it is so."`
	Reason  string                 `json:"reason" doc:"Why, in one word."`
	Message string                 `json:"message" doc:"Why, for people."`
	Since   time.Time              `json:"since" doc:"When the status was another one last."`
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
	Name      string    `json:"name" doc:"Name of the node."`
	NFSServer string    `json:"nfsServer,omitempty" doc:"NAMESPACE/NAME of the NFS server that this is. Missing for a node."`
	CephPool  string    `json:"cephPool,omitempty" doc:"Name of the Ceph pool that this is. Missing for a node."`
	Phase     NodePhase `json:"phase" doc:"Whether it can be used; Unknown while its agent is not heard of."`
	Message   string    `json:"message,omitempty" doc:"What is wrong and what to do."`
	Version   string    `json:"version,omitempty" doc:"Version of its agent."`
	Volumes   int       `json:"volumes" doc:"Number of volumes in its pools."`
	Pools     []Pool    `json:"pools" doc:"Its pools; the first is the one for volumes that name none."`
}

// Pool of a node.
type Pool struct {
	Node      string `json:"node" doc:"The node that has it."`
	NFSServer string `json:"nfsServer,omitempty" doc:"NAMESPACE/NAME of the NFS server that has it. Missing for the pool of a node."`
	CephPool  string `json:"cephPool,omitempty" doc:"Its name, if it is in a Ceph cluster, which all nodes reach. Missing for the pool of a node."`
	Name      string `json:"name" doc:"Name of the pool, which nodes may share."`
	Path      string `json:"path,omitempty" doc:"Its directory on the node, or its place in a Ceph cluster."`
	Engine    string `json:"engine,omitempty" doc:"How a volume is kept: Image, Directory, RBD or CephFS."`
	Room      Room   `json:"room" doc:"Its room. While the pool is out of reach, what was known last."`
	Smallest  int64  `json:"smallest" doc:"Bytes of the smallest volume that can be made."`
	Largest   int64  `json:"largest" doc:"Bytes of the largest volume that can be made."`
	Volumes   int    `json:"volumes" doc:"Number of volumes in it."`
	Snapshots int    `json:"snapshots" doc:"Number of snapshots in it."`
	Message   string `json:"message,omitempty" doc:"What is wrong and what to do. Missing when the pool can be used."`
}

// Volume on one node.
type Volume struct {
	Name         string               `json:"name" doc:"ID of the volume, and name of its Volume object."`
	Claim        string               `json:"claim,omitempty" doc:"NAMESPACE/NAME of the claim it was made for."`
	Node         string               `json:"node" doc:"The node that has it."`
	NFSServer    string               `json:"nfsServer,omitempty" doc:"NAMESPACE/NAME of the NFS server that has it. Missing where it is on a node."`
	CephPool     string               `json:"cephPool,omitempty" doc:"Name of the Ceph pool that has it, which all nodes reach. Missing where it is on a node."`
	Pool         string               `json:"pool,omitempty" doc:"The pool that holds it, or is to hold it."`
	Phase        v1beta1.Phase        `json:"phase" doc:"Where it stands."`
	Size         int64                `json:"size" doc:"Bytes that it holds; 0 until it exists."`
	Used         int64                `json:"used" doc:"Bytes that it takes from its pool."`
	Mode         v1beta1.Mode         `json:"mode,omitempty" doc:"How it is used."`
	FSType       string               `json:"fsType,omitempty" doc:"Its file system, if it has one of its own."`
	Provisioning v1beta1.Provisioning `json:"provisioning,omitempty" doc:"When it takes its space."`
	Source       *Source              `json:"source,omitempty" doc:"What its first content came from."`
	OnNodeLoss   v1beta1.OnNodeLoss   `json:"onNodeLoss" doc:"What becomes of it when its node is gone for good."`
	Healthy      bool                 `json:"healthy" doc:"Whether it is all right, as far as known."`
	Attention    bool                 `json:"attention" doc:"Whether it needs attention: it failed, is lost or out of reach, is not healthy, or is being made or removed for long."`
	Message      string               `json:"message,omitempty" doc:"What is wrong and what to do."`
	Created      *time.Time           `json:"created,omitempty" doc:"When it became real."`
}

// Source of a volume.
type Source struct {
	Kind v1beta1.SourceKind `json:"kind" doc:"What it is."`
	Name string             `json:"name" doc:"Its ID."`
}

// Snapshot of a volume.
type Snapshot struct {
	Name      string        `json:"name" doc:"ID of the snapshot, and name of its Snapshot object."`
	Volume    string        `json:"volume" doc:"ID of the volume that was copied."`
	Node      string        `json:"node" doc:"The node that has it."`
	Pool      string        `json:"pool,omitempty" doc:"The pool that holds it."`
	Phase     v1beta1.Phase `json:"phase" doc:"Where it stands."`
	Size      int64         `json:"size" doc:"Bytes of the smallest volume restored from it; 0 until it exists."`
	Used      int64         `json:"used" doc:"Bytes that it keeps from being freed, at most."`
	Mode      v1beta1.Mode  `json:"mode,omitempty" doc:"How the volume was used."`
	FSType    string        `json:"fsType,omitempty" doc:"The file system of the volume."`
	Group     string        `json:"group,omitempty" doc:"ID of the group that was copied at the same instant."`
	Healthy   bool          `json:"healthy" doc:"Whether it is all right, as far as known."`
	Attention bool          `json:"attention" doc:"Whether it needs attention: it failed, is lost or out of reach, is not healthy, or is being made or removed for long."`
	Message   string        `json:"message,omitempty" doc:"What is wrong and what to do."`
	Created   *time.Time    `json:"created,omitempty" doc:"The instant whose content it has."`
}

// NFSServer is one that serves volumes, or one claim.
type NFSServer struct {
	Name     string            `json:"name" doc:"NAMESPACE/NAME of the NFSServer."`
	Phase    v1beta1.NFSPhase  `json:"phase,omitempty" doc:"Where it stands. Missing until the controller has looked at it once."`
	Endpoint string            `json:"endpoint,omitempty" doc:"Address and port that clients mount from."`
	Path     string            `json:"path,omitempty" doc:"What clients mount, where one claim is published."`
	Access   v1beta1.NFSAccess `json:"access,omitempty" doc:"What clients may do unless a volume says otherwise."`
	Node     string            `json:"node,omitempty" doc:"The node that runs it."`
	Claim    string            `json:"claim,omitempty" doc:"NAMESPACE/NAME of the claim that holds its data."`
	Capacity int64             `json:"capacity" doc:"Bytes of its storage; 0 until known."`
	Promised int64             `json:"promised" doc:"Bytes of it that are promised to volumes and snapshots."`
	Exports  int               `json:"exports" doc:"Number of its exports."`
	Clients  int               `json:"clients" doc:"Number of clients that have a session."`
	Level    facts.Level       `json:"level" doc:"How bad it is: problem, warning, note or fine."`
	Message  string            `json:"message,omitempty" doc:"What is wrong and what to do."`
	Created  time.Time         `json:"created" doc:"When the NFSServer was made."`
}

func showServer(o *v1beta1.NFSServer) NFSServer {
	s := NFSServer{
		Name: o.Namespace + "/" + o.Name, Phase: o.Status.Phase, Endpoint: o.Status.Endpoint, Path: o.Status.Path, Access: o.Status.Access, Node: o.Status.Node,
		Capacity: v1beta1.Bytes(o.Status.Capacity), Promised: v1beta1.Bytes(o.Status.Promised),
		Exports: int(o.Status.Exports), Clients: int(o.Status.Clients), Created: o.CreationTimestamp.UTC(),
	}
	if o.Status.ClaimName != "" {
		s.Claim = o.Namespace + "/" + o.Status.ClaimName
	}
	s.Level, s.Message = facts.OfServer(o)
	return s
}

func roomOf(p *v1beta1.Pool) Room {
	return Room{p.Capacity.Value(), p.Promised.Value(), p.Used.Value(), p.Available.Value()}
}

func (r Room) plus(o Room) Room {
	return Room{r.Capacity + o.Capacity, r.Promised + o.Promised, r.Used + o.Used, r.Available + o.Available}
}

func showPool(node string, p *v1beta1.Pool) Pool {
	return Pool{
		Node: node, NFSServer: v1beta1.ServerOf(node), CephPool: v1beta1.CephPoolOf(node), Name: p.Name, Path: p.Path, Engine: string(p.Engine), Room: roomOf(p),
		Smallest: p.Smallest.Value(), Largest: p.Largest.Value(), Volumes: int(p.Volumes), Snapshots: int(p.Snapshots), Message: p.Message,
	}
}

func showNode(n *v1beta1.StorageNode) Node {
	_, why := facts.Ready(n)
	if fence := facts.OfFence(n); fence != nil {
		why = fence.What
	}
	why = cmp.Or(why, facts.KeyRefused(n))
	s := Node{Name: n.Name, NFSServer: v1beta1.ServerOf(n.Name), CephPool: v1beta1.CephPoolOf(n.Name), Phase: phaseOf(n), Message: why, Version: n.Status.Version, Pools: []Pool{}}
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
		Name: v.Name, Claim: v.Spec.ClaimRef.String(), Node: v.Spec.Node, NFSServer: v1beta1.ServerOf(v.Spec.Node), CephPool: v1beta1.CephPoolOf(v.Spec.Node), Pool: v.PoolName(), Phase: orPending(v.Status.Phase),
		Size: v1beta1.Bytes(v.Status.Size), Used: v1beta1.Bytes(v.Status.Used),
		Mode: v.Status.Mode, FSType: v.Status.FSType, Provisioning: v.Status.Provisioning, OnNodeLoss: v.Spec.NodeLossPolicy(),
		Created: instant(v.Status.CreationTime),
	}
	if source := v.Spec.SourceRef; source != nil {
		s.Source = &Source{source.Kind, source.Name}
	}
	s.Healthy, s.Message = wellbeing(v, v.Status.Conditions, v.Status.Error)
	_, s.Attention = facts.OfVolume(v, now)
	return s
}

// orPending is the phase of what no agent has seen yet: it waits for one.
func orPending(p v1beta1.Phase) v1beta1.Phase { return cmp.Or(p, v1beta1.PhasePending) }

func showSnapshot(o *v1beta1.Snapshot, now time.Time) Snapshot {
	s := Snapshot{
		Name: o.Name, Volume: o.Spec.SourceRef.Name, Node: o.Spec.Node, Pool: o.Status.Pool, Phase: orPending(o.Status.Phase),
		Size: v1beta1.Bytes(o.Status.Size), Used: v1beta1.Bytes(o.Status.Used), Mode: o.Status.Mode, FSType: o.Status.FSType, Group: o.Status.Group,
		Created: instant(o.Status.CreationTime),
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
		shown = append(shown, Condition{c.Type, c.Status, c.Reason, c.Message, c.LastTransitionTime.UTC()})
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
