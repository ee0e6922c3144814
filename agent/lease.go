package agent

import (
	"context"
	"time"

	coordination "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
)

// showLife renews the node's Lease, four times within its duration.
func (a *Agent) showLife(ctx context.Context) {
	var held *coordination.Lease
	wait.NonSlidingUntilWithContext(ctx, func(ctx context.Context) {
		var err error
		if held, err = a.renew(ctx, held); err != nil && ctx.Err() == nil {
			a.log.Warn("this node will count as down if its Lease is not renewed; trying again", "lease", v1beta1.LeasePrefix+a.Node, "error", err)
		}
	}, a.Lease/4)
}

// renew updates the Lease from the last written version; after a failure it reads the Lease again.
func (a *Agent) renew(ctx context.Context, held *coordination.Lease) (*coordination.Lease, error) {
	leases := a.Kubernetes.CoordinationV1().Leases(a.Namespace)
	if held == nil {
		var err error
		if held, err = kube.Live(ctx, leases.Get, v1beta1.LeasePrefix+a.Node); err != nil {
			return nil, err
		}
	}
	seconds, now := int32(a.Lease/time.Second), metav1.NowMicro()
	next := &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: v1beta1.LeasePrefix + a.Node}}
	write := func() (*coordination.Lease, error) {
		return leases.Create(ctx, next, metav1.CreateOptions{FieldManager: fieldManager})
	}
	acquired := &now
	if held != nil {
		next, acquired = held.DeepCopy(), held.Spec.AcquireTime
		write = func() (*coordination.Lease, error) {
			return leases.Update(ctx, next, metav1.UpdateOptions{FieldManager: fieldManager})
		}
	}
	next.Spec = coordination.LeaseSpec{HolderIdentity: &a.Node, LeaseDurationSeconds: &seconds, AcquireTime: acquired, RenewTime: &now}
	written, err := write()
	if err != nil {
		return nil, err // the returned Lease is not valid
	}
	return written, nil
}
