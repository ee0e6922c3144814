package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	client "github.com/holdfast-storage/holdfast/api/client/clientset"
	typed "github.com/holdfast-storage/holdfast/api/client/clientset/typed/api/v1beta1"
	"github.com/holdfast-storage/holdfast/api/convert"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/backendtest"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/miniapi"
	"github.com/holdfast-storage/holdfast/test/rig/mortal"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

const (
	mib  = 1 << 20
	node = "node-a"
)

// rig is one agent between an API and a host, with hands on both.
type rig struct {
	*testing.T
	api       *miniapi.Server
	config    *rest.Config
	volumes   typed.VolumeInterface
	snapshots typed.SnapshotInterface
	nodes     typed.StorageNodeInterface
	leases    kubernetes.Interface
	events    *record.FakeRecorder
	host      *host
	agent     *Agent
	stop      func()
	change    func(*Config) // before an agent starts
}

// newRig has no agent yet.
func newRig(t *testing.T) *rig {
	api := miniapi.New(t)
	ours := client.NewForConfigOrDie(api.Config()).HoldfastV1beta1()
	return &rig{
		T: t, api: api, config: api.Config(), volumes: ours.Volumes(), snapshots: ours.Snapshots(), nodes: ours.StorageNodes(),
		leases: kubernetes.NewForConfigOrDie(api.Config()), events: record.NewFakeRecorder(1000), host: newHost(),
	}
}

// begin starts an agent, and waits until it has reported for the first time.
func (r *rig) begin() *rig {
	r.Helper()
	c := Config{
		Node: node, Version: "1.2.3", Backend: r.host, Pools: []Pool{{Name: "memory", Path: "/srv/memory", Engine: "image"}},
		Client: client.NewForConfigOrDie(r.config), Kubernetes: kubernetes.NewForConfigOrDie(r.config), Events: r.events,
		Log: slog.New(slog.NewTextHandler(r.Output(), nil)), RetryFirst: time.Millisecond, RetryLast: 10 * time.Millisecond,
		SurveyEvery: 10 * time.Millisecond, PublishEvery: time.Millisecond,
	}
	if r.change != nil {
		r.change(&c)
	}
	a := check.Got(New(c))(r)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := a.Run(ctx); err != nil && ctx.Err() == nil {
			r.Errorf("the agent ended: %v", err)
		}
	}()
	r.agent, r.stop = a, func() { cancel(); <-done }
	r.Cleanup(r.stop)
	wait.Until(r, "the node's first report", func() bool {
		n, err := r.nodes.Get(r.Context(), node, metav1.GetOptions{})
		return err == nil && len(n.Status.Conditions) > 0
	})
	return r
}

// inBubble runs a test with a rig that has no agent yet.
func inBubble(t *testing.T, test func(*rig)) {
	synctest.Test(t, func(t *testing.T) { test(newRig(t)) })
}

// withAgent runs a test with a rig whose agent has begun.
func withAgent(t *testing.T, test func(*rig)) {
	inBubble(t, func(r *rig) { test(r.begin()) })
}

func (r *rig) restart() {
	r.Helper()
	r.stop()
	r.begin()
}

// ask writes an object the way the controller does.
func (r *rig) ask(name string, change ...func(*v1beta1.Volume)) *v1beta1.Volume {
	r.Helper()
	v := &v1beta1.Volume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{v1beta1.AgentFinalizer}},
		Spec:       v1beta1.VolumeSpec{Name: name, Node: node, Size: v1beta1.VolumeSize{Required: size(16 * mib)}},
	}
	for _, c := range change {
		c(v)
	}
	return check.Got(r.volumes.Create(r.Context(), v, metav1.CreateOptions{}))(r)
}

// withVolumes waits for volumes that are ready.
func (r *rig) withVolumes(names ...string) *rig {
	r.Helper()
	for _, name := range names {
		r.ask(name)
		r.phase(name, v1beta1.PhaseReady)
	}
	return r
}

func size(bytes int64) *resource.Quantity { return resource.NewQuantity(bytes, resource.BinarySI) }

func (r *rig) askSnapshot(name, source string, group *v1beta1.SnapshotGroup) *v1beta1.Snapshot {
	r.Helper()
	id, err := backend.IDFor(name)
	check.OK(r, err)
	s, err := r.snapshots.Create(r.Context(), &v1beta1.Snapshot{
		ObjectMeta: metav1.ObjectMeta{Name: string(id), Finalizers: []string{v1beta1.AgentFinalizer}},
		Spec:       v1beta1.SnapshotSpec{Name: name, SourceRef: v1beta1.FromVolume(source), Node: node, Group: group},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) && group != nil {
		return r.snapshot(string(id)) // the agent saw another member first, took the group, and found this one
	}
	check.OK(r, err)
	return s
}

func (r *rig) withSnapshot(name, source string) {
	r.Helper()
	r.askSnapshot(name, source, nil)
	r.readySnapshot(name)
}

// askGroup writes the members of a group and returns their IDs.
func (r *rig) askGroup(name string, sources ...string) (members []string) {
	r.Helper()
	group := &v1beta1.SnapshotGroup{Name: name, Volumes: sources}
	for _, source := range slices.Sorted(slices.Values(sources)) {
		member := convert.ToGroup(group).Member(backend.ID(source))
		members = append(members, r.askSnapshot(member.Name, source, group).Name)
	}
	return members
}

func (r *rig) withGroup(name string, sources ...string) (members []string) {
	r.Helper()
	members = r.askGroup(name, sources...)
	for _, m := range members {
		r.readySnapshot(m)
	}
	return members
}

func (r *rig) volume(name string) *v1beta1.Volume {
	v, err := r.volumes.Get(r.Context(), name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return v
}

func (r *rig) snapshot(name string) *v1beta1.Snapshot {
	s, err := r.snapshots.Get(r.Context(), name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return s
}

// phase waits for a volume to get there.
func (r *rig) phase(name string, phase v1beta1.Phase) *v1beta1.Volume {
	r.Helper()
	var v *v1beta1.Volume
	wait.Until(r, fmt.Sprintf("phase %s of volume %s", phase, name), func() bool {
		v = r.volume(name)
		return v != nil && v.Status.Phase == phase
	})
	return v
}

func (r *rig) snapshotPhase(name string, phase v1beta1.Phase) *v1beta1.Snapshot {
	r.Helper()
	wait.Until(r, fmt.Sprintf("phase %s of snapshot %s", phase, name), func() bool { s := r.snapshot(name); return s != nil && s.Status.Phase == phase })
	return r.snapshot(name)
}

func (r *rig) readySnapshot(name string) *v1beta1.Snapshot {
	r.Helper()
	return r.snapshotPhase(name, v1beta1.PhaseReady)
}

// writeStatus changes the status of a volume, which the agent may write at the same time.
func (r *rig) writeStatus(name string, change func(*v1beta1.VolumeStatus)) {
	r.Helper()
	wait.Until(r, "the changed status of "+name, func() bool {
		v := r.volume(name)
		change(&v.Status)
		_, err := r.volumes.UpdateStatus(r.Context(), v, metav1.UpdateOptions{})
		return err == nil
	})
}

func (r *rig) gone(name string) {
	r.Helper()
	wait.Until(r, "the end of volume "+name, func() bool { return r.volume(name) == nil })
}

func (r *rig) goneSnapshots(names ...string) {
	r.Helper()
	for _, name := range names {
		wait.Until(r, "the end of snapshot "+name, func() bool { return r.snapshot(name) == nil })
	}
}

// remove asks for a volume to be deleted the way the controller does.
func (r *rig) remove(name string) {
	r.Helper()
	r.request(name, r.volume(name).UID)
	r.drop(name)
}

// request asks for the data behind the object with that UID.
func (r *rig) request(name string, uid types.UID) {
	r.Helper()
	check.Got(r.volumes.Patch(r.Context(), name, types.MergePatchType, deletion(r.T, uid), metav1.PatchOptions{}))(r)
}

// drop deletes an object as kubectl does.
func (r *rig) drop(name string) {
	r.Helper()
	check.OK(r, r.volumes.Delete(r.Context(), name, metav1.DeleteOptions{}))
}

func (r *rig) removeSnapshot(name string) {
	r.Helper()
	check.Got(r.snapshots.Patch(r.Context(), name, types.MergePatchType, deletion(r.T, r.snapshot(name).UID), metav1.PatchOptions{}))(r)
	r.dropSnapshot(name)
}

func (r *rig) dropSnapshot(name string) {
	r.Helper()
	check.OK(r, r.snapshots.Delete(r.Context(), name, metav1.DeleteOptions{}))
}

// deletion is a patch with a request.
func deletion(t *testing.T, uid types.UID) []byte {
	t.Helper()
	return check.Got(json.Marshal(map[string]any{"spec": map[string]any{
		"deletion": v1beta1.DeletionRequest{UID: uid, RequestedBy: "a test", RequestedAt: metav1.NowMicro(), Reason: "it ends"},
	}}))(t)
}

// grow asks for a larger size.
func (r *rig) grow(name string, bytes int64) *v1beta1.Volume {
	r.Helper()
	patch := fmt.Sprintf(`{"spec":{"size":{"required":"%d"}}}`, bytes)
	return check.Got(r.volumes.Patch(r.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}))(r)
}

// expectCondition fails unless a condition has a status and a reason.
func expectCondition(t testing.TB, all []metav1.Condition, kind string, status metav1.ConditionStatus, reason string) *metav1.Condition {
	t.Helper()
	c := meta.FindStatusCondition(all, kind)
	if c == nil || c.Status != status || c.Reason != reason {
		t.Fatalf("condition %s is %+v, want %s for %s", kind, c, status, reason)
	}
	return c
}

func (r *rig) ofNode() []metav1.Condition { return r.node().Status.Conditions }

func (r *rig) ofVolume(name string) func() []metav1.Condition {
	return func() []metav1.Condition { return r.volume(name).Status.Conditions }
}

// condition waits for a condition of that status and reason.
func (r *rig) condition(of func() []metav1.Condition, kind string, status metav1.ConditionStatus, reason string) (c *metav1.Condition) {
	r.Helper()
	wait.Until(r, fmt.Sprintf("condition %s %s for %s", kind, status, reason), func() bool {
		c = meta.FindStatusCondition(of(), kind)
		return c != nil && c.Status == status && c.Reason == reason
	})
	return c
}

// called fails unless the host has had that call so often.
func (r *rig) called(call string, times int) {
	r.Helper()
	if n := r.host.count(call); n != times {
		r.Errorf("%s: %d times, want %d", call, n, times)
	}
}

// expectEvent fails unless an event of that reason, with all the words, was written.
func (r *rig) expectEvent(reason string, words ...string) {
	r.Helper()
	var all []string
	for late := time.After(30 * time.Second); ; {
		select {
		case e := <-r.events.Events:
			all = append(all, e)
			if slices.Contains(splitEvent(e), reason) && !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(e, word) }) {
				return
			}
		case <-late:
			r.Fatalf("no event %s with %q was written, but: %q", reason, words, all)
		}
	}
}

func splitEvent(e string) []string {
	var kind, reason string
	_, _ = fmt.Sscan(e, &kind, &reason) // a short one has none
	return []string{kind, reason}
}

// host is storage in memory that can be made to refuse, to hang, and to lose volumes.
type host struct {
	*backendtest.Memory

	mu     sync.Mutex
	refuse map[string]error // by verb and id, such as "create a"
	ill    map[backend.ID]backend.Condition
	used   map[backend.ID]int64
	calls  map[string]int
	enter  func(call string) // called outside of the lock
	broken error             // of the pool
	pool   backend.Condition // of the pool, which can be used
	warns  error             // of what will make the pool unusable
	nodes  error             // why nodes cannot use its volumes
	dies   *mortal.Process   // at one of its steps, which what changes something is
}

func (h *host) NodeWarning() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.nodes
}

func (h *host) Warning() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.warns
}

func newHost() *host {
	return &host{
		Memory: backendtest.NewMemory(), refuse: map[string]error{}, ill: map[backend.ID]backend.Condition{},
		used: map[backend.ID]int64{}, calls: map[string]int{},
	}
}

// set changes what the host does.
func (h *host) set(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
}

func (h *host) count(call string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.calls[call]
}

// call counts a call, and returns the error with which it is to be refused.
func (h *host) call(verb string, id backend.ID) error {
	call := verb + " " + string(id)
	h.mu.Lock()
	h.calls[call]++
	err, enter := h.refuse[call], h.enter
	h.mu.Unlock()
	if enter != nil {
		enter(call)
	}
	return err
}

// step counts a call, and makes it unless it is refused, or the process that makes it dies.
func step[T any](h *host, verb string, id backend.ID, do func() (T, error)) (v T, err error) {
	if err := h.call(verb, id); err != nil {
		return v, err
	}
	h.mu.Lock()
	dies := h.dies
	h.mu.Unlock()
	if dies == nil {
		return do()
	}
	err = dies.Do(verb, func() error {
		v, err = do()
		return err
	})
	return v, err
}

func (h *host) Create(ctx context.Context, spec backend.VolumeSpec) (*backend.Volume, error) {
	return step(h, "create", backend.ID(spec.Name), func() (*backend.Volume, error) { return h.Memory.Create(ctx, spec) })
}

func (h *host) Restore(ctx context.Context, id backend.ID, spec backend.VolumeSpec) (*backend.Volume, error) {
	return step(h, "restore", backend.ID(spec.Name), func() (*backend.Volume, error) { return h.Memory.Restore(ctx, id, spec) })
}

func (h *host) DeleteSnapshot(ctx context.Context, id backend.ID) error {
	_, err := step(h, "delete snapshot", id, func() (any, error) { return nil, h.Memory.DeleteSnapshot(ctx, id) })
	return err
}

func (h *host) Undelete(ctx context.Context, id backend.ID) (*backend.Volume, error) {
	return step(h, "undelete", id, func() (*backend.Volume, error) { return h.Memory.Undelete(ctx, id) })
}

func (h *host) Delete(ctx context.Context, id backend.ID) error {
	_, err := step(h, "delete", id, func() (any, error) { return nil, h.Memory.Delete(ctx, id) })
	return err
}

func (h *host) Expand(ctx context.Context, id backend.ID, size backend.Size) (*backend.Volume, error) {
	return step(h, "expand", id, func() (*backend.Volume, error) { return h.Memory.Expand(ctx, id, size) })
}

func (h *host) Complete(ctx context.Context, id backend.ID) error {
	if err := h.call("complete", id); err != nil {
		return err
	}
	return h.Memory.Complete(ctx, id)
}

func (h *host) Snapshot(ctx context.Context, spec backend.SnapshotSpec) (*backend.Snapshot, error) {
	return step(h, "snapshot", backend.ID(spec.Name), func() (*backend.Snapshot, error) { return h.Memory.Snapshot(ctx, spec) })
}

func (h *host) SnapshotGroup(ctx context.Context, spec backend.GroupSpec) (*backend.Group, error) {
	return step(h, "group", backend.ID(spec.Name), func() (*backend.Group, error) { return h.Memory.SnapshotGroup(ctx, spec) })
}

func (h *host) GetGroup(ctx context.Context, id backend.ID) (*backend.Group, error) {
	if err := h.call("look for group", id); err != nil {
		return nil, err
	}
	return h.Memory.GetGroup(ctx, id)
}

func (h *host) DeleteGroup(ctx context.Context, id backend.ID) error {
	_, err := step(h, "delete group", id, func() (any, error) { return nil, h.Memory.DeleteGroup(ctx, id) })
	return err
}

func (h *host) Capacity(ctx context.Context, pool string) (backend.Capacity, error) {
	h.mu.Lock()
	err, condition := h.broken, h.pool
	h.mu.Unlock()
	if err != nil {
		return backend.Capacity{}, err
	}
	room, err := h.Memory.Capacity(ctx, pool)
	room.Condition = condition
	return room, err
}

func (h *host) Get(ctx context.Context, id backend.ID) (*backend.Volume, error) {
	v, err := h.Memory.Get(ctx, id)
	if err == nil {
		h.dress(v)
	}
	return v, err
}

func (h *host) List(ctx context.Context) ([]*backend.Volume, error) {
	h.mu.Lock()
	h.calls["list"]++
	h.mu.Unlock()
	all, err := h.Memory.List(ctx)
	for _, v := range all {
		h.dress(v)
	}
	return all, err
}

func (h *host) dress(v *backend.Volume) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v.Used, v.Condition = h.used[v.ID], h.ill[v.ID]
}

// has says whether the volume is on the host's disk.
func (h *host) has(id backend.ID) bool {
	_, err := h.Memory.Get(context.Background(), id)
	return err == nil
}
