package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"github.com/holdfast-storage/holdfast/agent"
	client "github.com/holdfast-storage/holdfast/api/client/clientset"
	typed "github.com/holdfast-storage/holdfast/api/client/clientset/typed/api/v1"
	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/backendtest"
	"github.com/holdfast-storage/holdfast/backend/cluster"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/test/miniapi"
	"github.com/holdfast-storage/holdfast/test/realapi"
)

const (
	mib  = 1 << 20
	gib  = 1 << 30
	node = "node-a"
)

// world is a cluster: an API, agents on hosts in memory, and the backend that is tested.
type world struct {
	*testing.T
	api     *miniapi.Server // nil when the API is a real one
	config  *rest.Config
	ours    client.Interface
	theirs  kubernetes.Interface
	agents  map[string]func() // stops them
	backend *cluster.Backend
	stop    func() // of the backend
	log     *slog.Logger
	events  *record.FakeRecorder
	pools   []agent.Pool
	seen    int
	change  func(*cluster.Config)
	publish time.Duration // how often agents write their nodes
	address string        // of the agents that are started next, which are of NFS servers if there is one
	lease   time.Duration // of agents; 0 is their default, so that a busy machine does not make them look dead
}

func newWorld(t *testing.T) *world {
	api := miniapi.New(t)
	w := worldOf(t, api.Config())
	w.api = api
	return w
}

func worldOf(t *testing.T, config *rest.Config) *world {
	return &world{
		T: t, config: config, ours: client.NewForConfigOrDie(config), theirs: kubernetes.NewForConfigOrDie(config), agents: map[string]func(){},
		log: slog.New(slog.NewTextHandler(t.Output(), nil)), events: record.NewFakeRecorder(1000),
		publish: time.Millisecond,
		pools:   []agent.Pool{{Name: "memory", Path: "/memory", Engine: "image"}},
	}
}

func (w *world) volumes() typed.VolumeInterface     { return w.ours.HoldfastV1().Volumes() }
func (w *world) snapshots() typed.SnapshotInterface { return w.ours.HoldfastV1().Snapshots() }
func (w *world) nodes() typed.StorageNodeInterface  { return w.ours.HoldfastV1().StorageNodes() }

// wire leads from an agent to the API, and can be cut.
type wire struct {
	next http.RoundTripper
	cut  atomic.Bool
}

func (l *wire) RoundTrip(q *http.Request) (*http.Response, error) {
	if l.cut.Load() {
		return nil, errors.New("the wire is cut")
	}
	return l.next.RoundTrip(q)
}

// agent starts one, until the test ends or its stop is called.
func (w *world) agent(node string, host backend.Backend) *wire {
	w.Helper()
	var l *wire
	config := rest.CopyConfig(w.config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { l = &wire{next: next}; return l })
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		w.Fatal(err)
	}
	ours, err := client.NewForConfigAndClient(config, transport)
	if err != nil {
		w.Fatal(err)
	}
	theirs, err := kubernetes.NewForConfigAndClient(config, transport)
	if err != nil {
		w.Fatal(err)
	}
	a, err := agent.New(agent.Config{
		Node: node, Version: "1.2.3", Backend: host, Pools: w.pools, Client: ours, Kubernetes: theirs, Log: w.log,
		PublishEvery: w.publish, SurveyEvery: 100 * time.Millisecond, RetryFirst: time.Millisecond, Lease: w.lease, Address: w.address,
	})
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := a.Run(ctx); err != nil && ctx.Err() == nil {
			w.Errorf("agent of %s: %v", node, err)
		}
	}()
	var once sync.Once
	stop := func() { once.Do(func() { cancel(); <-done }) }
	w.agents[node] = stop
	w.Cleanup(stop)
	return l
}

// controller starts the backend that is tested.
func (w *world) controller() *world {
	w.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w.Cleanup(cancel)
	c := cluster.Config{Client: w.ours, Kubernetes: w.theirs, Watches: kube.NewWatches(ctx, w.ours, w.theirs, v1.DefaultNamespace), Log: w.log, Events: w.events}
	if w.change != nil {
		w.change(&c)
	}
	b, err := cluster.New(c)
	if err != nil {
		w.Fatal(err)
	}
	if err := b.Start(ctx); err != nil {
		w.Fatal(err)
	}
	w.backend, w.stop = b, cancel
	return w
}

// leads makes the controller lead too, until the test ends.
func (w *world) leads() *world {
	w.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := w.backend.Lead(ctx); err != nil && ctx.Err() == nil {
			w.Errorf("leading: %v", err)
		}
	}()
	stopServing, stopLeading := w.stop, func() { cancel(); <-done }
	w.stop = func() { stopLeading(); stopServing() }
	w.Cleanup(stopLeading)
	return w
}

// hosts starts agents on hosts in memory of the given sizes, and a controller that knows them all.
func (w *world) hosts(sizes map[string]int64) map[string]*host {
	w.Helper()
	all := map[string]*host{}
	for name, size := range sizes {
		all[name] = newHost(size)
		w.agent(name, all[name])
	}
	w.controller()
	for name := range sizes {
		w.ready(name)
	}
	return all
}

// ready waits until the controller knows what a node has.
func (w *world) ready(node string) {
	w.Helper()
	w.until("the first report of "+node, func() bool {
		_, err := w.backend.CapacityAt(w.Context(), node, "")
		return err == nil
	})
}

// until waits for what is not an event of the API, or of a real one.
func (w *world) until(what string, done func() bool) {
	w.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if realapi.Until(ctx, func() bool { return done() || w.Context().Err() != nil }) != nil { // or a hand that helped, after its test
		w.Fatalf("%s did not come", what)
	}
}

// unfinished makes a call with little time, and again until it ends where its object is. On a busy machine the first may
// end before there is one.
func (w *world) unfinished(where string, call func(context.Context) error) error {
	w.Helper()
	var err error
	w.until("a call that ends "+where, func() bool {
		ctx, cancel := context.WithTimeout(w.Context(), 50*time.Millisecond)
		defer cancel()
		err = call(ctx)
		return !errors.Is(err, backend.ErrBusy) || strings.Contains(err.Error(), where)
	})
	return err
}

// puppet is a node whose agent is the test: it reports room, lives for an hour, and answers nothing by itself.
func (w *world) puppet(name string, available int64, pools ...string) {
	w.Helper()
	if len(pools) == 0 {
		pools = []string{"memory"}
	}
	n, err := w.nodes().Create(w.Context(), &v1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	for _, p := range pools {
		n.Status.Pools = append(n.Status.Pools, v1.Pool{Name: p, Capacity: *bytes(available), Available: *bytes(available), Largest: *bytes(available)})
	}
	if _, err := w.nodes().UpdateStatus(w.Context(), n, metav1.UpdateOptions{}); err != nil {
		w.Fatal(err)
	}
	w.beat(name, 3600)
}

// beat renews the Lease of a puppet.
func (w *world) beat(name string, seconds int32) {
	w.Helper()
	leases := w.theirs.CoordinationV1().Leases(v1.DefaultNamespace)
	now := metav1.NowMicro()
	spec := coordination.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: &seconds, RenewTime: &now}
	l, err := leases.Get(w.Context(), v1.LeasePrefix+name, metav1.GetOptions{})
	if err != nil {
		_, err = leases.Create(w.Context(), &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: v1.LeasePrefix + name}, Spec: spec}, metav1.CreateOptions{})
	} else {
		l.Spec = spec
		_, err = leases.Update(w.Context(), l, metav1.UpdateOptions{})
	}
	if err != nil {
		w.Fatal(err)
	}
}

func bytes(n int64) *resource.Quantity { return resource.NewQuantity(n, resource.BinarySI) }

// answer writes the status of a puppet's volume, once its object is there.
func (w *world) answer(name string, change func(*v1.Volume)) *v1.Volume {
	w.Helper()
	var v *v1.Volume
	w.until("the object "+name, func() bool {
		var err error
		if v, err = w.volumes().Get(w.Context(), name, metav1.GetOptions{}); err != nil {
			return false
		}
		v.Status.ObservedGeneration = v.Generation
		change(v)
		v, err = w.volumes().UpdateStatus(w.Context(), v, metav1.UpdateOptions{})
		return err == nil
	})
	return v
}

func isMade(v *v1.Volume) {
	now := metav1.NowMicro()
	v.Status.Phase, v.Status.Size, v.Status.Pool, v.Status.Created, v.Status.Error = v1.PhaseReady, v.Spec.Size.Required, "memory", &now, nil
}

// letGo takes the agent's finalizer off, as a puppet's agent would.
func (w *world) letGo(name string) {
	w.Helper()
	w.until("the deletion of "+name, func() bool {
		v, err := w.volumes().Get(w.Context(), name, metav1.GetOptions{})
		if err != nil || v.DeletionTimestamp == nil {
			return false
		}
		v.Finalizers = nil
		_, err = w.volumes().Update(w.Context(), v, metav1.UpdateOptions{})
		return err == nil
	})
}

func (w *world) volume(name string) *v1.Volume {
	v, err := w.volumes().Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return v
}

func (w *world) gone(name string) {
	w.Helper()
	w.until("the end of "+name, func() bool { return w.volume(name) == nil })
}

// kubernetesNode writes a Node object.
func (w *world) kubernetesNode(name string) {
	w.Helper()
	if _, err := w.theirs.CoreV1().Nodes().Create(w.Context(), &core.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) readiness(all []metav1.Condition) (metav1.ConditionStatus, string) {
	c := meta.FindStatusCondition(all, v1.ReadyCondition)
	if c == nil {
		return "", ""
	}
	return c.Status, c.Reason
}

func (w *world) expectEvent(reason string) {
	w.Helper()
	var all []string
	for late := time.After(30 * time.Second); ; {
		select {
		case e := <-w.events.Events:
			all = append(all, e)
			var kind, why string
			if _, err := fmt.Sscan(e, &kind, &why); err == nil && why == reason {
				return
			}
		case <-late:
			w.Fatalf("no event %s was written, but: %q", reason, all)
		}
	}
}

func spec(name string, size int64, nodes ...string) backend.VolumeSpec {
	return backend.VolumeSpec{Name: name, Size: backend.Size{Required: size}, Nodes: nodes}
}

// host is storage in memory that can be told to refuse.
type host struct {
	*backendtest.Memory
	mu     sync.Mutex
	refuse map[string]error // by verb
}

func newHost(size int64) *host {
	return &host{Memory: backendtest.NewMemorySized(size), refuse: map[string]error{}}
}

func (h *host) refuses(verb string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refuse[verb] = err
}

func (h *host) refusal(verb string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.refuse[verb]
}

func (h *host) Create(ctx context.Context, spec backend.VolumeSpec) (*backend.Volume, error) {
	if err := h.refusal("create"); err != nil {
		return nil, err
	}
	return h.Memory.Create(ctx, spec)
}

func (h *host) Delete(ctx context.Context, id backend.ID) error {
	if err := h.refusal("delete"); err != nil {
		return err
	}
	return h.Memory.Delete(ctx, id)
}

func (h *host) Snapshot(ctx context.Context, spec backend.SnapshotSpec) (*backend.Snapshot, error) {
	if err := h.refusal("snapshot"); err != nil {
		return nil, err
	}
	return h.Memory.Snapshot(ctx, spec)
}

func (h *host) has(id backend.ID) bool {
	_, err := h.Get(context.Background(), id)
	return err == nil
}

// volumesOf lists what is on a host's disk.
func (h *host) volumes() []string {
	all, _ := h.List(context.Background())
	var names []string
	for _, v := range all {
		names = append(names, string(v.ID))
	}
	slices.Sort(names)
	return names
}

func newWorldLog(t *testing.T) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }
