// Package volume is the volume controller of the leading replica. It runs five loops over the objects and caches of the
// cluster's Backend: nodes whose agent is silent, with their volumes and the claims of those that are given up; faults of
// volumes; claims that fit nowhere; pods that fit nowhere; and unused volumes.
//
// Each loop observes, plans and applies. The plans are pure: planNode (plan.go), planHealth (health.go), planWaiting
// (waiting.go), planUnplaced (unplaced.go) and planGarbage (garbage.go).
package volume

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
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

	RemindAfter time.Duration // the interval of events for a claim or pod that fits nowhere; 0 means the default

	// The minimum age of unused volumes to delete; 0 means the default.
	GarbageAge   time.Duration
	GarbageEvery time.Duration
}

// Controller reconciles the volumes of a cluster, in one process at a time.
type Controller struct{ Config }

// New checks the configuration. It starts no watch: a replica that does not lead needs none.
func New(c Config) (*Controller, error) {
	if c.Storage == nil {
		return nil, errors.New("the volume controller needs a cluster's backend")
	}
	c.GarbageAge, c.GarbageEvery = cmp.Or(c.GarbageAge, DefaultGarbageAge), cmp.Or(c.GarbageEvery, DefaultGarbageEvery)
	c.RemindAfter, c.Events = cmp.Or(c.RemindAfter, DefaultRemindAfter), cmp.Or(c.Events, kube.NoEvents)
	kinds := c.Storage.Watches.Holdfast.Holdfast().V1beta1()
	return &Controller{c}, errors.Join(
		kinds.Volumes().Informer().AddIndexers(cache.Indexers{byRenewedClaim: renewedClaim, byPool: poolOf}),
		kinds.Snapshots().Informer().AddIndexers(cache.Indexers{byPool: poolOf}),
	)
}

// leader is the state of one term as leader. Each field below a loop is used by that loop alone, which has one worker;
// that of nodes has eight.
type leader struct {
	*cluster.Backend
	Config
	volumes      listers.VolumeLister
	snapshots    listers.SnapshotLister
	storageNodes listers.StorageNodeLister
	nodes        corelisters.NodeLister
	claims       corelisters.PersistentVolumeClaimLister // nil if the Backend has no driver
	classes      storagelisters.StorageClassLister       // nil if the Backend has no driver

	nodeLoop   *kube.Loop[string] // of the names of nodes and servers
	reported   sync.Map           // by node: its volumes whose loss or move has an event, a map[types.UID]bool of the worker that has the node
	unreadable kube.UnreadableReporter

	healthLoop *kube.Loop[string] // of the names of volumes
	faults     map[string]fault   // the last fault of each volume that is known, by name

	waitingLoop *kube.Loop[string] // of one key
	reminded    map[types.UID]reminder
	surveyed    time.Time

	unplacedLoop *kube.Loop[string] // of one key
	unplaced     map[types.UID]time.Time

	garbageLoop *kube.Loop[string] // of one key
}

// everything is the only key of the loops that have one.
const everything = "all"

func (c *Controller) leader() (*leader, error) {
	kinds := c.Storage.Watches.Holdfast.Holdfast().V1beta1()
	l := &leader{
		Backend: c.Storage, Config: c.Config, faults: map[string]fault{},
		volumes: kinds.Volumes().Lister(), snapshots: kinds.Snapshots().Lister(), storageNodes: kinds.StorageNodes().Lister(),
		nodes: c.Storage.Watches.Cluster.Core().V1().Nodes().Lister(),
	}
	var errs []error
	for loop, config := range map[**kube.Loop[string]]kube.LoopConfig[string]{
		&l.nodeLoop:     {Name: "volume", Reconcile: l.reconcileNode, Workers: 8},
		&l.healthLoop:   {Name: "volume-health", Reconcile: l.reconcileHealth},
		&l.waitingLoop:  {Name: "waiting-claims", Reconcile: l.reconcileWaiting},
		&l.unplacedLoop: {Name: "unplaced-pods", Reconcile: l.reconcileUnplaced},
		&l.garbageLoop:  {Name: "unused-volumes", Reconcile: l.reconcileGarbage, RetryFirst: l.GarbageEvery},
	} {
		var err error
		config.Log = l.Log
		*loop, err = kube.NewLoop(config)
		errs = append(errs, err)
	}
	return l, errors.Join(errs...)
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
	l.OnNodeChange(l.nodeLoop.Enqueue)
	defer l.OnNodeChange(nil)
	for node := range l.everyNode() {
		l.nodeLoop.Enqueue(node)
	}
	l.garbageLoop.EnqueueAfter(everything, l.GarbageEvery)
	var others sync.WaitGroup
	defer others.Wait()
	for _, loop := range []*kube.Loop[string]{l.healthLoop, l.waitingLoop, l.unplacedLoop, l.garbageLoop} {
		others.Go(func() { _ = loop.Run(ctx) }) // it ends with ctx, and has no errors
	}
	return l.nodeLoop.Run(ctx)
}

// reportedOn returns the volumes of a node whose loss or move has an event, and forgets those that are gone. The deletion of
// one on a silent node queues that node.
func (l *leader) reportedOn(node string, volumes []*v1beta1.Volume) map[types.UID]bool {
	before, _ := l.reported.LoadOrStore(node, map[types.UID]bool{}) // a node has one worker at a time
	reported := map[types.UID]bool{}
	for _, v := range volumes {
		if before.(map[types.UID]bool)[v.UID] {
			reported[v.UID] = true
		}
	}
	if len(reported) > 0 {
		l.reported.Store(node, reported)
	} else {
		l.reported.Delete(node)
	}
	return reported
}

// everyNode names each node that has an agent or an object.
func (l *leader) everyNode() map[string]bool {
	names := map[string]bool{}
	for _, n := range kube.Cached(l.storageNodes.List) {
		names[n.Name] = true
	}
	for _, v := range kube.Cached(l.volumes.List) {
		names[v.Spec.Node] = true
	}
	for _, s := range kube.Cached(l.snapshots.List) {
		names[s.Spec.Node] = true
	}
	return names
}
