package cluster

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/holdfast-storage/holdfast/kube"
)

// leader sees to nodes that are down and to volumes that nobody wants any more.
type leader struct {
	*Backend
	nodes    cache.Indexer // Node objects, stripped
	queue    workqueue.TypedRateLimitingInterface[string]
	renewals renewals
	told     map[types.UID]bool // volumes of whose loss was told, as long as they have objects

	unreadable kube.UnreadableReporter
}

// Lead does what one process at a time must do, until ctx ends. Start must have returned.
func (b *Backend) Lead(ctx context.Context) error {
	l := &leader{Backend: b, told: map[types.UID]bool{}, queue: workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](100*time.Millisecond, time.Minute))}
	defer l.queue.ShutDown()
	if err := l.watchNodes(ctx); err != nil {
		return err
	}
	b.lead(l.queue.Add)
	defer b.lead(nil)
	for node := range l.everyNode() {
		l.queue.Add(node)
	}
	var parts sync.WaitGroup
	parts.Go(func() { l.collectRegularly(ctx) })
	parts.Go(func() {
		if err := l.tellHealth(ctx); err != nil && ctx.Err() == nil {
			l.log.Warn("the users of volumes are not told what is wrong with them", "error", err)
		}
	})
	if l.Driver != "" {
		parts.Go(func() {
			if err := l.explainWaiting(ctx); err != nil && ctx.Err() == nil {
				l.log.Warn("claims that wait are not told why", "error", err)
			}
		})
	}
	context.AfterFunc(ctx, l.queue.ShutDown)
	for {
		node, over := l.queue.Get()
		if over {
			parts.Wait()
			return nil
		}
		l.attendOnce(ctx, node)
	}
}

func (b *Backend) lead(touch func(string)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.touch = touch
}

func (l *leader) attendOnce(ctx context.Context, node string) {
	defer l.queue.Done(node)
	err := l.look(ctx, node)
	l.forgetTold()
	switch {
	case err == nil:
		l.queue.Forget(node)
	case ctx.Err() == nil:
		l.log.Warn("a node that is down could not be seen to; trying again", "node", node, "error", err)
		l.queue.AddRateLimited(node)
	}
}

// forgetTold forgets what was told of volumes that are gone. The end of one on a silent node makes that node be looked
// at.
func (l *leader) forgetTold() {
	if len(l.told) == 0 {
		return
	}
	there := map[types.UID]bool{}
	for _, v := range l.allVolumes() {
		there[v.UID] = true
	}
	maps.DeleteFunc(l.told, func(uid types.UID, _ bool) bool { return !there[uid] })
}

// watchNodes keeps the Node objects' names and taints.
func (l *leader) watchNodes(ctx context.Context) error {
	informer := l.Watches.Cluster.Core().V1().Nodes().Informer()
	l.nodes = informer.GetIndexer()
	nodes := cache.NewTypedSharedIndexInformer[*core.Node](informer)
	registered, err := nodes.AddTypedEventHandler(cache.TypedResourceEventHandlerFuncs[*core.Node]{
		AddFunc: func(n *core.Node) { l.queue.Add(n.Name) },
		UpdateFunc: func(old, n *core.Node) {
			if outOfService(old) != outOfService(n) {
				l.queue.Add(n.Name)
			}
		},
		DeleteFunc: func(d cache.DeletedObject[*core.Node]) { l.queue.Add(d.GetName()) },
	})
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = informer.RemoveEventHandler(registered) })
	l.Watches.Start()
	if !cache.WaitFor(ctx, "", registered.HasSyncedChecker()) {
		return errors.New("the cluster's nodes could not be listed before this process stopped leading")
	}
	return nil
}

// everyNode names each node that has an agent or an object.
func (l *leader) everyNode() map[string]bool {
	all := map[string]bool{}
	for _, n := range l.allNodes() {
		all[n.Name] = true
	}
	for _, v := range l.allVolumes() {
		all[v.Spec.Node] = true
	}
	for _, s := range l.allSnapshots() {
		all[s.Spec.Node] = true
	}
	return all
}
