package v1beta1

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
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
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
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
	return fmt.Sprintf(`kubectl patch storagecluster %s --type=merge --patch='{"spec":{"nfs":{"namespaces":%s}}}'`, o.Name, list)
}
