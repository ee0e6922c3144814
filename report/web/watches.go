package web

import (
	"time"

	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/holdfast-storage/holdfast/kube"
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
	warnings := s.Watches.Warnings()
	s.warnings = corelisters.NewEventLister(warnings.GetIndexer())
	s.optional = map[string]*optional{
		facts.Servers: {informer: kinds.NFSServers().Informer()}, facts.Jobs: {informer: kinds.NodeJobs().Informer()},
		facts.Upgrades: {informer: kinds.StorageUpgrades().Informer()}, facts.Warnings: {informer: warnings},
	}
	for kind, o := range s.optional {
		if err := o.follow(kind, s.Log); err != nil {
			return err
		}
	}
	return s.listenForLeases()
}

// listenForLeases notes when the API server is heard of. Each agent renews its Lease every 10 s, and so does the
// controller that leads: a watch of Leases that is silent for long is one that does not arrive.
func (s *Server) listenForLeases() error {
	_, err := s.Watches.Cluster.Coordination().V1().Leases().Informer().AddEventHandler(kube.OnChange(func(any) {
		now := s.clock.Now()
		s.heard.Store(&now)
	}))
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

// known is what the watches have. The caller may change the lists, and not what is in them.
func (s *Server) known() *facts.Facts {
	f := &facts.Facts{
		Namespace: s.Namespace, Now: s.clock.Now(), Hidden: map[string]error{}, Clusters: kube.Cached(s.clusters.List),
		StorageNodes: kube.Cached(s.nodes.List), Volumes: kube.Cached(s.volumes.List), Snapshots: kube.Cached(s.snapshots.List),
	}
	for kind, o := range s.optional {
		if err := o.hidden(); err != nil {
			f.Hidden[kind] = err
		}
	}
	f.Servers = unlessHidden(f, facts.Servers, s.servers.List)
	f.Jobs = unlessHidden(f, facts.Jobs, s.jobs.List)
	f.Upgrades = unlessHidden(f, facts.Upgrades, s.upgrades.List)
	f.Warnings = unlessHidden(f, facts.Warnings, s.warnings.List)
	return f
}

func unlessHidden[T any](f *facts.Facts, kind string, list func(labels.Selector) ([]T, error)) []T {
	if f.Hidden[kind] != nil {
		return nil
	}
	return kube.Cached(list)
}
