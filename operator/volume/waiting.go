package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/cluster"
	"github.com/holdfast-storage/holdfast/parameters"
)

// The scheduler says of a claim that fits nowhere only that nodes have not enough room. waiting says how much there is,
// in an event of the claim.
type waiting struct {
	*leader
	claims   corelisters.PersistentVolumeClaimLister
	classes  storagelisters.StorageClassLister
	dirty    chan struct{}
	reminded map[types.UID]reminder // claims that got an event
}

// reminder is the last event of a claim.
type reminder struct {
	asked int64
	when  time.Time
}

// lookAgainAfter bounds how often all claims that wait are looked at.
const lookAgainAfter = 2 * time.Second

// DefaultRemindAfter is shorter than API servers keep events, which is an hour.
const DefaultRemindAfter = 30 * time.Minute

func (l *leader) explainWaiting(ctx context.Context) error {
	w := &waiting{leader: l, dirty: make(chan struct{}, 1), reminded: map[types.UID]reminder{}}
	if err := w.watch(ctx); err != nil {
		return err
	}
	tick := time.NewTicker(lookAgainAfter)
	defer tick.Stop()
	remind := time.NewTicker(w.RemindAfter)
	defer remind.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.dirty:
		case <-remind.C:
		}
		w.survey(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (w *waiting) watch(ctx context.Context) error {
	claims, classes := w.Watches.Everywhere.Core().V1().PersistentVolumeClaims(), w.Watches.Cluster.Storage().V1().StorageClasses()
	w.claims, w.classes = claims.Lister(), classes.Lister()
	again := func() {
		select {
		case w.dirty <- struct{}{}:
		default: // it will look anyway
		}
	}
	changed := cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { again() }, UpdateFunc: func(_, _ any) { again() }, DeleteFunc: func(any) { again() },
	}
	heard, err := w.watchEnds(claims.Informer())
	if err != nil {
		return err
	}
	for _, informer := range []cache.SharedInformer{claims.Informer(), classes.Informer(), w.Watches.Holdfast.Holdfast().V1beta1().StorageNodes().Informer()} {
		registered, err := informer.AddEventHandler(changed)
		if err != nil {
			return err
		}
		context.AfterFunc(ctx, func() { _ = informer.RemoveEventHandler(registered) }) // the watch of nodes goes on without it
		heard = append(heard, registered.HasSyncedChecker())
	}
	w.Watches.Start()
	if !cache.WaitFor(ctx, "", heard...) {
		return errors.New("the cluster's claims could not be listed before this process stopped leading")
	}
	for _, node := range w.renewals.awaited() { // the end of a claim may have come before the watch
		w.loop.Enqueue(node)
	}
	return nil
}

// watchEnds wakes the leader at the end of a claim that is to be made again.
func (w *waiting) watchEnds(claims cache.SharedInformer) ([]cache.DoneChecker, error) {
	registered, err := claims.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(o any) {
		claim, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o)
		if node, ok := w.renewals.ended(claim); ok && err == nil {
			w.loop.Enqueue(node)
		}
	}})
	if err != nil {
		return nil, err
	}
	return []cache.DoneChecker{registered.HasSyncedChecker()}, nil
}

// survey writes an event for each claim that waits and fits nowhere, now and then.
func (w *waiting) survey(ctx context.Context) {
	short := map[types.UID]bool{}
	for _, c := range all(w.claims.List) {
		place, ours := w.placeOf(c)
		if c.Status.Phase != core.ClaimPending || !ours {
			continue
		}
		asked := c.Spec.Resources.Requests.Storage().Value()
		free, fits := w.free(ctx, place, asked)
		if fits {
			continue
		}
		short[c.UID] = true
		if was := w.reminded[c.UID]; was.asked == asked && time.Since(was.when) < w.RemindAfter {
			continue
		}
		w.reminded[c.UID] = reminder{asked, time.Now()}
		w.warnf(c, "NoRoom", "%s is requested, and %s", readable(asked), w.lacks(place, free))
	}
	for uid := range w.reminded {
		if !short[uid] {
			delete(w.reminded, uid)
		}
	}
}

// place is what a class says of where its volumes are.
type place struct {
	pool    string
	shared  bool
	server  string
	allowed []core.TopologySelectorTerm // none allows all
}

// allows says whether one of the terms names the node. What they say of other labels is for the scheduler to judge.
func (p place) allows(node string) bool {
	return len(p.allowed) == 0 || p.shared || slices.ContainsFunc(p.allowed, func(t core.TopologySelectorTerm) bool {
		for _, r := range t.MatchLabelExpressions {
			if r.Key == v1beta1.TopologyKey && !slices.Contains(r.Values, node) {
				return false
			}
		}
		return true
	})
}

// lacks says what is missing where there is only so much free.
func (w *waiting) lacks(p place, free []string) string {
	disallowed, why := w.DisallowedServers()
	switch {
	case p.shared && len(free) == 0 && slices.Contains(disallowed, p.server):
		return fmt.Sprintf("the class names a server that may get no volumes: %v.", w.Disallowed(v1beta1.NodeOfServer(p.server)))
	case p.shared && len(free) == 0 && p.server == "" && p.pool == "" && why != nil:
		return fmt.Sprintf("there is no NFS server in a namespace that may have one: %v.", why)
	case len(free) > 0 && p.shared:
		return fmt.Sprintf("no NFS server has that much free: %s. Request less, or grow its storage.", cluster.Few(free, ", "))
	case len(free) > 0:
		return fmt.Sprintf("no node has that much free in %s: %s. Request less, or free space.", cluster.PoolInWords(p.pool), cluster.Few(free, ", "))
	case p.server != "":
		return fmt.Sprintf("the class names the NFS server %s, which does not exist. Create it, or use another class.", p.server)
	case p.shared && p.pool != "":
		return fmt.Sprintf("no NFS server has %s. Use a class without the parameter pool.", cluster.PoolInWords(p.pool))
	case p.shared:
		return "there is no NFS server. Create an NFSServer."
	case len(p.allowed) > 0:
		return fmt.Sprintf("no node that the class allows has %s. See its allowedTopologies, and spec.pools of the StorageCluster.", cluster.PoolInWords(p.pool))
	default:
		return fmt.Sprintf("no node has %s. Add it to spec.pools of the StorageCluster, or use another class.", cluster.PoolInWords(p.pool))
	}
}

// placeOf returns what a claim's class says, and whether the class is of this driver.
func (w *waiting) placeOf(c *core.PersistentVolumeClaim) (p place, ours bool) {
	if c.Spec.StorageClassName == nil {
		return p, false
	}
	class, err := w.classes.Get(*c.Spec.StorageClassName)
	if err != nil || class.Provisioner != w.Driver {
		return p, false
	}
	return place{
		pool: class.Parameters[parameters.Pool], shared: class.Parameters[parameters.Shared] == "true", server: class.Parameters[parameters.NFSServer], allowed: class.AllowedTopologies,
	}, true
}

// free lists what each node or server has free, and says whether one of them has enough.
func (w *waiting) free(ctx context.Context, p place, asked int64) (free []string, fits bool) {
	for _, n := range w.Hosts(p.shared, p.server) {
		if !p.allows(n.Name) {
			continue
		}
		name := cmp.Or(v1beta1.ServerOf(n.Name), n.Name)
		c, err := w.CapacityAt(ctx, n.Name, p.pool)
		switch {
		case errors.Is(err, backend.ErrNotFound):
			continue
		case err != nil:
			free = append(free, fmt.Sprintf("%s (%v)", name, err))
			continue
		case min(c.Available, c.Largest) >= asked:
			return nil, true
		}
		free = append(free, name+" "+readable(min(c.Available, c.Largest)))
	}
	return free, false
}

// readable rounds down to what people compare.
func readable(bytes int64) string {
	return v1beta1.Quantity(max(bytes>>20, 0) << 20).String()
}
