package nfsserver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
)

// maintain makes all that a server asks for and says where it stands. With a spec that cannot be served, what runs is left
// as it is.
func (r *Controller) maintain(ctx context.Context, s *v1.NFSServer, cluster *v1.StorageCluster, image v1.Image) (*situation, time.Duration, error) {
	for _, o := range []v1.Object{s, cluster} {
		if err := o.Unreadable(); err != nil {
			return nil, 0, fmt.Errorf("%s cannot be read: %w", o.GetName(), err)
		}
	}
	if !r.entitled(s, cluster) { // the StorageCluster is watched
		o, err := r.observe(s, cluster)
		return o, 0, err
	}
	others, err := r.servers.NFSServers(s.Namespace).List(labels.Everything())
	if err != nil {
		return nil, 0, err
	}
	if invalid := check(s, others); invalid != nil {
		o, err := r.observe(s, cluster)
		if err != nil {
			return nil, 0, err
		}
		o.invalid = invalid
		return o, kube.RetryRefused, nil // another server may have gone
	}
	claimErr := r.seeToClaim(ctx, s)
	if claimErr == nil {
		claimErr = r.keepData(ctx, s)
	}
	in := input{server: s, cluster: cluster, namespace: r.Namespace, release: r.Release, image: image, node: r.stays(s), closing: r.closingOf(s, cluster)}
	out, wanted, err := r.apply(ctx, in, !errors.Is(claimErr, errForeignClaim))
	if err != nil {
		return nil, 0, err
	}
	o, err := r.observe(s, cluster)
	if err != nil {
		return nil, 0, err
	}
	o.failures, o.claimErr = out.Failures, claimErr
	again := out.Again
	if wanted != nil && len(out.Failures) == 0 {
		o.failures = r.prune(ctx, s, wanted)
	}
	if len(o.failures) > 0 || claimErr != nil {
		again = kube.Sooner(again, kube.RetryRefused)
	}
	return o, again, ctx.Err()
}

// apply makes the rights, the Service and the pod, which must know the address. Without pod it leaves that as it is.
func (r *Controller) apply(ctx context.Context, in input, pod bool) (out apply.Outcome, wanted []*unstructured.Unstructured, err error) {
	for _, o := range r.seeToRights(ctx, in.server) {
		out = out.And(o)
	}
	in.address = r.address(in.server)
	first, err := service(in)
	if err != nil {
		return out, nil, err
	}
	shut, err := network(in)
	if err != nil {
		return out, nil, err
	}
	first = append(first, shut...)
	out = out.And(r.Servers.Apply(ctx, first))
	// Without an address, the Service could not be made, and says why.
	if in.address = r.address(in.server); in.address == "" || !pod {
		return out, nil, nil
	}
	out = out.And(r.limitTo(ctx, in.server)) // before its pod writes the address
	in.renewed = r.renewed(in.server)
	rest, err := workload(in)
	if err != nil {
		return out, nil, err
	}
	return out.And(r.Servers.Apply(ctx, rest)), append(first, rest...), nil
}

// prune removes what an earlier release or spec has made for a server and this one does not.
func (r *Controller) prune(ctx context.Context, s *v1.NFSServer, wanted []*unstructured.Unstructured) []apply.Failure {
	keep := apply.Keeping(wanted)
	return r.Servers.Prune(ctx, func(o *unstructured.Unstructured) bool {
		return o.GetNamespace() != s.Namespace || o.GetLabels()[Label] != s.Name || keep(o)
	}).Failures
}
