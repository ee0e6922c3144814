package agent

import (
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
	"k8s.io/client-go/util/retry"

	holdfastv1 "github.com/holdfast-storage/holdfast/api/client/informers/api/v1"
	"github.com/holdfast-storage/holdfast/api/convert"
	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/kube"
)

// publisher writes the StorageNode when something has changed, and not too often.
type publisher struct {
	dirty chan struct{}         // holds a token when there may be something to tell
	told  *v1.StorageNodeStatus // what the object has; nil when that is not known

	mu   sync.Mutex
	last *v1.StorageNodeStatus // what was told, even if the object was deleted

	addressTrouble string // that was logged last
}

func (p *publisher) lastTold() *v1.StorageNodeStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

func (p *publisher) wrote(s *v1.StorageNodeStatus) (before *v1.StorageNodeStatus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, p.last, p.told = p.last, s, s
	return before
}

// change says that there may be something to tell.
func (p *publisher) change() {
	select {
	case p.dirty <- struct{}{}:
	default:
	}
}

func (a *Agent) nodeListener() holdfastv1.StorageNodeHandlerFuncs {
	return holdfastv1.StorageNodeHandlerFuncs{
		AddFunc:    a.sawNode,
		UpdateFunc: func(_, n *v1.StorageNode) { a.sawNode(n) },
		DeleteFunc: func(holdfastv1.DeletedStorageNode) { a.node.change() },
	}
}

// sawNode notices what the controller has written: that the node is not heard of, what to discard and what to restore.
func (a *Agent) sawNode(n *v1.StorageNode) {
	if writtenOff(n.Status.Conditions) || n.Unreadable() != nil {
		a.node.change()
	}
	for _, d := range n.Spec.Discard {
		a.work.add(key{d.Kind, d.Name})
	}
	for _, r := range n.Spec.Restore {
		if r.Error == "" {
			a.work.add(key{v1.SourceVolume, r.Name})
		}
	}
	if len(n.Spec.ReplacePools) > 0 {
		a.node.change()
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

// publish writes the StorageNode if there is news.
func (a *Agent) publish(ctx context.Context) error {
	there := a.nodeObject()
	if there == nil {
		a.node.told = nil
		if err := a.apply(ctx, nil); err != nil {
			return err
		}
	}
	a.recall() // pools may have been given up
	now := a.nodeStatus(ctx)
	if err := a.dropReplacements(ctx, now); err != nil {
		a.log.Warn("spec.replacePools could not be brought up to date; trying again", "error", err)
	}
	// Before an upgrade has brought the kind of this release, the API server drops addresses.
	if there != nil && !writtenOff(there.Status.Conditions) && a.node.told != nil && !newsOfNode(a.node.told, now) && slices.Equal(there.Status.Addresses, now.Addresses) {
		return nil
	}
	err := a.apply(ctx, now)
	if apierrors.IsNotFound(err) {
		if err = a.apply(ctx, nil); err == nil {
			err = a.apply(ctx, now)
		}
	}
	if err == nil {
		before := a.node.wrote(now)
		if before == nil && there != nil {
			before = &there.Status
		}
		a.tellPools(before, now)
		if before == nil {
			before = &v1.StorageNodeStatus{}
		}
		a.tellHealth(a.aboutNode(), before.Conditions, now.Conditions)
	}
	return err
}

// apply writes the object itself, or its status if one is given.
func (a *Agent) apply(ctx context.Context, status *v1.StorageNodeStatus) error {
	o := map[string]any{"apiVersion": v1.SchemeGroupVersion.String(), "kind": "StorageNode", "metadata": map[string]any{"name": a.Node}}
	var part []string
	if status != nil {
		o["status"], part = status, []string{"status"}
	}
	data, err := json.Marshal(o)
	if err != nil {
		return err
	}
	force := true
	options := metav1.PatchOptions{FieldManager: fieldManager, Force: &force}
	_, err = a.Client.HoldfastV1().StorageNodes().Patch(ctx, a.Node, types.ApplyPatchType, data, options, part...)
	return err
}

func (a *Agent) nodeStatus(ctx context.Context) *v1.StorageNodeStatus {
	s := &v1.StorageNodeStatus{Version: a.Version}
	if n := a.nodeObject(); n != nil {
		s.ObservedGeneration = n.Generation
	}
	told := a.node.lastTold()
	if n := a.nodeObject(); told == nil && n != nil {
		told = &n.Status
	}
	if told != nil {
		s.Conditions = append(s.Conditions, told.Conditions...) // they keep the time of their last transition
	}
	s.Addresses = a.addresses(told)
	usable := 0
	var ailing []string
	for _, p := range a.Pools {
		pool, condition := a.poolStatus(ctx, p, told)
		if condition.Abnormal {
			ailing = append(ailing, condition.Message)
		}
		if pool.Message == "" {
			usable++
		}
		s.Pools = append(s.Pools, pool)
	}
	s.Trash = a.trashStatus(ctx, s.Pools, told)
	if a.Foreign != nil {
		s.InlineVolumes, s.InlineVolumesAllowed = a.inlineStatus(told), &a.ForeignAllowed
	}
	ready := metav1.Condition{Type: v1.ReadyCondition, Status: metav1.ConditionTrue, Reason: v1.ReasonReady, ObservedGeneration: s.ObservedGeneration}
	switch {
	case len(a.Pools) == 0:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, v1.ReasonNoPool, "no pool is for this node: in spec.pools of the StorageCluster none has nodeSelectorTerms that match it"
	case usable == 0:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, s.Pools[0].Reason, "no pool can be used: "+s.Pools[0].Message
	case a.nodeObject() != nil && a.nodeObject().Unreadable() != nil:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, v1.ReasonUnreadable, kube.UnreadableMessage(a.nodeObject())
	}
	meta.SetStatusCondition(&s.Conditions, ready)
	a.addSharedVolumes(s)
	healthy := metav1.Condition{Type: v1.HealthyCondition, Status: metav1.ConditionTrue, Reason: v1.ReasonHealthy, ObservedGeneration: s.ObservedGeneration}
	if len(ailing) > 0 {
		healthy.Status, healthy.Reason, healthy.Message = metav1.ConditionFalse, v1.ReasonFileSystem, strings.Join(ailing, "; ")
	}
	meta.SetStatusCondition(&s.Conditions, healthy)
	s.SetColumns()
	return s
}

// inlineStatus is nil until they were counted, unless there were some before: that there were none says nothing of those
// that were made since.
func (a *Agent) inlineStatus(told *v1.StorageNodeStatus) *int32 {
	if count := a.inline.Load(); count >= 0 {
		return &count
	}
	if told != nil && told.InlineVolumes != nil && *told.InlineVolumes > 0 {
		return told.InlineVolumes
	}
	return nil
}

// addresses keeps what was told last where the host does not tell them.
func (a *Agent) addresses(told *v1.StorageNodeStatus) []string {
	if a.Addresses == nil {
		return nil
	}
	all, err := a.Addresses()
	if err == nil {
		if a.node.addressTrouble != "" {
			a.log.Info("the node's addresses are known again")
		}
		a.node.addressTrouble = ""
		return all[:min(len(all), v1.MostAddresses)]
	}
	if trouble := err.Error(); trouble != a.node.addressTrouble { // it is asked for every second
		a.log.Warn("the node's addresses are not known; those of before are told, if there are", "error", err)
		a.node.addressTrouble = trouble
	}
	if told == nil {
		return nil
	}
	return told.Addresses
}

// poolStatus keeps the last numbers of a pool that is out of reach. The condition is that of one which is not.
func (a *Agent) poolStatus(ctx context.Context, c Pool, told *v1.StorageNodeStatus) (v1.Pool, backend.Condition) {
	p := v1.Pool{Name: c.Name}
	if told != nil {
		for _, last := range told.Pools {
			if last.Name == c.Name {
				p = last
			}
		}
	}
	p.Path, p.Engine, p.Reason, p.Message = c.Path, c.Engine, "", ""
	room, err := a.Backend.Capacity(ctx, c.Name)
	if err != nil {
		p.Reason, p.Message = convert.FromPoolError(err), err.Error()
	} else {
		convert.ShowCapacity(&p, room)
	}
	p.Volumes, p.Snapshots = 0, 0
	for _, v := range listed[v1.Volume](a.watches.volumes) {
		if v.Status.Pool == c.Name && v.Status.Phase != v1.PhaseLost {
			p.Volumes++
		}
	}
	for _, s := range listed[v1.Snapshot](a.watches.snapshots) {
		if s.Status.Pool == c.Name && s.Status.Phase != v1.PhaseLost {
			p.Snapshots++
		}
	}
	return p, room.Condition
}

// newsOfNode says whether a status must be written: all but small changes of what is used and free.
func newsOfNode(old, now *v1.StorageNodeStatus) bool {
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

// slight is less than a two-hundredth of a pool.
func slight(old, now, size int64) bool { return max(old-now, now-old) < size/200 }

// editNode merges into the spec of the node's object what change makes of the newest, nothing where that is nil.
func (a *Agent) editNode(ctx context.Context, change func(*v1.StorageNode) (spec map[string]any, err error)) error {
	nodes := a.Client.HoldfastV1().StorageNodes()
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		n, err := nodes.Get(ctx, a.Node, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		spec, err := change(n)
		if err != nil || spec == nil {
			return err
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": n.ResourceVersion}, "spec": spec})
		if err != nil {
			return err
		}
		_, err = nodes.Patch(ctx, a.Node, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
		return err
	})
}
