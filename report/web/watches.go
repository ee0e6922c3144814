package web

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"github.com/holdfast-storage/holdfast/report/facts"
)

// watch takes part in the watches of the process.
func (s *Server) watch() error {
	kinds := s.Watches.Holdfast.Holdfast().V1beta1()
	s.clusters, s.nodes = kinds.StorageClusters().Lister(), kinds.StorageNodes().Lister()
	s.volumes, s.snapshots = kinds.Volumes().Lister(), kinds.Snapshots().Lister()
	s.synced = []cache.DoneChecker{
		kinds.StorageClusters().Informer().HasSyncedChecker(), kinds.StorageNodes().Informer().HasSyncedChecker(),
		kinds.Volumes().Informer().HasSyncedChecker(), kinds.Snapshots().Informer().HasSyncedChecker(),
	}
	s.servers, s.jobs, s.upgrades = kinds.NFSServers().Lister(), kinds.NodeJobs().Lister(), kinds.StorageUpgrades().Lister()
	warnings := s.Watches.Warnings.Core().V1().Events()
	s.warnings = warnings.Lister()
	s.optional = map[string]cache.DoneChecker{
		facts.Servers: kinds.NFSServers().Informer().HasSyncedChecker(), facts.Jobs: kinds.NodeJobs().Informer().HasSyncedChecker(),
		facts.Upgrades: kinds.StorageUpgrades().Informer().HasSyncedChecker(), facts.Warnings: warnings.Informer().HasSyncedChecker(),
	}
	return errors.Join(s.reportFailure(warnings.Informer()), s.listenForLeases())
}

// reportFailure keeps why the warnings cannot be read, and logs it once rather than at each attempt.
func (s *Server) reportFailure(of cache.SharedIndexInformer) error {
	return of.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		if !apierrors.IsForbidden(err) {
			cache.DefaultWatchErrorHandler(ctx, r, err)
			return
		}
		if s.forbidden.Swap(&err) == nil {
			s.Log.Warn("the API cannot show events: apply the manifest of this release, which lets the controller read them", "error", err)
		}
	})
}

// listenForLeases notes when the API server is heard of. Each agent renews its Lease every 10 s, and so does the
// controller that leads: a watch of Leases that is silent for long is one that does not arrive.
func (s *Server) listenForLeases() error {
	hear := func() { now := s.clock.Now(); s.heard.Store(&now) }
	_, err := s.Watches.Cluster.Coordination().V1().Leases().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { hear() }, UpdateFunc: func(_, _ any) { hear() }, DeleteFunc: func(any) { hear() },
	})
	return err
}

// age is how long ago the API server was heard of. It is not known before the first Lease arrives.
func (s *Server) age() (age time.Duration, known bool) {
	heard := s.heard.Load()
	if heard == nil {
		return 0, false
	}
	return max(s.clock.Since(*heard), 0), true
}

// known is what the watches have, of which reading has no error. The caller may change the lists, and not what is in them.
func (s *Server) known() *facts.Facts {
	f := &facts.Facts{Namespace: s.Namespace, Now: s.clock.Now(), Hidden: map[string]error{}}
	f.Clusters, _ = s.clusters.List(labels.Everything())
	f.StorageNodes, _ = s.nodes.List(labels.Everything())
	f.Volumes, _ = s.volumes.List(labels.Everything())
	f.Snapshots, _ = s.snapshots.List(labels.Everything())
	f.Servers, _ = s.servers.List(labels.Everything())
	f.Jobs, _ = s.jobs.List(labels.Everything())
	f.Upgrades, _ = s.upgrades.List(labels.Everything())
	f.Warnings, _ = s.warnings.List(labels.Everything())
	for kind, synced := range s.optional {
		if !cache.IsDone(synced) {
			f.Hidden[kind] = errors.New("they could not be read so far")
		}
	}
	if err := s.forbidden.Load(); err != nil && f.Hidden[facts.Warnings] != nil {
		f.Hidden[facts.Warnings] = fmt.Errorf("the controller has no right to read them, apply the manifest of this release: %w", *err)
	}
	return f
}
