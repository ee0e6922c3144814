package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	client "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/kube"
)

// Memory is the cluster's record of the pools of one host: its StorageNode, and where that was deleted the objects of
// the volumes in the pools.
type Memory struct {
	node      string
	namespace string               // of the controller, the only one that may give pools up
	record    *v1beta1.StorageNode // with nothing in it if there is none
	volumes   []*v1beta1.Volume
	snapshots []*v1beta1.Snapshot
}

// Recall reads the memory from the API server.
func Recall(ctx context.Context, c client.Interface, node, namespace string) (*Memory, error) {
	m := &Memory{node: node, namespace: namespace}
	kinds := c.HoldfastV1beta1()
	var err error
	if m.record, err = kube.Live(ctx, kinds.StorageNodes().Get, node); err != nil {
		return nil, err
	}
	m.record = cmp.Or(m.record, &v1beta1.StorageNode{})
	own := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.node", node).String()}
	volumes, err := kinds.Volumes().List(ctx, own)
	if err != nil {
		return nil, err
	}
	snapshots, err := kinds.Snapshots().List(ctx, own)
	if err != nil {
		return nil, err
	}
	for i := range volumes.Items {
		m.volumes = append(m.volumes, &volumes.Items[i])
	}
	for i := range snapshots.Items {
		m.snapshots = append(m.snapshots, &snapshots.Items[i])
	}
	return m, nil
}

// recallWithin is how long a start waits for the memory. Until the agent has read it, existing pools are served and
// none is created.
const recallWithin = 10 * time.Second

// RecallSoon is Recall for a start, which must not wait for an unreachable API server. It returns nil then.
func RecallSoon(ctx context.Context, c client.Interface, node, namespace string, log *slog.Logger) *Memory {
	ctx, cancel := context.WithTimeout(ctx, recallWithin)
	defer cancel()
	m, err := Recall(ctx, c, node, namespace)
	if err != nil {
		log.Warn("the records of the pools could not be read yet; no pool is created before", "node", node, "error", err)
		return nil
	}
	return m
}

// Pool returns what is expected of a pool. Without a memory nothing is known yet. A pool that held nothing may be
// missing: if its path has changed, no pool is expected there.
func (m *Memory) Pool(name, path string) backend.PoolExpectation {
	if m == nil {
		return backend.PoolExpectation{Unread: true}
	}
	e := m.remembered(name)
	id := e.Remembered()
	if id == "" {
		return e
	}
	if slices.Contains(m.record.Spec.ReplacePools, v1beta1.PoolReplacement{Name: name, ID: id}) {
		return backend.PoolExpectation{Given: id}
	}
	if at, empty := m.heldNothing(name); empty {
		if at != path {
			return backend.PoolExpectation{}
		}
		e.Empty = true
	}
	e.Remedy = m.remedy(name, id)
	return e
}

// heldNothing says whether a pool was empty, trash included, when it was last reported, and at which path.
func (m *Memory) heldNothing(name string) (path string, empty bool) {
	p := v1beta1.Find(m.record.Status.Pools, func(p v1beta1.Pool) bool { return p.Name == name })
	if p == nil {
		return "", false
	}
	perhaps := func(in string) bool { return in == name || in == "" } // what is not created yet may be in any pool
	empty = !p.Capacity.IsZero() && p.Promised.IsZero() &&            // inline volumes count as promised, too
		!slices.ContainsFunc(m.volumes, func(v *v1beta1.Volume) bool { return perhaps(v.Status.Pool) }) &&
		!slices.ContainsFunc(m.snapshots, func(s *v1beta1.Snapshot) bool { return perhaps(s.Status.Pool) })
	return p.Path, empty
}

// remembered returns the pool as it was last reported or, without a report, as its volumes' objects show it.
func (m *Memory) remembered(name string) (e backend.PoolExpectation) {
	p := reportedPool(&m.record.Status, name)
	e.ID, e.Generation, e.Existed = p.ID, p.Generation, p.ID != "" || !p.Capacity.IsZero()
	if e.ID != "" {
		return e
	}
	ids := map[string]bool{}
	saw := func(created bool, phase v1beta1.Phase, pool, id string) {
		if pool == name && created && phase != v1beta1.PhaseLost && !m.wasGiven(id) {
			e.Existed, ids[id] = true, true
		}
	}
	for _, v := range m.volumes {
		saw(v.Status.CreationTime != nil, v.Status.Phase, v.Status.Pool, v.Status.PoolID)
	}
	for _, s := range m.snapshots {
		saw(s.Status.CreationTime != nil, s.Status.Phase, s.Status.Pool, s.Status.PoolID)
	}
	delete(ids, "") // objects of older releases have no pool ID
	if len(ids) == 1 {
		for e.ID = range ids {
		}
	}
	return e
}

// wasGiven says whether a pool was given up.
func (m *Memory) wasGiven(id string) bool {
	return id != "" && slices.ContainsFunc(m.record.Spec.ReplacePools, func(r v1beta1.PoolReplacement) bool { return r.ID == id })
}

// remedy is the command that gives a pool up, with the account of the controller.
func (m *Memory) remedy(name, id string) string {
	all := slices.DeleteFunc(slices.Clone(m.record.Spec.ReplacePools), func(r v1beta1.PoolReplacement) bool { return r.Name == name })
	all = append(all, v1beta1.PoolReplacement{Name: name, ID: id})
	patch, _ := json.Marshal(map[string]any{"spec": map[string]any{"replacePools": all}}) // of strings
	return fmt.Sprintf("kubectl patch storagenodes.holdfast.dev %s --as=system:serviceaccount:%s:%s --type=merge -p '%s'", m.node, m.namespace, v1beta1.ControllerName, patch)
}

// memory is the Memory from the caches.
func (a *Agent) memory() *Memory {
	m := &Memory{
		node: a.Node, namespace: a.Namespace, record: cmp.Or(a.nodeObject(), &v1beta1.StorageNode{}),
		volumes: kube.AllIn[*v1beta1.Volume](a.watches.volumes.GetStore()), snapshots: kube.AllIn[*v1beta1.Snapshot](a.watches.snapshots.GetStore()),
	}
	if reported := a.node.lastReported(); reported != nil {
		// This agent's last report is newer than the cache, and survives the deletion of the object.
		m.record = m.record.DeepCopy()
		m.record.Status = *reported
	}
	return m
}

// recall passes the memory of its pools to the backend.
func (a *Agent) recall() {
	if a.pools == nil {
		return
	}
	m := a.memory()
	for _, p := range a.Pools {
		a.pools.ExpectPool(p.Name, m.Pool(p.Name, p.Path))
	}
}
