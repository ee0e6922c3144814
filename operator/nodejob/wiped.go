package nodejob

import (
	"context"
	"fmt"
	"slices"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
)

// giveUpWiped gives up the pools that were wiped: otherwise their nodes would wait for the old pool, and serve no new one
// in its place.
func (c *Controller) giveUpWiped(ctx context.Context, job *v1beta1.NodeJob, next v1beta1.NodeJobStatus) error {
	if job.Spec.Task != v1beta1.CleanupTask {
		return nil
	}
	for _, n := range next.Nodes {
		before := slices.IndexFunc(job.Status.Nodes, func(was v1beta1.NodeResult) bool { return was.Name == n.Name && was.Phase == v1beta1.JobCompleted })
		if n.Phase != v1beta1.JobCompleted || before >= 0 {
			continue
		}
		err := kube.EditNode(ctx, c.Client, n.Name, component, func(node *v1beta1.StorageNode) (map[string]any, error) {
			return giveUp(node, job.Spec.Pool), nil
		})
		if err != nil {
			return fmt.Errorf("pool %s of node %s is wiped, but spec.replacePools could not be written: %w", job.Spec.Pool, n.Name, err)
		}
	}
	return nil
}

// giveUp returns the change of a StorageNode that gives up a pool; nil if it has none of that name.
func giveUp(n *v1beta1.StorageNode, pool string) map[string]any {
	at := slices.IndexFunc(n.Status.Pools, func(p v1beta1.Pool) bool { return p.Name == pool })
	if at < 0 || n.Status.Pools[at].ID == "" {
		return nil
	}
	rest := slices.DeleteFunc(slices.Clone(n.Spec.ReplacePools), func(r v1beta1.PoolReplacement) bool { return r.Name == pool })
	return map[string]any{"replacePools": append(rest, v1beta1.PoolReplacement{Name: pool, ID: n.Status.Pools[at].ID})}
}
