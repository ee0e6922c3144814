// Package volume is what the leading replica of the controller does about volumes: it marks what is on nodes that are silent,
// gives up what shall not outlive its node and makes the claims of that again, lets go of what is on another node by now, and
// removes what nobody wants any more. It tells the users of volumes what is wrong with these, and claims why they wait.
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

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"

	listers "github.com/holdfast-storage/holdfast/api/client/listers/api/v1"
	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/backend/cluster"
	"github.com/holdfast-storage/holdfast/kube"
)

// Config is what a Controller needs.
type Config struct {
	Storage *cluster.Backend     // started before Run; its clients, watches and log are used
	Events  record.EventRecorder // nil writes no events

	RemindAfter time.Duration // how long a claim that fits nowhere goes without being told again; 0 means the default

	// Of what was asked for and is no longer wanted; 0 means the default.
	GarbageAge   time.Duration
	GarbageEvery time.Duration
}

// Controller sees to the volumes of a cluster, in one process at a time.
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
	told         map[types.UID]bool // volumes of whose loss was told, as long as they have objects

	unreadable kube.UnreadableReporter
}

func (c *Controller) leader() (*leader, error) {
	kinds := c.Storage.Watches.Holdfast.Holdfast().V1()
	l := &leader{
		Backend: c.Storage, Config: c.Config, told: map[types.UID]bool{},
		volumes: kinds.Volumes().Lister(), snapshots: kinds.Snapshots().Lister(), storageNodes: kinds.StorageNodes().Lister(),
		nodes: c.Storage.Watches.Cluster.Core().V1().Nodes().Lister(),
	}
	var err error
	l.loop, err = kube.NewLoop(kube.LoopConfig[string]{Name: "volume", Reconcile: l.reconcile, Log: l.Log})
	return l, err
}

// Run sees to volumes until ctx ends.
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
		if err := l.tellHealth(ctx); err != nil && ctx.Err() == nil {
			l.Log.Warn("the users of volumes are not told what is wrong with them", "error", err)
		}
	})
	if l.Driver != "" {
		parts.Go(func() {
			if err := l.explainWaiting(ctx); err != nil && ctx.Err() == nil {
				l.Log.Warn("claims that wait are not told why", "error", err)
			}
		})
	}
	return l.loop.Run(ctx)
}

func (l *leader) reconcile(ctx context.Context, node string) (again time.Duration, err error) {
	defer l.forgetTold()
	return l.look(ctx, node)
}

// forgetTold forgets what was told of volumes that are gone. The end of one on a silent node makes that node be looked
// at.
func (l *leader) forgetTold() {
	if len(l.told) == 0 {
		return
	}
	there := map[types.UID]bool{}
	for _, v := range all(l.volumes.List) {
		there[v.UID] = true
	}
	maps.DeleteFunc(l.told, func(uid types.UID, _ bool) bool { return !there[uid] })
}

// watch has a node looked at when its Node object comes, goes or is tainted, when something changes on it while its agent is
// silent, and when one of its pools turns up on another node.
func (l *leader) watch() error {
	kinds := l.Watches.Holdfast.Holdfast().V1()
	return errors.Join(
		l.loop.WatchChanges(l.Watches.Cluster.Core().V1().Nodes().Informer(),
			func(o any) []string { return []string{o.(*core.Node).Name} },
			func(old, now any) bool { return outOfService(old.(*core.Node)) != outOfService(now.(*core.Node)) }),
		l.loop.Watch(kinds.Volumes().Informer(), func(o any) []string { return l.ifSilent(o.(*v1.Volume).Spec.Node) }),
		l.loop.Watch(kinds.Snapshots().Informer(), func(o any) []string { return l.ifSilent(o.(*v1.Snapshot).Spec.Node) }),
		l.loop.WatchChanges(kinds.StorageNodes().Informer(),
			func(o any) []string { return l.othersOf(o.(*v1.StorageNode)) },
			func(old, now any) bool { return opened(old.(*v1.StorageNode), now.(*v1.StorageNode)) }),
	)
}

func (l *leader) ifSilent(node string) []string {
	if l.WhyDown(node) == "" {
		return nil
	}
	return []string{node}
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
func (l *leader) storageNode(name string) *v1.StorageNode {
	n, _ := l.storageNodes.Get(name) // it has no other error
	return n
}

// all is what a cache holds.
func all[T any](list func(labels.Selector) ([]T, error)) []T {
	found, _ := list(labels.Everything()) // a cache has no errors
	return found
}
