package volume

import (
	"errors"
	"fmt"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend/cluster"
	"github.com/holdfast-storage/holdfast/kube"
)

// nodeObserved is all that a plan for a node depends on. It is from caches, except where it is said to be live.
type nodeObserved struct {
	name        string
	down        string               // why nothing can be done there now; empty while the agent is alive
	doubt       time.Duration        // how long the silence may still be due to this process
	heard       time.Time            // when the agent last renewed its Lease; zero if never
	node        *core.Node           // nil if there is none; live if it is gone
	storageNode *v1beta1.StorageNode // nil if there is none
	volumes     []*v1beta1.Volume
	snapshots   []*v1beta1.Snapshot
	moved       map[string]*v1beta1.StorageNode           // by the ID of a pool of this node: the other node that has it now
	claims      map[types.UID]*core.PersistentVolumeClaim // live, by volume, where needsClaim says so; nil if there is none
	reported    map[types.UID]bool                        // volumes whose loss or move has an event
}

// nodePlan is what to do about a node, in this order.
type nodePlan struct {
	renewals  []renewal
	node      *v1beta1.StorageNode // with the status to write; nil if it stays
	outage    outage               // of the node
	volumes   []step[*v1beta1.Volume]
	snapshots []step[*v1beta1.Snapshot]
	forget    *v1beta1.StorageNode // to delete, with its Lease, if nothing failed
	again     time.Duration
	err       error // what could not be planned
}

// step is what to do with one Volume or Snapshot.
type step[T v1beta1.Object] struct {
	object T // for mark: with the status to write
	action action
	to     *v1beta1.StorageNode        // handOver: the node that has the pool now
	reason string                      // giveUp
	claim  *core.PersistentVolumeClaim // giveUp: to recreate
	events []event                     // mark: once it is written; otherwise before, so that a crash does not lose them
}

type event struct {
	about           runtime.Object
	reason, message string
}

type action int

const (
	leave    action = iota
	report          // it cannot be decoded
	handOver        // its pool is on another node now
	giveUp          // it is not to come back
	mark            // its status does not say yet that the node is silent
)

// planNode decides about one node. A node whose agent is alive needs little: the agent corrects its own objects.
func planNode(o nodeObserved) (p nodePlan) {
	p.planRenewals(o)
	if !o.isSilent() {
		p.again = kube.Sooner(p.again, o.doubt)
		return p
	}
	p.outage = o.outage()
	if n := o.storageNode; n != nil && n.Unreadable() == nil && !p.outage.marked(n.Status.Conditions) { // its agent reports one that is unreadable
		p.node = n.DeepCopy()
		p.outage.mark(&p.node.Status.Conditions, n.Generation)
	}
	for _, v := range o.volumes {
		if s := p.outage.planVolume(v, o); s.action != leave {
			p.volumes = append(p.volumes, s)
		}
	}
	for _, s := range o.snapshots {
		if s := p.outage.planSnapshot(s, o); s.action != leave {
			p.snapshots = append(p.snapshots, s)
		}
	}
	if o.isForgotten() {
		p.forget = o.storageNode
	}
	return p
}

// planRenewals continues with the claims of volumes that were given up, even when the node is back.
func (p *nodePlan) planRenewals(o nodeObserved) {
	for _, v := range o.volumes {
		switch {
		case v.Annotations[renewalAnnotation] == "":
		case needsRenewal(v):
			r, err := planRenewal(v, o.claims[v.UID])
			if p.err = errors.Join(p.err, err); err == nil {
				p.renewals = append(p.renewals, r)
			}
			if !r.finish { // in case the claim ends before claims are watched
				p.again = kube.RetryRefused
			}
		case v.DeletionTimestamp != nil, o.down == "": // it was not given up, or came back just before
			p.renewals = append(p.renewals, renewal{volume: v, finish: true})
		}
	}
}

// isForgotten says whether the Node object was deleted and nothing is left that could come back, or write.
func (o nodeObserved) isForgotten() bool {
	n := o.storageNode
	return !o.isThere() && n != nil && n.Unreadable() == nil && len(o.volumes) == 0 && len(o.snapshots) == 0 && len(n.Spec.Discard) == 0 &&
		(len(n.Status.CephClients) == 0 || n.IsShutOut())
}

// isSilent says whether the agent does not answer, and not only this process does not hear it.
func (o nodeObserved) isSilent() bool { return o.down != "" && o.doubt == 0 }

// isThere says whether the node has an object. A site, such as an NFS server, has none and is always there: it is deleted
// only when it is empty, and its StorageNode with it.
func (o nodeObserved) isThere() bool { return o.node != nil || v1beta1.IsSite(o.name) }

// outage is why the agent of a node is silent.
type outage struct {
	reason string // NodeDown or NodeGone
	cause  string
}

func (o nodeObserved) outage() outage {
	heard := "has never renewed its Lease"
	if !o.heard.IsZero() {
		heard = "last renewed its Lease at " + o.heard.UTC().Format(time.RFC3339)
	}
	switch server, pool := v1beta1.ServerOf(o.name), v1beta1.CephPoolOf(o.name); {
	case server != "":
		return outage{v1beta1.ReasonNodeDown, fmt.Sprintf("the agent of NFS server %s %s", server, heard)}
	case pool != "":
		return outage{v1beta1.ReasonNodeDown, fmt.Sprintf("the agent of Ceph pool %s %s", pool, heard)}
	case o.node == nil:
		return outage{v1beta1.ReasonNodeGone, fmt.Sprintf("node %s was deleted; its agent %s", o.name, heard)}
	case kube.IsOutOfService(o.node):
		return outage{v1beta1.ReasonNodeGone, fmt.Sprintf("node %s has the taint %s; its agent %s", o.name, core.TaintNodeOutOfService, heard)}
	}
	return outage{v1beta1.ReasonNodeDown, fmt.Sprintf("the agent of node %s %s", o.name, heard)}
}

func (p outage) gone() bool { return p.reason == v1beta1.ReasonNodeGone }

// message is for what is kept.
func (p outage) message() string {
	if p.gone() {
		return p.cause + ". What it has comes back with it"
	}
	return p.cause
}

// marked says whether the condition already reports the outage; its message may be of an earlier moment.
func (p outage) marked(all []metav1.Condition) bool {
	c := meta.FindStatusCondition(all, v1beta1.ReadyCondition)
	return c != nil && c.Status == metav1.ConditionUnknown && c.Reason == p.reason
}

func (p outage) mark(all *[]metav1.Condition, generation int64) {
	meta.SetStatusCondition(all, metav1.Condition{
		Type: v1beta1.ReadyCondition, Status: metav1.ConditionUnknown, Reason: p.reason, Message: p.message(), ObservedGeneration: generation,
	})
}

// volumeAction decides about a Volume. movedTo is the node that has its pool now, nil if none has. A volume with data
// is given up only where its class or a request says so, and only when the node is certainly gone.
func (p outage) volumeAction(v *v1beta1.Volume, movedTo *v1beta1.StorageNode) action {
	made := v.Status.CreationTime != nil
	given := v.DeletionTimestamp != nil && (v.DeletionRequested() || !made) || made && v.Spec.NodeLossPolicy() == v1beta1.DeleteOnNodeLoss
	do := p.action(v, movedTo, given, made, v.Status.Phase, v.Status.Conditions)
	if do == giveUp && cluster.GivenUp(v) {
		return leave
	}
	return do
}

// snapshotAction decides about a Snapshot, which goes only when it is deleted.
func (p outage) snapshotAction(s *v1beta1.Snapshot, movedTo *v1beta1.StorageNode) action {
	made := s.Status.CreationTime != nil
	given := s.DeletionTimestamp != nil && (s.DeletionRequested() || !made)
	return p.action(s, movedTo, given, made, s.Status.Phase, s.Status.Conditions)
}

func (p outage) action(o v1beta1.Object, movedTo *v1beta1.StorageNode, given, made bool, phase v1beta1.Phase, conditions []metav1.Condition) action {
	switch {
	case movedTo != nil:
		return handOver
	case o.Unreadable() != nil:
		return report
	case p.gone() && given:
		return giveUp
	case p.marked(conditions) && (!p.unreachable(made, phase) || phase == v1beta1.PhaseUnreachable):
		return leave
	}
	return mark
}

func (p outage) planVolume(v *v1beta1.Volume, o nodeObserved) step[*v1beta1.Volume] {
	s := step[*v1beta1.Volume]{object: v, to: o.moved[v.Status.PoolID]}
	s.action = p.volumeAction(v, s.to)
	switch s.action {
	case report:
		s.events = []event{{v, v1beta1.ReasonUnreadable, kube.UnreadableMessage(v)}}
	case handOver:
		if !o.reported[v.UID] {
			s.events = movedEvents(v, s.to)
		}
	case giveUp:
		s.reason = "its node is gone and onNodeLoss is Delete: " + p.cause
		if v.DeletionTimestamp != nil {
			break
		}
		if claim := o.claims[v.UID]; claim != nil && renewable(claim, v) {
			s.claim = again(claim)
		}
		if !o.reported[v.UID] {
			message, renews := "the volume is given up because its node is gone and onNodeLoss is Delete: "+p.cause, s.claim != nil || v.Annotations[renewalAnnotation] != ""
			if renews {
				message += ". Its claim is recreated and gets a new, empty volume"
			}
			s.events = aboutVolume(v, renews, "VolumeGivenUp", message)
		}
	case mark:
		s.object = v.DeepCopy()
		if p.markStored(v.Status.CreationTime != nil, v.Generation, &s.object.Status.Phase, &s.object.Status.Conditions) {
			s.events = []event{{v, p.reason, p.message()}}
		}
	}
	return s
}

func (p outage) planSnapshot(s *v1beta1.Snapshot, o nodeObserved) step[*v1beta1.Snapshot] {
	next := step[*v1beta1.Snapshot]{object: s, to: o.moved[s.Status.PoolID], reason: "it was deleted while its node was gone"}
	next.action = p.snapshotAction(s, next.to)
	switch next.action {
	case report:
		next.events = []event{{s, v1beta1.ReasonUnreadable, kube.UnreadableMessage(s)}}
	case mark:
		next.object = s.DeepCopy()
		p.markStored(s.Status.CreationTime != nil, s.Generation, &next.object.Status.Phase, &next.object.Status.Conditions)
	}
	return next
}

// unreachable says whether something that exists is out of reach because its node is gone.
func (p outage) unreachable(made bool, phase v1beta1.Phase) bool {
	return p.gone() && made && phase != v1beta1.PhaseLost
}

// markStored changes the status of a Volume or a Snapshot.
func (p outage) markStored(made bool, generation int64, phase *v1beta1.Phase, conditions *[]metav1.Condition) (unreachable bool) {
	p.mark(conditions, generation)
	if unreachable = p.unreachable(made, *phase); unreachable {
		*phase = v1beta1.PhaseUnreachable
	}
	return unreachable
}

// aboutVolume is an event on a volume, and on its claim where it is known to be that of the volume.
func aboutVolume(v *v1beta1.Volume, isClaims bool, reason, message string) []event {
	events := []event{{v, reason, message}}
	if claim := v.Spec.Labels[v1beta1.ClaimNameLabel]; claim != "" && isClaims {
		events = append(events, event{&core.ObjectReference{
			Kind: "PersistentVolumeClaim", APIVersion: "v1", Name: claim, Namespace: v.Spec.Labels[v1beta1.ClaimNamespaceLabel],
		}, reason, message})
	}
	return events
}
