package cluster

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
)

// served returns, sorted, the namespaces with NFS servers that have served. A server of a release that did not check
// spec.nfs.namespaces, or whose namespace was removed from it, gets loop devices even when its pod is replaced:
// otherwise its volumes would be out of reach. Its StorageNode proves that it exists: only the server may write it, and
// it is deleted with the server.
func served(nodes []*v1beta1.StorageNode) (namespaces []string) {
	for _, n := range nodes {
		if namespace, _, is := v1beta1.ParseNFSNode(n.Name); is {
			namespaces = append(namespaces, namespace)
		}
	}
	slices.Sort(namespaces)
	return slices.Compact(namespaces)
}

// servers counts the NFSServers that block the removal of a StorageCluster, since it removes the operator that runs them.
type servers struct {
	all  int
	here int // in the namespace of Holdfast, which is deleted with the StorageCluster
}

// countServers reads from the API server, since it runs only while a StorageCluster is being deleted. If the kind or the
// right to read it is missing, there were never servers.
func (r *Controller) countServers(ctx context.Context) (n servers, err error) {
	found, err := r.Client.HoldfastV1beta1().NFSServers(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return n, nil
	}
	if err != nil {
		return n, err
	}
	n.all = len(found.Items)
	for i := range found.Items {
		if found.Items[i].Namespace == r.Namespace {
			n.here++
		}
	}
	return n, nil
}

// holdsUp says whether removing a StorageCluster would lose servers. Orphan leaves NFSServers running, except those in
// the namespace that is deleted.
func (s *situation) holdsUp(orphan bool) bool {
	if orphan {
		return s.servers.here > 0
	}
	return s.volumes+s.snapshots+s.servers.all+s.bound.volumes+s.bound.contents > 0
}

// lost says what would be lost.
func (s *situation) lost(orphan bool) string {
	switch {
	case orphan && s.servers.here > 0:
		return kube.Count(s.servers.here, "NFS server") + " in the namespace of Holdfast would be deleted with it, and the volumes there: delete them first"
	case s.servers.all > 0 && s.volumes+s.snapshots > 0:
		return fmt.Sprintf("%s, and %s: delete them, or set spec.deletionPolicy to Orphan to leave them as they are", s.kept(), kube.Count(s.servers.all, "NFS server"))
	case s.servers.all > 0:
		return kube.Count(s.servers.all, "NFS server") + " in the cluster: delete them, or set spec.deletionPolicy to Orphan to leave them as they are"
	case s.volumes+s.snapshots == 0:
		return kube.Count(s.bound.volumes, "PersistentVolume") + " and " + kube.Count(s.bound.contents, "VolumeSnapshotContent") +
			" of Holdfast exist: delete their claims and VolumeSnapshots, or them, or set spec.deletionPolicy to Orphan to leave the data on the disks"
	}
	return s.kept() + ": delete them, or set spec.deletionPolicy to Orphan to leave them on the disks"
}
