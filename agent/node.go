package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	watch "github.com/holdfast-storage/holdfast/api/client/informers/api/v1beta1"
	"github.com/holdfast-storage/holdfast/api/convert"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/kube"
)

// publisher writes the StorageNode after changes, at a limited rate.
type publisher struct {
	dirty    chan struct{}              // holds a token when there may be something to report
	reported *v1beta1.StorageNodeStatus // what the object has; nil if unknown

	mu   sync.Mutex
	last *v1beta1.StorageNodeStatus // what was reported last, even if the object was deleted

	addressTrouble string // the last that was logged
}

func (p *publisher) lastReported() *v1beta1.StorageNodeStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

func (p *publisher) wrote(s *v1beta1.StorageNodeStatus) (before *v1beta1.StorageNodeStatus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, p.last, p.reported = p.last, s, s
	return before
}

// change wakes the publisher.
func (p *publisher) change() { kube.Notify(p.dirty) }

func (a *Agent) nodeListener() watch.StorageNodeHandlerFuncs {
	return watch.StorageNodeHandlerFuncs{
		AddFunc:    a.sawNode,
		UpdateFunc: func(_, n *v1beta1.StorageNode) { a.sawNode(n) },
		DeleteFunc: func(watch.DeletedStorageNode) { a.node.change() },
	}
}

// sawNode handles what the controller has written: that the node is down, what to discard and what to restore.
func (a *Agent) sawNode(n *v1beta1.StorageNode) {
	if writtenOff(n.Status.Conditions) || n.Unreadable() != nil || n.Status.ObservedGeneration != n.Generation {
		a.node.change()
	}
	for _, d := range n.Spec.Discard {
		a.loop.Enqueue(key{d.Kind, d.Name})
	}
	for _, r := range n.Spec.Restore {
		if r.Error == "" {
			a.loop.Enqueue(key{v1beta1.SourceVolume, r.Name})
		}
	}
	if len(n.Spec.ReplacePools) > 0 {
		a.node.change()
	}
	empty := a.CephHost != nil && len(n.Status.CephClients) == 0 // perhaps made again, and without what the kernel has
	if empty || n.Spec.Fence != nil || len(n.Spec.Blocklist)+len(n.Status.Blocklist) > 0 {
		a.lookAtCephClients()
	}
}

func (a *Agent) publishRegularly(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.node.dirty:
		}
		if err := a.publish(ctx); err != nil && ctx.Err() == nil {
			a.log.Warn("the node's pools could not be published; trying again", "error", err)
			a.node.change()
		}
		rest := time.NewTimer(a.PublishEvery)
		select {
		case <-ctx.Done():
			rest.Stop()
			return
		case <-rest.C:
		}
	}
}

// publish writes the StorageNode if its status has changed.
func (a *Agent) publish(ctx context.Context) error {
	there := a.nodeObject()
	object := there
	if there == nil {
		a.node.reported = nil
		var err error
		if object, err = a.apply(ctx, nil); err != nil {
			return err
		}
	}
	a.recall() // pools may have been given up
	now := a.nodeStatus(ctx, object)
	if err := a.dropReplacements(ctx, now); err != nil {
		a.log.Warn("spec.replacePools could not be brought up to date; trying again", "error", err)
	}
	// The API server drops what it does not know until an upgrade has applied this release's definition.
	if there != nil && !writtenOff(there.Status.Conditions) && a.node.reported != nil && !newsOfNode(a.node.reported, now) && slices.Equal(there.Status.Addresses, now.Addresses) && there.Status.Columns.Snapshots == now.Columns.Snapshots {
		return nil
	}
	_, err := a.apply(ctx, now)
	if apierrors.IsNotFound(err) {
		if object, err = a.apply(ctx, nil); err == nil {
			now = a.nodeStatus(ctx, object)
			_, err = a.apply(ctx, now)
		}
	}
	if err != nil {
		return err
	}
	before := cmp.Or(a.node.wrote(now), &object.Status)
	a.recordPools(before, now)
	a.recordWarnings(before, now)
	a.recordHealth(a.aboutNode(), before.Conditions, now.Conditions)
	return nil
}

// apply writes the object itself, or its status if one is given, and returns it as stored.
func (a *Agent) apply(ctx context.Context, status *v1beta1.StorageNodeStatus) (*v1beta1.StorageNode, error) {
	o := map[string]any{"apiVersion": v1beta1.SchemeGroupVersion.String(), "kind": "StorageNode", "metadata": map[string]any{"name": a.Node}}
	var part []string
	if status != nil {
		o["status"], part = status, []string{"status"}
	}
	data, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	force := true
	options := metav1.PatchOptions{FieldManager: fieldManager, Force: &force}
	return a.Client.HoldfastV1beta1().StorageNodes().Patch(ctx, a.Node, types.ApplyPatchType, data, options, part...)
}

// nodeStatus returns the status for the object n, which the cache may not have yet.
func (a *Agent) nodeStatus(ctx context.Context, n *v1beta1.StorageNode) *v1beta1.StorageNodeStatus {
	s := &v1beta1.StorageNodeStatus{Version: a.Version, ObservedGeneration: n.Generation}
	reported := cmp.Or(a.node.lastReported(), &n.Status)
	s.Conditions = append(s.Conditions, reported.Conditions...)        // with the times of their last transitions
	meta.RemoveStatusCondition(&s.Conditions, v1beta1.FencedCondition) // the controller's
	s.Addresses, s.PublicKey = a.addresses(reported), a.PublicKey
	usable := 0
	var ailing []string
	for _, p := range a.Pools {
		pool, condition := a.poolStatus(ctx, p, reported)
		if _, number := v1beta1.InSpec(p.Name); number > 1 && pool.Reason == v1beta1.ReasonNoDisk && pool.ID == "" {
			continue // the node has fewer disks than the pool may have
		}
		if condition.Abnormal {
			ailing = append(ailing, condition.Message)
		}
		if pool.Message == "" {
			usable++
		}
		s.Pools = append(s.Pools, pool)
	}
	s.Trash = a.trashStatus(ctx, s.Pools, reported)
	if a.Foreign != nil {
		s.InlineVolumes, s.InlineVolumesAllowed = a.inlineStatus(reported), &a.ForeignAllowed
	}
	ready := metav1.Condition{Type: v1beta1.ReadyCondition, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonReady, ObservedGeneration: s.ObservedGeneration}
	switch {
	case len(a.Pools) == 0 && len(a.CephVolumes) == 0: // otherwise its pods use those of Ceph pools
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, v1beta1.ReasonNoPool, "no pool selects this node: in spec.pools of the StorageCluster none has nodeSelectorTerms that match it"
	case len(a.Pools) > 0 && usable == 0:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, s.Pools[0].Reason, "no pool can be used: "+s.Pools[0].Message
	case n.Unreadable() != nil:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, v1beta1.ReasonUnreadable, kube.UnreadableMessage(n)
	}
	meta.SetStatusCondition(&s.Conditions, ready)
	a.addAbilities(s)
	a.addWarnings(s)
	healthy := metav1.Condition{Type: v1beta1.HealthyCondition, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonHealthy, ObservedGeneration: s.ObservedGeneration}
	if len(ailing) > 0 {
		healthy.Status, healthy.Reason, healthy.Message = metav1.ConditionFalse, v1beta1.ReasonFileSystem, strings.Join(ailing, "; ")
	}
	meta.SetStatusCondition(&s.Conditions, healthy)
	s.SetColumns()
	return s
}

// inlineStatus is nil until inline volumes are counted, unless an earlier count was above 0: volumes may have been
// created since a count of 0.
func (a *Agent) inlineStatus(reported *v1beta1.StorageNodeStatus) *int32 {
	if count := a.inline.Load(); count >= 0 {
		return &count
	}
	if ptr.Deref(reported.InlineVolumes, 0) > 0 {
		return reported.InlineVolumes
	}
	return nil
}

// addresses keeps the last reported ones where the host's cannot be read.
func (a *Agent) addresses(reported *v1beta1.StorageNodeStatus) []string {
	if a.Addresses == nil {
		return nil
	}
	all, err := a.Addresses()
	if err == nil {
		if a.node.addressTrouble != "" {
			a.log.Info("the node's addresses are known again")
		}
		a.node.addressTrouble = ""
		return all[:min(len(all), v1beta1.MostAddresses)]
	}
	if trouble := err.Error(); trouble != a.node.addressTrouble { // it may be read every second
		a.log.Warn("the node's addresses could not be read; the previous ones are still reported, if there are any", "error", err)
		a.node.addressTrouble = trouble
	}
	return reported.Addresses
}

// poolStatus keeps the last numbers of a pool that is out of reach. It returns the condition of a pool that can be read.
func (a *Agent) poolStatus(ctx context.Context, c Pool, reported *v1beta1.StorageNodeStatus) (v1beta1.Pool, backend.Condition) {
	p := reportedPool(reported, c.Name)
	p.Path, p.Engine, p.Reason, p.Message = c.Path, convert.FromEngine(c.Engine), "", ""
	room, err := a.Backend.Capacity(ctx, c.Name)
	if err != nil {
		p.Reason, p.Message = convert.FromPoolError(err), err.Error()
	} else {
		convert.ShowCapacity(&p, room)
	}
	p.Volumes, p.Snapshots = 0, 0
	for _, v := range kube.AllIn[*v1beta1.Volume](a.watches.volumes.GetStore()) {
		if v.Status.Pool == c.Name && v.Status.Phase != v1beta1.PhaseLost {
			p.Volumes++
		}
	}
	for _, s := range kube.AllIn[*v1beta1.Snapshot](a.watches.snapshots.GetStore()) {
		if s.Status.Pool == c.Name && s.Status.Phase != v1beta1.PhaseLost {
			p.Snapshots++
		}
	}
	return p, room.Condition
}

// reportedPool returns a pool as it was reported, and one with nothing but its name if it was not.
func reportedPool(s *v1beta1.StorageNodeStatus, name string) v1beta1.Pool {
	last := v1beta1.Find(s.Pools, func(p v1beta1.Pool) bool { return p.Name == name })
	return ptr.Deref(last, v1beta1.Pool{Name: name})
}

// newsOfNode says whether a status must be written: for all but small changes of used and free space.
func newsOfNode(old, now *v1beta1.StorageNodeStatus) bool {
	same := now.DeepCopy()
	for i := range same.Pools {
		if i >= len(old.Pools) || old.Pools[i].Promised.Cmp(same.Pools[i].Promised) != 0 {
			return true
		}
		was, is, size := &old.Pools[i], &same.Pools[i], same.Pools[i].Capacity.Value()
		if slight(was.Used.Value(), is.Used.Value(), size) && slight(was.Available.Value(), is.Available.Value(), size) && slight(was.Largest.Value(), is.Largest.Value(), size) {
			is.Used, is.Available, is.Largest = was.Used, was.Available, was.Largest
		}
	}
	same.SetColumns()
	return !equality.Semantic.DeepEqual(old, same)
}

// slight says whether a change is below 0.5% of the pool.
func slight(old, now, size int64) bool { return max(old-now, now-old) < size/200 }
