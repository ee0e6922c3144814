package nodejob

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
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
		if err := c.giveUp(ctx, n.Name, job.Spec.Pool); err != nil {
			return fmt.Errorf("pool %s of node %s is wiped, but spec.replacePools could not be written: %w", job.Spec.Pool, n.Name, err)
		}
	}
	return nil
}

func (c *Controller) giveUp(ctx context.Context, node, pool string) error {
	nodes := c.Client.HoldfastV1beta1().StorageNodes()
	n, err := nodes.Get(ctx, node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	at := slices.IndexFunc(n.Status.Pools, func(p v1beta1.Pool) bool { return p.Name == pool })
	if at < 0 || n.Status.Pools[at].ID == "" {
		return nil
	}
	wiped := v1beta1.PoolReplacement{Name: pool, ID: n.Status.Pools[at].ID}
	all := slices.DeleteFunc(slices.Clone(n.Spec.ReplacePools), func(r v1beta1.PoolReplacement) bool { return r.Name == pool })
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": n.ResourceVersion}, "spec": map[string]any{"replacePools": append(all, wiped)},
	})
	if err != nil {
		return err
	}
	_, err = nodes.Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: component})
	return err
}
