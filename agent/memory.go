package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	client "github.com/holdfast-storage/holdfast/api/client/clientset"
	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/backend"
)

// Memory is what the cluster remembers of the pools of one host: its StorageNode, and where that has been deleted the
// objects of what lies in the pools.
type Memory struct {
	node      string
	namespace string          // of the controller, which alone may give pools up
	record    *v1.StorageNode // nil if there is none
	volumes   []*v1.Volume
	snapshots []*v1.Snapshot
}

// Recall reads the memory from the API server.
func Recall(ctx context.Context, c client.Interface, node, namespace string) (*Memory, error) {
	m := &Memory{node: node, namespace: namespace}
	kinds := c.HoldfastV1()
	switch n, err := kinds.StorageNodes().Get(ctx, node, metav1.GetOptions{}); {
	case err == nil:
		m.record = n
	case !apierrors.IsNotFound(err):
		return nil, err
	}
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

// recallWithin is how long a start waits for the memory. Without it, pools that are there are served and none is begun,
// until the agent has read it.
const recallWithin = 10 * time.Second

// RecallSoon is Recall for a start, which an API server that is away must not hold up. It returns nil then.
func RecallSoon(ctx context.Context, c client.Interface, node, namespace string, log *slog.Logger) *Memory {
	ctx, cancel := context.WithTimeout(ctx, recallWithin)
	defer cancel()
	m, err := Recall(ctx, c, node, namespace)
	if err != nil {
		log.Warn("what is remembered of the pools could not be read yet; none is begun before", "node", node, "error", err)
		return nil
	}
	return m
}

// Pool is what is to be expected of a pool. Without a memory nothing is known yet. Nobody misses a pool that held nothing:
// where the path is another now, nothing is expected.
func (m *Memory) Pool(name, path string) backend.PoolExpectation {
	if m == nil {
		return backend.PoolExpectation{Unread: true}
	}
	e := m.remembered(name)
	id := e.Remembered()
	if id == "" {
		return e
	}
	for _, r := range m.given() {
		if r.Name == name && r.ID == id {
			return backend.PoolExpectation{Given: id}
		}
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

// heldNothing says of a pool whether there was nothing in it at all, nor in the trash, when it was last seen, and where
// that was.
func (m *Memory) heldNothing(name string) (path string, empty bool) {
	if m.record == nil {
		return "", false
	}
	i := slices.IndexFunc(m.record.Status.Pools, func(p v1.Pool) bool { return p.Name == name })
	if i < 0 {
		return "", false
	}
	p := &m.record.Status.Pools[i]
	perhaps := func(in string) bool { return in == name || in == "" } // what is not made yet may lie in any
	empty = !p.Capacity.IsZero() && p.Promised.IsZero() &&            // inline volumes are promised their size, too
		!slices.ContainsFunc(m.volumes, func(v *v1.Volume) bool { return perhaps(v.Status.Pool) }) &&
		!slices.ContainsFunc(m.snapshots, func(s *v1.Snapshot) bool { return perhaps(s.Status.Pool) })
	return p.Path, empty
}

func (m *Memory) given() []v1.PoolReplacement {
	if m.record == nil {
		return nil
	}
	return m.record.Spec.ReplacePools
}

// remembered is the pool as it was last told of; where nobody told, as what was made in it says.
func (m *Memory) remembered(name string) (e backend.PoolExpectation) {
	if m.record != nil {
		for _, p := range m.record.Status.Pools {
			if p.Name == name {
				e.ID, e.Generation, e.Existed = p.ID, p.Generation, p.ID != "" || !p.Capacity.IsZero()
			}
		}
	}
	if e.ID != "" {
		return e
	}
	ids := map[string]bool{}
	saw := func(created bool, phase v1.Phase, pool, id string) {
		if pool == name && created && phase != v1.PhaseLost && !m.wasGiven(id) {
			e.Existed, ids[id] = true, true
		}
	}
	for _, v := range m.volumes {
		saw(v.Status.Created != nil, v.Status.Phase, v.Status.Pool, v.Status.PoolID)
	}
	for _, s := range m.snapshots {
		saw(s.Status.Created != nil, s.Status.Phase, s.Status.Pool, s.Status.PoolID)
	}
	delete(ids, "") // an object of an older release says nothing
	if len(ids) == 1 {
		for e.ID = range ids {
		}
	}
	return e
}

// wasGiven says whether a pool was given up.
func (m *Memory) wasGiven(id string) bool {
	return id != "" && slices.ContainsFunc(m.given(), func(r v1.PoolReplacement) bool { return r.ID == id })
}

// remedy is the command that gives a pool up, which the account of the controller may.
func (m *Memory) remedy(name, id string) string {
	all := slices.DeleteFunc(slices.Clone(m.given()), func(r v1.PoolReplacement) bool { return r.Name == name })
	all = append(all, v1.PoolReplacement{Name: name, ID: id})
	patch, _ := json.Marshal(map[string]any{"spec": map[string]any{"replacePools": all}}) // of strings
	return fmt.Sprintf("kubectl patch storagenodes.holdfast.dev %s --as=system:serviceaccount:%s:%s --type=merge -p '%s'", m.node, m.namespace, v1.ControllerName, patch)
}

// memory is that of the caches.
func (a *Agent) memory() *Memory {
	m := &Memory{node: a.Node, namespace: a.Namespace, record: a.nodeObject(), volumes: listed[v1.Volume](a.watches.volumes), snapshots: listed[v1.Snapshot](a.watches.snapshots)}
	if told := a.node.lastTold(); told != nil {
		// What this agent has told is newer than the cache, and stays when the object is deleted.
		m.record = cmp.Or(m.record, &v1.StorageNode{}).DeepCopy()
		m.record.Status = *told
	}
	return m
}

// recall tells the backend what is remembered of its pools.
func (a *Agent) recall() {
	if a.pools == nil {
		return
	}
	m := a.memory()
	for _, p := range a.Pools {
		a.pools.ExpectPool(p.Name, m.Pool(p.Name, p.Path))
	}
}
