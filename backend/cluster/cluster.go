// Package cluster is the storage of all nodes of a Kubernetes cluster: a volume is a Volume object, which the agent of
// its node makes real with the backend of that host.
//
// Calls write the desired state and are woken by watches; all state is in the objects, so a call can be repeated here
// or in another process. Work that only one process at a time may do is in operator/volume.
package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"k8s.io/client-go/kubernetes"

	client "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/kube"
)

// FieldManager is the field manager of the controller, here and in operator/volume.
const FieldManager = v1beta1.ControllerName

// Config is what a Backend needs.
type Config struct {
	Client     client.Interface
	Kubernetes kubernetes.Interface
	Watches    *kube.Watches // of the process, in Namespace
	Namespace  string        // of the agents' Leases; v1beta1.DefaultNamespace if empty
	Driver     string        // of the volumes; if empty, waiting claims get no events
	Log        *slog.Logger  // nil discards
}

// Backend serves the volumes of all nodes.
type Backend struct {
	Config
	watches   watches
	volumes   *records[*v1beta1.Volume]
	snapshots *records[*v1beta1.Snapshot]
	liveness  *liveness

	placing      sync.Mutex // while a node is chosen and the volume is counted there
	reservations reservations

	mu           sync.Mutex
	onNodeChange func(node string) // nil if there is no listener
}

var (
	_ backend.Storage          = (*Backend)(nil)
	_ backend.GroupSnapshotter = (*Backend)(nil)
	_ backend.Topology         = (*Backend)(nil)
	_ backend.Sharer           = (*Backend)(nil)
)

// New checks the configuration.
func New(c Config) (*Backend, error) {
	if c.Client == nil || c.Kubernetes == nil || c.Watches == nil {
		return nil, errors.New("a cluster backend needs clients of both APIs, and watches")
	}
	c.Namespace = cmp.Or(c.Namespace, v1beta1.DefaultNamespace)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	b := &Backend{Config: c}
	b.liveness = newLiveness(b.nodeChanged)
	if err := b.watches.prepare(b); err != nil {
		return nil, err
	}
	b.volumes = &records[*v1beta1.Volume]{
		kind: v1beta1.SourceVolume, client: c.Client.HoldfastV1beta1().Volumes(), look: volumeState,
		inflight: &inflight[*v1beta1.Volume]{cached: cachedIn[*v1beta1.Volume](b.watches.volumes.GetStore()), open: map[string]*entry[*v1beta1.Volume]{}},
	}
	b.snapshots = &records[*v1beta1.Snapshot]{
		kind: v1beta1.SourceSnapshot, client: c.Client.HoldfastV1beta1().Snapshots(), look: snapshotState,
		inflight: &inflight[*v1beta1.Snapshot]{cached: cachedIn[*v1beta1.Snapshot](b.watches.snapshots.GetStore()), open: map[string]*entry[*v1beta1.Snapshot]{}},
	}
	return b, nil
}

// Start starts the watches, and returns when the caches are filled.
func (b *Backend) Start(ctx context.Context) error {
	context.AfterFunc(ctx, b.liveness.stop)
	b.Watches.Start()
	if err := b.watches.heard.Wait(ctx); err != nil {
		return fmt.Errorf("the cluster's volumes could not be listed: %w", err)
	}
	b.liveness.disconnected()
	return nil
}

// OnNodeChange sets the function to call with each node or server whose agent has appeared or become silent; nil removes
// it.
func (b *Backend) OnNodeChange(f func(node string)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.onNodeChange = f
}

// nodeChanged is called when an agent has appeared or become silent.
func (b *Backend) nodeChanged(node string) {
	b.volumes.wake()
	b.snapshots.wake()
	b.mu.Lock()
	f := b.onNodeChange
	b.mu.Unlock()
	if f != nil {
		f(node)
	}
}
