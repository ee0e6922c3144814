package nfsserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube/apply"
	"github.com/holdfast-storage/holdfast/operator/render"
)

// Upgrade updates servers to the release of an image of Holdfast, while the cluster is paused for it, and reports the
// progress. It updates a server only when those before it serve with the image, so that an image that does not serve
// stops one server and not all. next is NAMESPACE/NAME of the server that it waits for, in that order; "" when it waits
// for none. unawaited are those that do not serve with the image and are not waited for; began is when the upgrade did.
// If the StorageCluster names an image for servers, there is nothing to update.
func (c *Controller) Upgrade(ctx context.Context, image v1beta1.Image, began time.Time) (next, waiting string, unawaited []string, err error) {
	err = c.update(ctx, image, func(r *round) bool {
		key, why := keyOf(r.server).String(), r.outdated()
		switch {
		case why == "":
		case r.isAwaited(began):
			next, waiting = key, fmt.Sprintf("NFSServer %s: %s", key, why)
		default:
			unawaited = append(unawaited, key)
		}
		return next == ""
	})
	return next, waiting, unawaited, err
}

// RollBack updates all servers at once: one that does not serve must not hold up the others, and nothing waits for them,
// since the end of the pause restores all servers anyway.
func (c *Controller) RollBack(ctx context.Context, image v1beta1.Image) error {
	return c.update(ctx, image, func(*round) bool { return true })
}

// update makes a pass over each server with the image of an upgrade, in their order, until goesOn is false.
func (c *Controller) update(ctx context.Context, image v1beta1.Image, goesOn func(*round) bool) error {
	cluster, to := c.target(image)
	if to == "" {
		return nil
	}
	if err := cluster.Unreadable(); err != nil {
		return fmt.Errorf("%s cannot be read: %w", cluster.Name, err)
	}
	for _, cached := range inOrder(c.all()) {
		s := c.written.Newest(cached)
		if s.DeletionTimestamp != nil || s.Unreadable() != nil {
			continue
		}
		r, err := c.run(ctx, c.desiredOf(s, cluster, to))
		if err != nil || !goesOn(r) {
			return err
		}
	}
	return nil
}

// Workloads names the StatefulSets of all servers.
func (c *Controller) Workloads() (names []types.NamespacedName) {
	for _, s := range c.all() {
		names = append(names, types.NamespacedName{Namespace: s.Namespace, Name: objectName(s)})
	}
	return names
}

// isAwaited says whether an upgrade waits for a server. It does not for one that did not serve when the upgrade began,
// nor for one that cannot be updated because of what users of its namespace wrote or deleted, at any time since then:
// else a tenant could make every upgrade fail.
func (r *round) isAwaited(began time.Time) bool {
	available := find(&r.server.Status, v1beta1.AvailableCondition)
	stopped := available.Status == metav1.ConditionFalse && available.LastTransitionTime.Time.Before(began)
	barred := !r.barredAt.IsZero() && !r.barredAt.Before(began)
	return hasServed(&r.server.Status) && !stopped && !barred && r.invalid == nil && !r.isClaimForeign() && !r.isClaimLeaving()
}

// isClaimLeaving says whether no pod can start because users have deleted the claim. One that the controller creates is
// created again, unless the deletion does not end.
func (r *round) isClaimLeaving() bool {
	if r.claim == nil {
		return claimName(r.server) != "" && !makesClaim(r.server)
	}
	return r.claim.DeletionTimestamp != nil
}

// leavesFor is how long the deletion of an object may take before its users are held to prevent the end.
const leavesFor = time.Minute

// isBarred says whether users of the namespace keep an object of the server from being written.
func (r *round) isBarred(live func(apply.Ref) *unstructured.Unstructured) bool {
	return slices.ContainsFunc(r.Failures, func(f apply.Failure) bool {
		if f.Namespace != r.server.Namespace { // of the objects of all servers
			return false
		}
		if errors.Is(f, apply.ErrLeaving) {
			o := live(f.Ref)
			return o != nil && o.GetDeletionTimestamp() != nil && r.now.Sub(o.GetDeletionTimestamp().Time) > leavesFor
		}
		var contested *apply.ContestedError
		return errors.Is(f, apply.ErrForeign) || errors.As(f, &contested)
	})
}

// outdated says why a server does not serve with the image of an upgrade yet; "" if it does, even with a claim that
// cannot grow.
func (r *round) outdated() string {
	if len(r.Failures) == 0 && r.isCurrent() && r.serves() && render.ImageOf(&r.set.Spec.Template.Spec) == r.image {
		return ""
	}
	_, why := r.trouble()
	return why
}

// target returns the servers' image for an image of Holdfast; "" if the StorageCluster names an image for them.
func (c *Controller) target(image v1beta1.Image) (cluster *v1beta1.StorageCluster, to v1beta1.Image) {
	cluster = c.cluster()
	if cluster.Spec.Images.NFS != "" {
		return cluster, ""
	}
	return cluster, c.Release.NFSImage(image)
}

// Outdated returns the servers' image for an image of Holdfast, and the nodes of servers with another one.
func (c *Controller) Outdated(image v1beta1.Image) (to v1beta1.Image, nodes []string) {
	_, to = c.target(image)
	for _, s := range c.all() {
		for _, p := range c.podsOf(s) {
			if to != "" && p.Spec.NodeName != "" && render.ImageOf(&p.Spec) != to {
				nodes = append(nodes, p.Spec.NodeName)
			}
		}
	}
	if len(nodes) == 0 {
		return "", nil
	}
	slices.Sort(nodes)
	return to, slices.Compact(nodes)
}
