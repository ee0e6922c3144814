package nfsserver

import (
	"fmt"
	"slices"

	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/kube/apply"
)

// A server has rights that who makes the NFSServer may not have: its account writes PersistentVolumes, and its pod mounts
// file systems. So the administrator says in which namespaces there may be servers, and in others nothing is made.
//
// A server that has rights already keeps them, and its volumes: it is of a release that did not ask, or its namespace was
// taken off the list. It gets no new volumes. What says that it has them is the Role in the namespace of Holdfast, which
// nobody can write who is not trusted with these rights anyway.

// entitled says whether all that a server asks for is made, its rights first.
func (r *Controller) entitled(s *v1.NFSServer, cluster *v1.StorageCluster) bool {
	return cluster.AllowsNFSServers(s.Namespace, r.Namespace) || r.hasRights(s)
}

// hasRights says whether a server was given its rights before, and they were not taken from it.
func (r *Controller) hasRights(s *v1.NFSServer) bool {
	if _, given := r.given.Load(s.UID); given {
		return true
	}
	live := r.Owned.Get(apply.Ref{
		GroupKind:      schema.GroupKind{Group: rbac.GroupName, Kind: "Role"},
		NamespacedName: types.NamespacedName{Namespace: r.Namespace, Name: rightsName},
	})
	if live == nil {
		return false
	}
	role := &rbac.Role{}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, role) != nil {
		return false
	}
	own := leasesOf(s)[0]
	return slices.ContainsFunc(role.Rules, func(rule rbac.PolicyRule) bool { return slices.Contains(rule.ResourceNames, own) })
}

// onlyEntitled leaves out the servers that have no rights, and get none.
func (r *Controller) onlyEntitled(servers []*v1.NFSServer) ([]*v1.NFSServer, error) {
	cluster, err := r.cluster()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(servers), func(s *v1.NFSServer) bool { return !r.entitled(s, cluster) }), nil
}

// stranger says why a server may not be where it is, and what allows it; "" if it may.
func (o *situation) stranger() string {
	namespace := o.server.Namespace
	if o.cluster.AllowsNFSServers(namespace, o.holdfast) {
		return ""
	}
	do := o.cluster.AllowNFSServers(namespace)
	if o.entitled {
		return fmt.Sprintf("namespace %s is not among those that may have NFS servers. The volumes that it has are served on, and it gets no new ones. "+
			"To allow it: %s", namespace, do)
	}
	return fmt.Sprintf("namespace %s is not among those that may have NFS servers, so nothing is made for it. To allow it: %s. "+
		"Or make the NFSServer in namespace %s", namespace, do, o.holdfast)
}
