package fencing

import (
	"fmt"
	"slices"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
)

// orphansLast is how long after its fence the clients of a node whose StorageNode was deleted are kept out, if nothing shows that
// they have ended. Then their entries in Ceph expire.
const orphansLast = 30 * 24 * time.Hour

// serversEnd is how long an NFS server may serve from memory after its node was shut out: it writes to its disk every two seconds.
const serversEnd = 5 * time.Second

// mostListed: when a pool lists more nodes than this, the oldest entries of nodes that are gone are left to expire in Ceph, so
// that there is room for nodes that are to be shut out.
const mostListed = v1beta1.MostBlocklisted * 3 / 4

// plan is what to do about a node, in this order.
type plan struct {
	fence       *v1beta1.Fence // to write into its spec
	condition   *metav1.Condition
	requests    []request
	unfence     bool                       // to remove from its spec
	attachments []storage.VolumeAttachment // to delete
	pods        []*core.Pod                // to delete
	gracefully  bool                       // the kubelet of the node is there to end the pods
	again       time.Duration
}

type request struct {
	site  *v1beta1.StorageNode
	entry *v1beta1.BlocklistRequest // nil: none
	// of is when the fences that this was decided on were requested: another one is not ended by it.
	of []metav1.MicroTime
}

func planNode(o observed) plan {
	switch {
	case v1beta1.IsSite(o.name):
		return plan{}
	case !o.configured:
		return plan{again: lookAgain}
	case o.storageNode == nil || o.storageNode.Unreadable() != nil:
		return plan{requests: o.withoutNode()}
	case o.storageNode.Spec.Fence == nil:
		return o.planStart()
	case o.disabled || o.isBack():
		return o.planReturn()
	}
	return o.planFence()
}

// planStart requests the fence of a node that is lost.
func (o observed) planStart() plan {
	p := plan{requests: o.withoutNode()}
	if c := o.conditionNow(); c != nil && c.Reason == v1beta1.ReasonTooManySilent { // unless it still is so
		p.condition = o.condition(false, v1beta1.ReasonWithdrawn, "the node need not be shut out any more: its agent is alive, it has no clients or no pod that is chosen, or spec.fencing has changed")
	}
	if o.disabled || !o.usesCeph() {
		return p
	}
	reason, gone := v1beta1.ReasonNodeDown, o.isGone()
	switch {
	case gone:
		reason = v1beta1.ReasonNodeGone
	case o.node == nil:
		p.again = lookAgain
		return p
	case o.after == 0 || o.down == "":
		return p
	case kube.IsReady(o.node): // only its agent is silent, and its pods write as they may
		p.again = lookAgain
		return p
	case o.silent < o.after:
		p.again = o.after - o.silent
		return p
	case !slices.ContainsFunc(o.pods, func(p *core.Pod) bool { return o.isDoomed(p) && o.fencing.Heeds(p.Namespace) }):
		p.again = lookAgain
		return p
	case 2*o.silentNodes > o.nodes:
		p.again = lookAgain
		p.condition = o.condition(false, v1beta1.ReasonTooManySilent, fmt.Sprintf(
			"node %s has been silent for longer than spec.fencing.after, but so have been %d of %d nodes: that is rather a fault of the network or the control plane. If the node is shut down, give it the taint %s",
			o.name, o.silentNodes, o.nodes, core.TaintNodeOutOfService))
		return p
	}
	p.fence = &v1beta1.Fence{Reason: reason, RequestedAt: metav1.NewMicroTime(o.now.Truncate(time.Microsecond))}
	p.condition = o.condition(false, v1beta1.ReasonFencing, "its clients are to be shut out of the Ceph clusters: "+o.why())
	return p
}

// planFence shuts the node out, and then takes its volumes and pods from it.
func (o observed) planFence() plan {
	p := plan{again: lookAgain}
	requests, waiting, impossible := o.shutOut()
	p.requests = requests
	switch {
	case impossible != "":
		p.condition = o.condition(false, v1beta1.ReasonNotFenced, impossible)
	case waiting != "":
		p.condition = o.condition(false, v1beta1.ReasonFencing, waiting)
	case !o.storageNode.WasShutOut():
		p.fence = o.storageNode.Spec.Fence.DeepCopy()
		p.fence.ShutOutAt = new(metav1.NewMicroTime(o.now.Truncate(time.Microsecond)))
		p.again, p.condition = serversEnd, o.condition(false, v1beta1.ReasonFencing, "its clients are shut out, and an NFS server on it has a moment to end")
	case !o.storageNode.IsShutOut() && o.serversMayRun():
		p.again = serversEnd
	case !o.storageNode.IsShutOut():
		p.condition = o.condition(true, v1beta1.ReasonFenced, fmt.Sprintf(
			"its %d clients are shut out of the Ceph clusters, which have confirmed that: %s", len(o.storageNode.Status.CephClients), o.why()))
	default:
		p.attachments, p.pods = o.attachments, o.doomed()
	}
	return p
}

// serversMayRun says whether an NFS server on the node may not have noticed yet that its disk takes no writes any more.
func (o observed) serversMayRun() bool {
	at := o.storageNode.Spec.Fence.ShutOutAt
	if at == nil { // by a release that did not record it
		return false
	}
	since := o.now.Sub(at.Time)
	return since >= 0 && since < serversEnd
}

// planReturn lets a node in again that is back, once it has none of the clients that were shut out. Until then they stay shut out.
func (o observed) planReturn() plan {
	if o.storageNode.WasShutOut() && len(o.left()) > 0 {
		return o.planRelease()
	}
	p := plan{unfence: true}
	for _, s := range o.sites { // all of them: a request may have been written that the cache does not have yet
		of := []metav1.MicroTime{o.storageNode.Spec.Fence.RequestedAt}
		if e := s.Spec.BlocklistOf(o.name); e != nil { // of an earlier fence, whose end an object that was unreadable then has missed
			of = append(of, e.RequestedAt)
		}
		p.requests = append(p.requests, request{site: s.StorageNode, of: of})
	}
	if o.storageNode.WasShutOut() {
		p.condition = o.condition(false, v1beta1.ReasonReleased, "the node is back and has no client from before any more")
	} else { // no other node got anything of it
		p.condition = o.condition(false, v1beta1.ReasonWithdrawn, "the node is back before it was shut out")
	}
	return p
}

// planRelease waits until the kernel of a node that is back has none of its old clients.
func (o observed) planRelease() plan {
	requests, waiting, impossible := o.shutOut() // a pool whose StorageNode was deleted has lost them
	message := fmt.Sprintf("the node is back, and is let in again when its kernel has no client from before any more; it still has %s", strings.Join(o.left(), ", "))
	if users := o.users(); users != "" {
		message += ". These pods use volumes that they cannot reach any more, and must be deleted: " + users
	}
	return plan{
		again: lookAgain, requests: requests, pods: o.doomed(), gracefully: true,
		condition: o.condition(waiting == "" && impossible == "", v1beta1.ReasonReleasing, message),
	}
}

// shutOut says what is to be requested of the pools, what they have not confirmed yet, and what cannot be requested.
func (o observed) shutOut() (requests []request, waiting, impossible string) {
	var late, not []string
	for _, fsid := range o.clusters() {
		addresses, fault := o.addresses(fsid)
		if fault != "" {
			not = append(not, fault)
		}
		sites := slices.DeleteFunc(slices.Clone(o.sites), func(s site) bool { return s.fsid != fsid })
		if len(sites) == 0 {
			not = append(not, fmt.Sprintf("no pool in spec.pools of the StorageCluster is in the Ceph cluster %s, in which it has clients", fsid))
			continue
		}
		if len(addresses) == 0 {
			continue
		}
		for _, s := range sites { // the blocklist is that of the cluster, but each pool waits for the OSDs that have its volumes
			r := o.request(s, addresses)
			if r != nil {
				requests = append(requests, *r)
			}
			if r != nil || !s.hasConfirmed(o.name, addresses) {
				late = append(late, lateness(o.name, s))
			}
		}
	}
	if volumes := o.storageNode.Status.CephVolumes; len(volumes) > 0 && len(o.storageNode.Status.CephClients) == 0 {
		not = append(not, fmt.Sprintf("it has %d volumes in Ceph clusters, and no client is recorded that could be shut out. Make sure that the node is off, and shut its clients out as docs/fencing.md says", len(volumes)))
	}
	if len(late) > 0 {
		waiting = "waiting until all pools have confirmed that its clients are shut out: " + strings.Join(late, "; ")
	}
	return requests, waiting, strings.Join(not, "; ")
}

// usesCeph says whether the node has a client of a Ceph cluster, or a volume there, by its record.
func (o observed) usesCeph() bool {
	return len(o.storageNode.Status.CephClients)+len(o.storageNode.Status.CephVolumes) > 0
}

func (o observed) clusters() []string {
	var all []string
	for _, c := range o.storageNode.Status.CephClients {
		all = append(all, c.FSID)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// addresses of the node's clients in a cluster. A node that has written down the client of another would shut that out.
func (o observed) addresses(fsid string) (all []v1beta1.CephAddress, fault string) {
	for _, c := range o.storageNode.Status.CephClients {
		switch other := o.elsewhere[clientAddress{c.FSID, c.Address}]; {
		case c.FSID != fsid:
		case c.Address == "":
			fault = fmt.Sprintf("the address of %s in the Ceph cluster %s is not known, since the kernel of the node does not show it (CONFIG_DEBUG_FS). "+
				"Make sure that the node is off, and shut the client out as docs/fencing.md says", c.ID, c.FSID)
		case other != "":
			fault = fmt.Sprintf("its client %s, %s, is also recorded of node %s: one of the two records is wrong", c.ID, c.Address, other)
		default:
			all = append(all, c.Address)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), fault
}

// request is what to write into the spec of a pool, nil if it has it. An address that is there stays until the node is back.
func (o observed) request(s site, addresses []v1beta1.CephAddress) *request {
	entry := &v1beta1.BlocklistRequest{Node: o.name, RequestedAt: o.storageNode.Spec.Fence.RequestedAt}
	if clients := o.storageNode.Status.CephClients; len(clients) > 0 {
		entry.BootID = clients[0].BootID
	}
	if has := s.Spec.BlocklistOf(o.name); has != nil {
		if includes(has.Addresses, addresses) && !has.Expire && has.RequestedAt.Equal(&entry.RequestedAt) {
			return nil
		}
		entry.Addresses = slices.Clone(has.Addresses)
	}
	entry.Addresses = append(entry.Addresses, addresses...)
	slices.Sort(entry.Addresses)
	entry.Addresses = slices.Compact(entry.Addresses)
	return &request{site: s.StorageNode, entry: entry}
}

// withoutNode removes what pools keep out of a node that is not to be shut out, once the node was started again: no client
// outlives that. After a long time, or in a pool that lists too many, it leaves what there is to expire: the Node may have been
// deleted just now, and its machine may run.
func (o observed) withoutNode() (requests []request) {
	for _, s := range o.sites {
		e := s.Spec.BlocklistOf(o.name)
		if e == nil {
			continue
		}
		again := o.node != nil && e.BootID != "" && o.node.Status.NodeInfo.BootID != "" && o.node.Status.NodeInfo.BootID != e.BootID
		switch {
		case again, e.Expire && s.Status.BlocklistOf(o.name) == nil:
			requests = append(requests, request{site: s.StorageNode, of: []metav1.MicroTime{e.RequestedAt}})
		case !e.Expire && (o.now.Sub(e.RequestedAt.Time) > orphansLast || slices.Contains(s.surplus, o.name)):
			entry := e.DeepCopy()
			entry.Expire = true
			requests = append(requests, request{s.StorageNode, entry, []metav1.MicroTime{e.RequestedAt}})
		}
	}
	return requests
}

// left are the clients that the node still has. None is recorded while the fence is there but those that the kernel had before.
// Whether a pool still keeps them out says nothing: it is not known where its StorageNode was deleted.
func (o observed) left() (ids []string) {
	for _, c := range o.storageNode.Status.CephClients {
		ids = append(ids, c.ID)
	}
	return ids
}

// isGone says whether an administrator has said that the node is lost.
func (o observed) isGone() bool {
	if o.node == nil { // one that was deleted while it runs registers itself again
		return o.silent >= v1beta1.ShortestFencing
	}
	return kube.IsOutOfService(o.node)
}

func (o observed) isBack() bool {
	return o.node != nil && !kube.IsOutOfService(o.node) && kube.IsReady(o.node) && o.down == ""
}

func (o observed) conditionNow() *metav1.Condition {
	return meta.FindStatusCondition(o.storageNode.Status.Conditions, v1beta1.FencedCondition)
}

// needsPods says whether the plan depends on what only the API server knows.
func (o observed) needsPods() bool {
	n := o.storageNode
	return n != nil && n.Unreadable() == nil && o.configured && !o.disabled &&
		(n.WasShutOut() || n.Spec.Fence == nil && o.usesCeph() && o.after > 0 && o.silent >= o.after)
}

// isDoomed says whether a pod is deleted with its node. One that was created since is on a node that is back.
func (o observed) isDoomed(p *core.Pod) bool {
	f := o.storageNode.Spec.Fence
	return o.fencing.Chooses(p.Labels) && (f == nil || !p.CreationTimestamp.After(f.RequestedAt.Time))
}

func (o observed) doomed() (pods []*core.Pod) {
	for _, p := range o.pods {
		if o.isDoomed(p) && (!o.isBack() || p.DeletionTimestamp == nil) {
			pods = append(pods, p)
		}
	}
	return pods
}

// users are the pods from before that stay.
func (o observed) users() string {
	var names []string
	for _, p := range o.pods {
		if !o.isDoomed(p) && !p.CreationTimestamp.After(o.storageNode.Spec.Fence.RequestedAt.Time) {
			names = append(names, p.Namespace+"/"+p.Name)
		}
	}
	return strings.Join(names, ", ")
}

func (o observed) why() string {
	switch {
	case o.node == nil:
		return "its Node was deleted, and " + o.down
	case kube.IsOutOfService(o.node):
		return "its Node has the taint " + core.TaintNodeOutOfService
	case o.down != "":
		return o.down
	}
	return "its Node is not ready"
}

func (o observed) condition(fenced bool, reason, message string) *metav1.Condition {
	c := kube.NewCondition(v1beta1.FencedCondition, fenced, reason, kube.Shorten(message, kube.LongestMessage))
	c.ObservedGeneration = o.storageNode.Generation
	return &c
}

// hasConfirmed says whether the pool has answered the request that it has now: what it said to an earlier one may be over.
func (s site) hasConfirmed(node string, addresses []v1beta1.CephAddress) bool {
	r, e := s.Spec.BlocklistOf(node), s.Status.BlocklistOf(node)
	return r != nil && includes(r.Addresses, addresses) && e != nil && includes(e.Addresses, addresses) && r.RequestedAt.Equal(e.RequestedAt)
}

func lateness(node string, s site) string {
	said := "has not answered yet"
	if e := s.Status.BlocklistOf(node); e != nil && e.Message != "" {
		said = e.Message
	} else if ready := meta.FindStatusCondition(s.Status.Conditions, v1beta1.ReadyCondition); ready != nil && ready.Status != metav1.ConditionTrue {
		said = ready.Message
	}
	return fmt.Sprintf("pool %s: %s", v1beta1.CephPoolOf(s.Name), said)
}

func includes(all, some []v1beta1.CephAddress) bool {
	return !slices.ContainsFunc(some, func(a v1beta1.CephAddress) bool { return !slices.Contains(all, a) })
}
