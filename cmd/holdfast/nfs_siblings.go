package main

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	client "github.com/holdfast-storage/holdfast/api/client/clientset"
	holdfast "github.com/holdfast-storage/holdfast/api/client/informers"
	holdfastv1 "github.com/holdfast-storage/holdfast/api/client/informers/api/v1"
	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/kube"
)

// siblings are all servers of the cluster, and where there may be some. They know which server claims are for that name
// none, or one by its name alone: the oldest of those that make volumes.
type siblings struct {
	of       types.NamespacedName
	holdfast string // the namespace of Holdfast
	all      holdfastv1.NFSServerIndexInformer
	clusters holdfastv1.StorageClusterIndexInformer
	watches  holdfast.SharedInformerFactory
}

func newSiblings(of types.NamespacedName, namespace string, c client.Interface) *siblings {
	watches := holdfast.NewSharedInformerFactoryWithOptions(c, 0, holdfast.WithTransform(kube.Slim))
	kinds := watches.Holdfast().V1()
	return &siblings{
		of, namespace, holdfastv1.ToTypedNFSServerInformer(kinds.NFSServers()).TypedInformer(),
		holdfastv1.ToTypedStorageClusterInformer(kinds.StorageClusters()).TypedInformer(), watches,
	}
}

func (s *siblings) follow(log *slog.Logger) (part, error) {
	return startWatches(s.watches), s.all.SetWatchErrorHandlerWithContext(toldOnce(log, "the NFSServers cannot be watched; trying again"))
}

// cluster is the StorageCluster, nil as long as none is known.
func (s *siblings) cluster() *v1.StorageCluster {
	var all []*v1.StorageCluster
	for _, o := range s.clusters.GetIndexer().List() {
		all = append(all, o.(*v1.StorageCluster))
	}
	return v1.Served(all)
}

// refusal says why this server makes no new volumes: nobody has allowed it where it is.
func (s *siblings) refusal() error {
	served := s.cluster()
	switch {
	case !s.clusters.HasSynced():
		return fmt.Errorf("%w: it is not known yet whether namespace %s may have NFS servers", backend.ErrUnavailable, s.of.Namespace)
	case !served.AllowsNFSServers(s.of.Namespace, s.holdfast):
		return fmt.Errorf("%w: NFS server %s gets no new volumes, since namespace %s is not among those that may have NFS servers. To allow it: %s",
			backend.ErrUnavailable, s.of, s.of.Namespace, served.AllowNFSServers(s.of.Namespace))
	}
	return nil
}

// list is of all servers that are known.
func (s *siblings) list() (all []*v1.NFSServer) {
	for _, o := range s.all.GetIndexer().List() {
		all = append(all, o.(*v1.NFSServer))
	}
	return all
}

// own is the server itself, nil as long as it is not known.
func (s *siblings) own() *v1.NFSServer {
	for _, server := range s.list() {
		if s.isOwn(server) {
			return server
		}
	}
	return nil
}

func (s *siblings) isOwn(server *v1.NFSServer) bool {
	return server.Namespace == s.of.Namespace && server.Name == s.of.Name
}

// isDefault says whether claims that name no server are for this one.
func (s *siblings) isDefault() bool { return s.isOldest("") }

// isNamed says whether claims that name a server without its namespace are for this one.
func (s *siblings) isNamed(name string) bool { return name == s.of.Name && s.isOldest(name) }

// isOldest says whether this server is the oldest of a name, or of all, that may be where they are. Without the lists,
// nobody is.
func (s *siblings) isOldest(name string) bool {
	if !s.all.HasSynced() || !s.clusters.HasSynced() {
		return false
	}
	served := s.cluster()
	able := slices.DeleteFunc(s.list(), func(server *v1.NFSServer) bool {
		return !served.AllowsNFSServers(server.Namespace, s.holdfast) || server.Spec.Publish != nil || server.DeletionTimestamp != nil || name != "" && server.Name != name
	})
	return len(able) > 0 && s.isOwn(slices.MinFunc(able, byAge))
}

func byAge(a, b *v1.NFSServer) int {
	if by := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); by != 0 {
		return by
	}
	return strings.Compare(cache.MetaObjectToName(a).String(), cache.MetaObjectToName(b).String())
}

// known says whether there is a server of that NAME or NAMESPACE/NAME; without the list, nobody says that there is none.
func (s *siblings) known(server string) bool {
	if !s.all.HasSynced() {
		return true
	}
	return slices.ContainsFunc(s.list(), func(known *v1.NFSServer) bool {
		return server == known.Name || server == known.Namespace+"/"+known.Name
	})
}
