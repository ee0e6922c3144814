package nfsserver

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
)

func (c *Controller) reconcile(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	cached, _ := c.servers.NFSServers(key.Namespace).Get(key.Name) // the only error of a cache is that there is none
	if cached == nil {
		return c.reconcileGone(ctx, key)
	}
	s := c.written.Newest(cached)
	if s.Unreadable() != nil {
		return 0, c.reportUnreadable(ctx, s)
	}
	r, err := c.run(ctx, c.desiredOf(s, c.cluster(), ""))
	if err != nil {
		return c.behind(err)
	}
	next, events, again := r.conclude()
	if r.silent {
		return again, nil
	}
	if err := c.write(ctx, r.server, next, events); err != nil {
		return c.behind(err)
	}
	return again, nil
}

// behind returns when to retry after an error that only shows that a cache was behind.
func (c *Controller) behind(err error) (time.Duration, error) {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return c.StatusDelay, nil
	}
	return 0, err
}

// reconcileGone revokes the rights of a deleted server, and of all that are not cached.
func (c *Controller) reconcileGone(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	c.written.Forget(key.String())
	for _, kind := range []string{"nfsservers", "storageclusters"} {
		if !c.Whole(kind) { // it may be recreated with its kind, and its pod keeps running
			return c.StatusDelay, nil
		}
	}
	if behind, err := c.lacksServers(ctx); err != nil || behind {
		return c.StatusDelay, err
	}
	return 0, c.revoke(ctx, key, false)
}

// lacksServers says whether the cache has not all servers yet, as after their kind was recreated with them.
func (c *Controller) lacksServers(ctx context.Context) (lacks bool, err error) {
	live, err := c.Client.HoldfastV1beta1().NFSServers(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, fmt.Errorf("looking for NFS servers, before rights are revoked: %w", err)
	}
	return slices.ContainsFunc(live.Items, func(s v1beta1.NFSServer) bool {
		_, err := c.servers.NFSServers(s.Namespace).Get(s.Name)
		return err != nil
	}), nil
}

func (c *Controller) desiredOf(s *v1beta1.NFSServer, cluster *v1beta1.StorageCluster, image v1beta1.Image) desired {
	return desired{server: s, cluster: cluster, image: image, holdfast: c.Namespace, release: c.Release}
}

// run makes one pass over a server, up to its status.
func (c *Controller) run(ctx context.Context, d desired) (*round, error) {
	o, err := c.observe(ctx, d)
	if err != nil {
		return nil, err
	}
	r := &round{desired: d, observed: o, plan: newPlan(d, o)}
	if r.leaving != "" || r.finish {
		return r, c.applyRemoval(ctx, r)
	}
	return r, c.apply(ctx, r)
}

// apply carries out the plan of a server that is not removed. The outcome has what the API server refuses; the rest is
// applied all the same.
func (c *Controller) apply(ctx context.Context, r *round) (err error) {
	if r.finalizer {
		if r.server, err = c.written.AddFinalizer(ctx, r.server, v1beta1.OperatorFinalizer); err != nil {
			return err
		}
	}
	r.claimErr = r.claimRefused
	if r.claimErr == nil {
		r.claimErr = c.applyClaim(ctx, r)
	}
	if r.grant {
		r.came(c.grant(ctx, r.server))
	}
	for _, objects := range [][]*unstructured.Unstructured{r.network, r.workload} {
		if len(objects) > 0 {
			r.came(c.Servers.Apply(ctx, objects))
		}
	}
	if r.isBarred(c.Servers.Get) {
		c.barred.Store(r.server.UID, r.now)
	}
	if at, is := c.barred.Load(r.server.UID); is {
		r.barredAt = at.(time.Time)
	}
	if r.prune && len(r.Failures) == 0 {
		r.came(c.prune(ctx, r))
	}
	return ctx.Err()
}

func (o *outcome) came(part apply.Outcome) { o.Outcome = o.And(part) }

// prune removes objects of a server that only an earlier release or spec needed.
func (c *Controller) prune(ctx context.Context, r *round) apply.Outcome {
	keep := apply.Keeping(append(r.network, r.workload...))
	return c.Servers.Prune(ctx, func(o *unstructured.Unstructured) bool {
		return o.GetNamespace() != r.server.Namespace || o.GetLabels()[Label] != r.server.Name || keep(o)
	})
}

// applyClaim changes the PersistentVolume first: its data must outlive the claim, and a recreated claim must find it.
func (c *Controller) applyClaim(ctx context.Context, r *round) error {
	if r.patchVolume != nil {
		if err := c.patchVolume(ctx, r.server, r.patchVolume); err != nil {
			return err
		}
	}
	claims := c.Kubernetes.CoreV1().PersistentVolumeClaims(r.server.Namespace)
	if claim := r.makeClaim; claim != nil {
		if _, err := claims.Create(ctx, claim, metav1.CreateOptions{FieldManager: apply.FieldManager}); err != nil {
			return fmt.Errorf("claim %s cannot be created: %w", claim.Name, err)
		}
		if r.data != nil {
			c.Events.Event(r.server, core.EventTypeWarning, "ClaimRestored",
				fmt.Sprintf("claim %s was deleted; its data was kept in PersistentVolume %s, and the claim was recreated for it", claim.Name, r.data.Name))
		}
	}
	if claim := r.growClaim; claim != nil {
		if _, err := claims.Update(ctx, claim, metav1.UpdateOptions{FieldManager: apply.FieldManager}); err != nil {
			return fmt.Errorf("claim %s cannot grow to %s: %w", claim.Name, r.server.Spec.Storage.Size, err)
		}
	}
	return nil
}

// write writes the status if it differs, and events about the transitions.
func (c *Controller) write(ctx context.Context, s *v1beta1.NFSServer, next v1beta1.NFSServerStatus, events []event) error {
	written, changed, err := c.written.WriteStatus(ctx, s, next)
	if err != nil || !changed {
		return err
	}
	for _, e := range events {
		c.Events.Event(written, e.kind, e.reason, kube.Shorten(e.message, kube.LongestEvent))
	}
	return nil
}

// reportUnreadable reports a server that cannot be decoded, and leaves it running even if it is being deleted.
func (c *Controller) reportUnreadable(ctx context.Context, s *v1beta1.NFSServer) error {
	written, err := c.unreadable.Report(ctx, c.Client, s, apply.FieldManager)
	if written == nil {
		return err
	}
	c.written.Wrote(written.(*v1beta1.NFSServer))
	c.Events.Event(s, core.EventTypeWarning, v1beta1.ReasonUnreadable, kube.Shorten(kube.UnreadableMessage(s), kube.LongestEvent))
	return nil
}

// cluster returns the StorageCluster that is served, or an empty one, with the defaults, if there is none.
func (c *Controller) cluster() *v1beta1.StorageCluster {
	return cmp.Or(v1beta1.Served(kube.Cached(c.clusters.List)), &v1beta1.StorageCluster{})
}
