// Package inmemory is a cluster whose hosts are in memory: an API, agents, and the backend of the cluster before them. The
// tests of that backend and of what runs on it have one each.
package inmemory

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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"github.com/holdfast-storage/holdfast/agent"
	client "github.com/holdfast-storage/holdfast/api/client/clientset"
	typed "github.com/holdfast-storage/holdfast/api/client/clientset/typed/api/v1beta1"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/cluster"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/miniapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// Cluster is one, of one test.
type Cluster struct {
	*testing.T
	API     *miniapi.Server // nil when the API is a real one
	Config  *rest.Config
	Ours    client.Interface
	Theirs  kubernetes.Interface
	Agents  map[string]func() // stops them
	Backend *cluster.Backend
	Stop    func() // of the backend
	Logger  *slog.Logger
	Events  *record.FakeRecorder
	Pools   []agent.Pool
	Change  func(*cluster.Config)
	Publish time.Duration // how often agents write their nodes
	Address string        // of the agents that are started next, which are of NFS servers if there is one
	Lease   time.Duration // of agents; 0 is their default, so that a busy machine does not make them look dead
}

// New is a cluster without hosts over an API in memory.
func New(t *testing.T) *Cluster {
	api := miniapi.New(t)
	w := over(t, api.Config())
	w.API = api
	return w
}

func over(t *testing.T, config *rest.Config) *Cluster {
	return &Cluster{
		T: t, Config: config, Ours: client.NewForConfigOrDie(config), Theirs: kubernetes.NewForConfigOrDie(config), Agents: map[string]func(){},
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Events: record.NewFakeRecorder(1000),
		Publish: time.Millisecond,
		Pools:   []agent.Pool{{Name: "memory", Path: "/memory", Engine: "image"}},
	}
}

// Volumes are the objects.
func (w *Cluster) Volumes() typed.VolumeInterface { return w.Ours.HoldfastV1beta1().Volumes() }

// Snapshots are the objects.
func (w *Cluster) Snapshots() typed.SnapshotInterface { return w.Ours.HoldfastV1beta1().Snapshots() }

// Nodes are the StorageNodes.
func (w *Cluster) Nodes() typed.StorageNodeInterface { return w.Ours.HoldfastV1beta1().StorageNodes() }

// Wire leads from an agent to the API, and can be cut.
type Wire struct {
	next http.RoundTripper
	Cut  atomic.Bool
}

// RoundTrip fails while the wire is cut.
func (l *Wire) RoundTrip(q *http.Request) (*http.Response, error) {
	if l.Cut.Load() {
		return nil, errors.New("the wire is cut")
	}
	return l.next.RoundTrip(q)
}

// Agent starts one, until the test ends or its stop is called.
func (w *Cluster) Agent(node string, host agent.Storage) *Wire {
	w.Helper()
	var l *Wire
	config := rest.CopyConfig(w.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { l = &Wire{next: next}; return l })
	transport := check.Got(rest.HTTPClientFor(config))(w)
	ours := check.Got(client.NewForConfigAndClient(config, transport))(w)
	theirs := check.Got(kubernetes.NewForConfigAndClient(config, transport))(w)
	a := check.Got(agent.New(agent.Config{
		Node: node, Version: "1.2.3", Backend: host, Pools: w.Pools, Client: ours, Kubernetes: theirs, Log: w.Logger,
		PublishEvery: w.Publish, SurveyEvery: 100 * time.Millisecond, RetryFirst: time.Millisecond, Lease: w.Lease, Address: w.Address,
	}))(w)
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
	w.Agents[node] = stop
	w.Cleanup(stop)
	return l
}

// Start starts the backend that is tested.
func (w *Cluster) Start() {
	w.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w.Cleanup(cancel)
	c := cluster.Config{Client: w.Ours, Kubernetes: w.Theirs, Watches: kube.NewWatches(ctx, w.Ours, w.Theirs, v1beta1.DefaultNamespace), Log: w.Logger}
	if w.Change != nil {
		w.Change(&c)
	}
	b := check.Got(cluster.New(c))(w)
	check.OK(w, b.Start(ctx))
	w.Backend, w.Stop = b, cancel
}

// Hosts starts agents on hosts in memory of the given sizes, and a controller that knows them all.
func (w *Cluster) Hosts(sizes map[string]int64) map[string]*Host {
	w.Helper()
	all := map[string]*Host{}
	for name, size := range sizes {
		all[name] = NewHost(size)
		w.Agent(name, all[name])
	}
	w.Start()
	for name := range sizes {
		w.Ready(name)
	}
	return all
}

// Ready waits until the controller knows what a node has.
func (w *Cluster) Ready(node string) {
	w.Helper()
	w.Until("the first report of "+node, func() bool {
		_, err := w.Backend.CapacityAt(w.Context(), node, "")
		return err == nil
	})
}

// Until waits for what is not an event of the API, or of a real one, while the test runs: a hand may help after it.
func (w *Cluster) Until(what string, done func() bool) {
	w.Helper()
	wait.Until(w, what, func() bool { return done() || w.Context().Err() != nil })
}

// Unfinished makes a call with little time, and again until it ends where its object is. On a busy machine the first may
// end before there is one.
func (w *Cluster) Unfinished(where string, call func(context.Context) error) error {
	w.Helper()
	var err error
	w.Until("a call that ends "+where, func() bool {
		ctx, cancel := context.WithTimeout(w.Context(), 50*time.Millisecond)
		defer cancel()
		err = call(ctx)
		return !errors.Is(err, backend.ErrBusy) || strings.Contains(err.Error(), where)
	})
	return err
}

// Puppet is a node whose agent is the test: it reports room, lives for an hour, and answers nothing by itself.
func (w *Cluster) Puppet(name string, available int64, pools ...string) {
	w.Helper()
	if len(pools) == 0 {
		pools = []string{"memory"}
	}
	room := *resource.NewQuantity(available, resource.BinarySI)
	n := check.Got(w.Nodes().Create(w.Context(), &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))(w)
	for _, p := range pools {
		n.Status.Pools = append(n.Status.Pools, v1beta1.Pool{Name: p, Capacity: room, Available: room, Largest: room})
	}
	check.Got(w.Nodes().UpdateStatus(w.Context(), n, metav1.UpdateOptions{}))(w)
	w.Beat(name, 3600)
}

// Beat renews the Lease of a puppet.
func (w *Cluster) Beat(name string, seconds int32) {
	w.Helper()
	leases := w.Theirs.CoordinationV1().Leases(v1beta1.DefaultNamespace)
	now := metav1.NowMicro()
	spec := coordination.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: &seconds, RenewTime: &now}
	l, err := leases.Get(w.Context(), v1beta1.LeasePrefix+name, metav1.GetOptions{})
	if err != nil {
		_, err = leases.Create(w.Context(), &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: v1beta1.LeasePrefix + name}, Spec: spec}, metav1.CreateOptions{})
	} else {
		if at := l.Spec.RenewTime; !now.After(at.Time) { // in virtual time
			now = metav1.NewMicroTime(at.Add(time.Microsecond))
		}
		l.Spec = spec
		_, err = leases.Update(w.Context(), l, metav1.UpdateOptions{})
	}
	check.OK(w, err)
}

// Answer writes the status of a puppet's volume, once its object is there.
func (w *Cluster) Answer(name string, change func(*v1beta1.Volume)) *v1beta1.Volume {
	w.Helper()
	var v *v1beta1.Volume
	w.Until("the object "+name, func() bool {
		var err error
		if v, err = w.Volumes().Get(w.Context(), name, metav1.GetOptions{}); err != nil {
			return false
		}
		v.Status.ObservedGeneration = v.Generation
		change(v)
		v, err = w.Volumes().UpdateStatus(w.Context(), v, metav1.UpdateOptions{})
		return err == nil
	})
	return v
}

// Made makes a status say that the volume is real, for Answer.
func Made(v *v1beta1.Volume) {
	now := metav1.NowMicro()
	v.Status.Phase, v.Status.Size, v.Status.Pool, v.Status.CreationTime, v.Status.Error = v1beta1.PhaseReady, v.Spec.Size.Required, "memory", &now, nil
}

// RemoveFinalizer removes the agent's finalizer, as a puppet's agent would.
func (w *Cluster) RemoveFinalizer(name string) {
	w.Helper()
	w.Until("the deletion of "+name, func() bool {
		v, err := w.Volumes().Get(w.Context(), name, metav1.GetOptions{})
		if err != nil || v.DeletionTimestamp == nil {
			return false
		}
		v.Finalizers = nil
		_, err = w.Volumes().Update(w.Context(), v, metav1.UpdateOptions{})
		return err == nil
	})
}

// Volume is an object as the API has it, or nil.
func (w *Cluster) Volume(name string) *v1beta1.Volume {
	v, err := w.Volumes().Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return v
}

// Gone waits until a volume has no object.
func (w *Cluster) Gone(name string) {
	w.Helper()
	w.Until("the end of "+name, func() bool { return w.Volume(name) == nil })
}

// KubernetesNode writes a Node object.
func (w *Cluster) KubernetesNode(name string) {
	w.Helper()
	check.Got(w.Theirs.CoreV1().Nodes().Create(w.Context(), &core.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))(w)
}

// Readiness is the status and the reason of the condition Ready.
func (w *Cluster) Readiness(all []metav1.Condition) (metav1.ConditionStatus, string) {
	c := meta.FindStatusCondition(all, v1beta1.ReadyCondition)
	if c == nil {
		return "", ""
	}
	return c.Status, c.Reason
}

// ExpectEvent waits for an event of that reason with all the words.
func (w *Cluster) ExpectEvent(reason string, words ...string) {
	w.Helper()
	var all []string
	for late := time.After(30 * time.Second); ; {
		select {
		case e := <-w.Events.Events:
			all = append(all, e)
			var kind, why string
			if _, err := fmt.Sscan(e, &kind, &why); err == nil && why == reason && !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(e, word) }) {
				return
			}
		case <-late:
			w.Fatalf("no event %s with %q was written, but: %q", reason, words, all)
		}
	}
}

// Spec asks for a volume on one of the nodes.
func Spec(name string, size int64, nodes ...string) backend.VolumeSpec {
	return backend.VolumeSpec{Name: name, Size: backend.Size{Required: size}, Nodes: nodes}
}

// Expect fails unless err is of a kind and names all parts.
func Expect(t testing.TB, err, kind error, parts ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("got %v, want an error that is %q", err, kind)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("%q does not name %s", err, p)
		}
	}
}

// Refused expects the error of a call:
//
//	inmemory.Refused(w.Backend.Get(ctx, "v"))(t, backend.ErrNotFound, "v")
func Refused[T any](_ T, err error) func(t testing.TB, kind error, parts ...string) {
	return func(t testing.TB, kind error, parts ...string) {
		t.Helper()
		Expect(t, err, kind, parts...)
	}
}

// Claim writes a claim that has that PersistentVolume.
func (w *Cluster) Claim(name, volume string) {
	w.Helper()
	c := &core.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: core.PersistentVolumeClaimSpec{VolumeName: volume}}
	check.Got(w.Theirs.CoreV1().PersistentVolumeClaims("shop").Create(w.Context(), c, metav1.CreateOptions{}))(w)
}

// Spoil gives a volume a field past the schema that cannot be decoded.
func (w *Cluster) Spoil(name string) {
	w.Helper()
	patch := []byte(`{"spec":{"inodes":"many"}}`)
	check.Got(w.Volumes().Patch(w.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}))(w)
	w.Until("the word that it cannot be read", func() bool {
		_, err := w.Backend.Get(w.Context(), backend.ID(name))
		return errors.Is(err, backend.ErrUnavailable)
	})
}
