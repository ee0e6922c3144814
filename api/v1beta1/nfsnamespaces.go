package v1beta1

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Served returns the StorageCluster that is served: the oldest that is not being deleted; the oldest of all if all are.
func Served(all []*StorageCluster) *StorageCluster {
	if len(all) == 0 {
		return nil
	}
	return slices.MinFunc(all, func(a, b *StorageCluster) int {
		if leaving := a.DeletionTimestamp != nil; leaving != (b.DeletionTimestamp != nil) {
			if leaving {
				return 1
			}
			return -1
		}
		return ByAge(a, b)
	})
}

// ByAge orders objects of a kind, the oldest first.
func ByAge[T metav1.Object](a, b T) int {
	made, later := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	return cmp.Or(made.Compare(later.Time), cmp.Compare(a.GetNamespace()+"/"+a.GetName(), b.GetNamespace()+"/"+b.GetName()))
}

// IsEverybody says whether a client of an NFS server is a network of all addresses.
func IsEverybody(client string) bool {
	p, err := netip.ParsePrefix(client)
	return err == nil && p.Bits() == 0
}

// AllowsNFSServers says whether NFSServers may live in a namespace: in that of Holdfast, and in those that
// spec.nfs.namespaces has. Without a StorageCluster, or with one that cannot be read, only the first is allowed.
func (o *StorageCluster) AllowsNFSServers(namespace, holdfast string) bool {
	if namespace == holdfast {
		return true
	}
	return o != nil && o.Unreadable() == nil && slices.Contains(o.Spec.NFS.Namespaces, namespace)
}

// AllowNFSServers says what an administrator does to allow NFSServers in a namespace.
func (o *StorageCluster) AllowNFSServers(namespace string) string {
	switch {
	case o == nil || o.Name == "":
		return fmt.Sprintf("make a StorageCluster with spec.nfs.namespaces: [%s]", namespace)
	case o.Unreadable() != nil:
		return fmt.Sprintf("correct StorageCluster %s, which cannot be read, and name the namespace in its spec.nfs.namespaces", o.Name)
	}
	all := append(slices.Clone(o.Spec.NFS.Namespaces), namespace)
	list, _ := json.Marshal(all) // of strings
	return fmt.Sprintf(`kubectl patch storageclusters.holdfast.dev %s --type=merge --patch='{"spec":{"nfs":{"namespaces":%s}}}'`, o.Name, list)
}
