package nodejob

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/operator/render"
)

func (c *Controller) settings() settings {
	s := settings{namespace: c.Namespace}
	cluster := cmp.Or(v1beta1.Served(kube.Cached(c.clusters.List)), &v1beta1.StorageCluster{})
	if err := cluster.Unreadable(); err != nil {
		s.unreadable = fmt.Sprintf("StorageCluster %s cannot be read: %v", cluster.Name, err)
	}
	s.image, s.pullSecrets, s.pools = c.Release.Images(cluster).Holdfast, cluster.Spec.ImagePullSecrets, v1beta1.NodePools(render.Pools(cluster))
	return s
}

// inUse says, by node, which volumes and snapshots prevent wiping a pool. It reads from the API server, since a volume may
// have been created a moment ago.
func (c *Controller) inUse(ctx context.Context, pool string, nodes map[string][]v1beta1.Pool) (map[string]string, error) {
	volumes, err := c.Client.HoldfastV1beta1().Volumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	snapshots, err := c.Client.HoldfastV1beta1().Snapshots().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	held := map[string][]string{}
	for _, v := range volumes.Items {
		// One that names no pool and is not created yet may end up in any.
		if p := cmp.Or(v.Status.Pool, v.Spec.Pool, pool); p == pool {
			held[v.Spec.Node] = append(held[v.Spec.Node], "volume "+v.Name)
		}
	}
	for _, s := range snapshots.Items {
		if p := cmp.Or(s.Status.Pool, pool); p == pool {
			held[s.Spec.Node] = append(held[s.Spec.Node], "snapshot "+s.Name)
		}
	}
	if names := held[""]; len(names) > 0 { // their node is unreadable
		for node := range nodes {
			held[node] = append(held[node], names...)
		}
	}
	refusals := map[string]string{}
	for node, names := range held {
		slices.Sort(names)
		refusals[node] = fmt.Sprintf("pool %s is not wiped while it holds something: %s; delete it first", pool, few(names))
	}
	return refusals, nil
}
