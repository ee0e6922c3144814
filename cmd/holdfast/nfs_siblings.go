package main

import (
	"context"
	"log/slog"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	client "github.com/holdfast-storage/holdfast/api/client/clientset"
	holdfast "github.com/holdfast-storage/holdfast/api/client/informers"
	holdfastv1 "github.com/holdfast-storage/holdfast/api/client/informers/api/v1"
	v1 "github.com/holdfast-storage/holdfast/api/v1"
)

// siblings are all servers of the cluster. They know which server claims are for that name none, or one by its name
// alone: the oldest of those that make volumes.
type siblings struct {
	of  types.NamespacedName
	all holdfastv1.NFSServerIndexInformer
}

func newSiblings(of types.NamespacedName, c client.Interface) *siblings {
	servers := holdfast.NewSharedInformerFactory(c, 0).Holdfast().V1().NFSServers()
	return &siblings{of, holdfastv1.ToTypedNFSServerInformer(servers).TypedInformer()}
}

func (s *siblings) follow(log *slog.Logger) part {
	return func(ctx context.Context) error {
		if err := s.all.SetWatchErrorHandlerWithContext(toldOnce(log)); err != nil {
			return err
		}
		s.all.RunWithContext(ctx)
		return nil
	}
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

// isOldest says whether this server is the oldest of a name, or of all. Without the list, nobody is.
func (s *siblings) isOldest(name string) bool {
	if !s.all.HasSynced() {
		return false
	}
	able := slices.DeleteFunc(s.list(), func(server *v1.NFSServer) bool {
		return server.Spec.Publish != nil || server.DeletionTimestamp != nil || name != "" && server.Name != name
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
