// Package volume is the volume controller of the leading replica: it marks volumes on silent nodes, gives up volumes
// with onNodeLoss Delete and recreates their claims, removes the finalizers of objects whose volume is on another node
// by now, and deletes unused volumes. It writes events about faults for the users of volumes, and about the reason for
// waiting claims.
//
// It knows volumes by the Backend of the cluster, whose objects and caches it shares.
package volume

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"

	listers "github.com/holdfast-storage/holdfast/api/client/listers/api/v1beta1"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend/cluster"
	"github.com/holdfast-storage/holdfast/kube"
)

// Config is what a Controller needs.
type Config struct {
	Storage *cluster.Backend     // started before Run; its clients, watches and log are used
	Events  record.EventRecorder // nil writes no events

	RemindAfter time.Duration // the interval of events for a claim that fits nowhere; 0 means the default

	// The minimum age of unused volumes to delete; 0 means the default.
	GarbageAge   time.Duration
	GarbageEvery time.Duration
}

// Controller reconciles the volumes of a cluster, in one process at a time.
type Controller struct{ Config }

// New checks the configuration. It asks the watches for nothing: a replica that does not lead goes without.
func New(c Config) (*Controller, error) {
	if c.Storage == nil {
		return nil, errors.New("the volume controller needs a cluster's backend")
	}
	c.GarbageAge, c.GarbageEvery = cmp.Or(c.GarbageAge, DefaultGarbageAge), cmp.Or(c.GarbageEvery, DefaultGarbageEvery)
	c.RemindAfter = cmp.Or(c.RemindAfter, DefaultRemindAfter)
	return &Controller{c}, nil
}

// leader is one time that this process leads.
type leader struct {
	*cluster.Backend
	Config
	volumes      listers.VolumeLister
	snapshots    listers.SnapshotLister
	storageNodes listers.StorageNodeLister
	nodes        corelisters.NodeLister
	loop         *kube.Loop[string] // of the names of nodes and servers
	renewals     renewals
	reported     map[types.UID]bool // volumes whose loss was reported, as long as they have objects

	unreadable kube.UnreadableReporter
}

func (c *Controller) leader() (*leader, error) {
	kinds := c.Storage.Watches.Holdfast.Holdfast().V1beta1()
	l := &leader{
		Backend: c.Storage, Config: c.Config, reported: map[types.UID]bool{},
		volumes: kinds.Volumes().Lister(), snapshots: kinds.Snapshots().Lister(), storageNodes: kinds.StorageNodes().Lister(),
		nodes: c.Storage.Watches.Cluster.Core().V1().Nodes().Lister(),
	}
	var err error
	l.loop, err = kube.NewLoop(kube.LoopConfig[string]{Name: "volume", Reconcile: l.reconcile, Log: l.Log})
	return l, err
}

// Run reconciles volumes until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	l, err := c.leader()
	if err != nil {
		return err
	}
	if err := l.watch(); err != nil {
		return err
	}
	l.Watches.Start()
	l.OnNodeChange(l.loop.Enqueue)
	defer l.OnNodeChange(nil)
	for node := range l.everyNode() {
		l.loop.Enqueue(node)
	}
	var parts sync.WaitGroup
	defer parts.Wait()
	parts.Go(func() { l.collectRegularly(ctx) })
	parts.Go(func() {
		if err := l.recordHealth(ctx); err != nil && ctx.Err() == nil {
			l.Log.Warn("the users of volumes get no events about their problems", "error", err)
		}
	})
	if l.Driver != "" {
		parts.Go(func() {
			if err := l.explainWaiting(ctx); err != nil && ctx.Err() == nil {
				l.Log.Warn("waiting claims get no events that say why", "error", err)
			}
		})
	}
	return l.loop.Run(ctx)
}

func (l *leader) reconcile(ctx context.Context, node string) (again time.Duration, err error) {
	defer l.forgetReported()
	return l.look(ctx, node)
}

// forgetReported forgets the reports about volumes that are gone. The deletion of one on a silent node queues that
// node.
func (l *leader) forgetReported() {
	if len(l.reported) == 0 {
		return
	}
	there := map[types.UID]bool{}
	for _, v := range all(l.volumes.List) {
		there[v.UID] = true
	}
	maps.DeleteFunc(l.reported, func(uid types.UID, _ bool) bool { return !there[uid] })
}

// everyNode names each node that has an agent or an object.
func (l *leader) everyNode() map[string]bool {
	names := map[string]bool{}
	for _, n := range all(l.storageNodes.List) {
		names[n.Name] = true
	}
	for _, v := range all(l.volumes.List) {
		names[v.Spec.Node] = true
	}
	for _, s := range all(l.snapshots.List) {
		names[s.Spec.Node] = true
	}
	return names
}

// storageNode is nil where the cache has none.
func (l *leader) storageNode(name string) *v1beta1.StorageNode {
	n, _ := l.storageNodes.Get(name) // it has no other error
	return n
}

// all is what a cache holds.
func all[T any](list func(labels.Selector) ([]T, error)) []T {
	found, _ := list(labels.Everything()) // a cache has no errors
	return found
}
