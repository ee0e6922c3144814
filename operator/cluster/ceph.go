package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/podstatus"
	"github.com/holdfast-storage/holdfast/operator/render"
	"github.com/holdfast-storage/holdfast/operator/rollout"
)

// cephSecrets follows the secrets that pools in Ceph clusters name. Only the one worker of the loop uses it.
type cephSecrets map[string]*kube.SecretWatch

// keysOf returns the keys in the secrets of the pools of a StorageCluster. What is not there is left out, so that who needs it
// says which it is.
func (r *Controller) keysOf(c *v1beta1.StorageCluster) (map[string][]byte, error) {
	names := render.CephSecrets(c)
	for name, watch := range r.cephSecrets {
		if !slices.Contains(names, name) {
			watch.Stop()
			delete(r.cephSecrets, name)
		}
	}
	keys := map[string][]byte{}
	pending := false
	for _, name := range names {
		if r.cephSecrets[name] == nil {
			r.cephSecrets[name] = kube.NewSecretWatch(r.Kubernetes, r.touch)
		}
		secret, known, refusal := r.cephSecrets[name].Get(types.NamespacedName{Namespace: r.Namespace, Name: name})
		switch {
		case refusal != nil:
			return nil, fmt.Errorf("spec.pools: the secret %s/%s of a Ceph cluster cannot be read: %w", r.Namespace, name, refusal)
		case !known:
			pending = true
		case secret != nil:
			keys[name] = secret.Data[v1beta1.CephKeyName]
		}
	}
	if pending {
		return nil, errNotYet
	}
	return keys, nil
}

// stop ends all watches.
func (s cephSecrets) stop() {
	for _, watch := range s {
		watch.Stop()
	}
}

// ailingSites says what is wrong with the pools in Ceph clusters: what their agents report, or why these do not run.
func (s *situation) ailingSites() (all []string) {
	for _, pool := range v1beta1.CephPools(s.cluster.Spec.Pools) {
		if !s.withCSI() {
			return nil
		}
		if why := s.siteTrouble(pool.Name); why != "" {
			all = append(all, fmt.Sprintf("pool %s: %s", pool.Name, why))
		}
	}
	return all
}

func (s *situation) siteTrouble(pool string) string {
	pods := slices.DeleteFunc(slices.Clone(s.sitePods), func(p *core.Pod) bool {
		return p.Labels[v1beta1.CephPoolLabel] != pool || p.DeletionTimestamp != nil || podstatus.HasEnded(p) // one that was evicted
	})
	if why := troubleOfPods(pods); why != "" {
		return why
	}
	site := s.storageNodes[v1beta1.NodeOfCephPool(pool)]
	if site == nil {
		return "" // it has only begun
	}
	if i := slices.IndexFunc(site.Status.Pools, func(p v1beta1.Pool) bool { return p.Name == pool }); i >= 0 && site.Status.Pools[i].Message != "" {
		return site.Status.Pools[i].Message
	}
	if ready := meta.FindStatusCondition(site.Status.Conditions, v1beta1.ReadyCondition); ready != nil && ready.Status != metav1.ConditionTrue {
		return ready.Message
	}
	if nodes := meta.FindStatusCondition(site.Status.Conditions, v1beta1.NodeUserRefusedCondition); nodes != nil && nodes.Status == metav1.ConditionTrue {
		return "nodes cannot use its volumes: " + nodes.Message
	}
	if w := s.sites[pool]; w.Rolling && w.Failed { // a pod that cannot be made, or does not begin
		return "it is served as before its last change: " + w.Waiting
	}
	return ""
}

// troubleOfPods says why no pod of a pool is ready, or why a newer one cannot replace the one that is.
func troubleOfPods(pods []*core.Pod) (trouble string) {
	ready := slices.IndexFunc(pods, podstatus.IsReady)
	for _, p := range pods {
		if podstatus.IsReady(p) {
			continue
		}
		why, failed := rollout.Trouble(p)
		switch {
		case why == "":
		case ready < 0 && (failed || trouble == ""): // what has failed says more than what only waits
			trouble = fmt.Sprintf("pod %s is not ready: %s", p.Name, why)
		case ready >= 0 && failed && pods[ready].CreationTimestamp.Before(&p.CreationTimestamp):
			return fmt.Sprintf("pod %s goes on as before, since pod %s, which is to replace it, cannot: %s", pods[ready].Name, p.Name, why)
		}
	}
	return trouble
}

// rollingSite says which pool gets another pod; "" if none does. One that cannot be served by it is reported by ailingSites.
func (s *situation) rollingSite() string {
	for _, pool := range v1beta1.CephPools(s.cluster.Spec.Pools) {
		if w := s.sites[pool.Name]; w.Rolling && !w.Failed {
			return w.Waiting
		}
	}
	return ""
}

// onlySites says whether all pools are in Ceph clusters: nodes then have none, and need none.
func (s *situation) onlySites() bool {
	return len(v1beta1.NodePools(render.Pools(s.cluster))) == 0
}

func (r *Controller) podsOfSites() []*core.Pod {
	pods := r.podsOf(v1beta1.CephComponent)
	slices.SortFunc(pods, func(a, b *core.Pod) int { return strings.Compare(a.Name, b.Name) })
	return pods
}

// forgetSites deletes the StorageNodes and Leases of pools that are gone, as soon as nothing is in them and no pod is there that
// would write them again.
func (r *Controller) forgetSites(ctx context.Context, s *situation) error {
	for name := range s.storageNodes {
		pool := v1beta1.CephPoolOf(name)
		if pool == "" || slices.ContainsFunc(v1beta1.CephPools(s.cluster.Spec.Pools), func(p v1beta1.PoolSpec) bool { return p.Name == pool }) {
			continue
		}
		_, occupied := s.onNodes[name]
		if occupied || slices.ContainsFunc(s.sitePods, func(p *core.Pod) bool { return p.Labels[v1beta1.CephPoolLabel] == pool }) {
			continue
		}
		if err := kube.IgnoreNotFound(r.Client.HoldfastV1beta1().StorageNodes().Delete(ctx, name, metav1.DeleteOptions{})); err != nil {
			return err
		}
		for _, lease := range []string{v1beta1.LeasePrefix + name, v1beta1.LeaseOfCephPool(pool)} {
			if err := kube.IgnoreNotFound(r.Kubernetes.CoordinationV1().Leases(r.Namespace).Delete(ctx, lease, metav1.DeleteOptions{})); err != nil {
				return err
			}
		}
		r.Log.Info("a pool in a Ceph cluster is gone, and its StorageNode with it", "pool", pool)
	}
	return nil
}
