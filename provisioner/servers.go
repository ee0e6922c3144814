package provisioner

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	client "github.com/holdfast-storage/holdfast/api/client/clientset"
	holdfast "github.com/holdfast-storage/holdfast/api/client/informers"
	watch "github.com/holdfast-storage/holdfast/api/client/informers/api/v1beta1"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/kube"
)

// Servers watches all NFSServers, and the namespaces that may have them. Claims that name no server, or one without its
// namespace, are served by the oldest that is allowed.
type Servers struct {
	own       types.NamespacedName
	namespace string // of Holdfast
	all       watch.NFSServerIndexInformer
	clusters  watch.StorageClusterIndexInformer
	// Watches of the process for the kinds of Holdfast; Run starts them.
	Watches holdfast.SharedInformerFactory
}

// NewServers returns the servers from the view of the server own. Holdfast is installed in namespace.
func NewServers(own types.NamespacedName, namespace string, c client.Interface, log *slog.Logger) (*Servers, error) {
	watches := holdfast.NewSharedInformerFactoryWithOptions(c, 0, holdfast.WithTransform(kube.Slim))
	kinds := watches.Holdfast().V1beta1()
	s := &Servers{
		own, namespace, watch.ToTypedNFSServerInformer(kinds.NFSServers()).TypedInformer(),
		watch.ToTypedStorageClusterInformer(kinds.StorageClusters()).TypedInformer(), watches,
	}
	var logged atomic.Bool
	return s, s.all.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
		if ctx.Err() == nil && !logged.Swap(true) {
			log.Warn("the NFSServers cannot be watched; trying again", "error", err)
		}
	})
}

// Run watches until ctx ends.
func (s *Servers) Run(ctx context.Context) error {
	s.Watches.StartWithContext(ctx)
	<-ctx.Done()
	return nil
}

// OnChange calls f when a server is added or changes.
func (s *Servers) OnChange(f func()) error {
	_, err := s.all.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { f() }, UpdateFunc: func(any, any) { f() }})
	return err
}

// cluster returns the StorageCluster, or nil if there is none or it is not cached yet.
func (s *Servers) cluster() *v1beta1.StorageCluster {
	return v1beta1.Served(kube.AllIn[*v1beta1.StorageCluster](s.clusters.GetStore()))
}

// Refusal says why this server creates no new volumes: its namespace is not allowed, or it is being deleted and waits for
// the volumes that it has to go.
func (s *Servers) Refusal() error {
	served := s.cluster()
	switch {
	case !s.clusters.HasSynced():
		return fmt.Errorf("%w: it is not known yet whether namespace %s may have NFS servers", backend.ErrUnavailable, s.own.Namespace)
	case !served.AllowsNFSServers(s.own.Namespace, s.namespace):
		return fmt.Errorf("%w: NFS server %s gets no new volumes, since namespace %s is not among those that may have NFS servers. To allow it: %s",
			backend.ErrUnavailable, s.own, s.own.Namespace, served.AllowNFSServers(s.own.Namespace))
	}
	if own := s.Own(); own != nil && own.DeletionTimestamp != nil {
		return fmt.Errorf("%w: NFS server %s gets no new volumes, since it is being deleted", backend.ErrUnavailable, s.own)
	}
	return nil
}

// list returns the cached servers.
func (s *Servers) list() []*v1beta1.NFSServer {
	return kube.AllIn[*v1beta1.NFSServer](s.all.GetStore())
}

// Own returns the object of this server, or nil if it is not cached yet.
func (s *Servers) Own() *v1beta1.NFSServer {
	return kube.InStore[*v1beta1.NFSServer](s.all.GetStore(), s.own.String())
}

func (s *Servers) isOwn(server *v1beta1.NFSServer) bool {
	return server.Namespace == s.own.Namespace && server.Name == s.own.Name
}

// IsDefault says whether this server serves claims that name none.
func (s *Servers) IsDefault() bool { return s.isOldest("") }

// IsNamed says whether this server serves claims that give its name without a namespace.
func (s *Servers) IsNamed(name string) bool { return name == s.own.Name && s.isOldest(name) }

// isOldest says whether this server is the oldest that is allowed: of those with a name, or of all. It is false until
// the caches are filled.
func (s *Servers) isOldest(name string) bool {
	if !s.all.HasSynced() || !s.clusters.HasSynced() {
		return false
	}
	served := s.cluster()
	able := slices.DeleteFunc(s.list(), func(server *v1beta1.NFSServer) bool {
		return !served.AllowsNFSServers(server.Namespace, s.namespace) || server.Spec.Publish != nil || server.DeletionTimestamp != nil || name != "" && server.Name != name
	})
	return len(able) > 0 && s.isOwn(slices.MinFunc(able, v1beta1.ByAge))
}

// Known says whether a server with that NAME or NAMESPACE/NAME exists. It is true until the caches are filled.
func (s *Servers) Known(server string) bool {
	if !s.all.HasSynced() {
		return true
	}
	return slices.ContainsFunc(s.list(), func(known *v1beta1.NFSServer) bool {
		return server == known.Name || server == known.Namespace+"/"+known.Name
	})
}
