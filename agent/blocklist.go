package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/kube"
)

// The agent of a pool in a Ceph cluster shuts out the clients that spec.blocklist of its StorageNode lists, and reports in
// status.blocklist what the cluster has confirmed. What that has and the spec no longer lists is let in again, so that no
// agent needs to remember what an earlier one has done. What is to expire goes from the report only.

// keepBlocklist works until ctx ends, on the users of nodes too. Also without a change it looks regularly: entries of a blocklist
// expire, and an administrator may remove one.
func (a *Agent) keepBlocklist(ctx context.Context) {
	tick := time.NewTicker(a.SurveyEvery)
	defer tick.Stop()
	var retry <-chan time.Time
	for {
		retry = nil
		if err := a.reconcileBlocklist(ctx); err != nil && ctx.Err() == nil {
			a.log.Warn("the clients that are to be shut out of the Ceph cluster could not be brought up to date; trying again", "error", err)
			retry = time.After(min(a.SurveyEvery, fencedLook))
		}
		if err := a.reconcileNodeUsers(ctx); err != nil && ctx.Err() == nil {
			a.log.Warn("the users of nodes in the Ceph cluster could not be brought up to date; trying again", "error", err)
			retry = time.After(min(a.SurveyEvery, fencedLook))
		}
		select {
		case <-ctx.Done():
			return
		case <-a.ceph.dirty:
		case <-tick.C:
		case <-retry:
		}
	}
}

func (a *Agent) reconcileBlocklist(ctx context.Context) error {
	n := a.nodeObject().DeepCopy()
	if n == nil || len(n.Spec.Blocklist)+len(n.Status.Blocklist) == 0 {
		return nil
	}
	if err := readable(n); err != nil {
		return err
	}
	wanted, stay := map[string]bool{}, map[string]bool{}
	for _, r := range n.Spec.Blocklist {
		for _, address := range r.Addresses {
			stay[string(address)] = true
			if !r.Expire {
				wanted[string(address)] = true
			}
		}
	}
	has, err := a.confirmed(ctx, n)
	errs := []error{err}
	if err == nil {
		missing := slices.DeleteFunc(slices.Sorted(maps.Keys(wanted)), func(address string) bool { return slices.Contains(has, address) })
		if len(missing) > 0 {
			if err = a.announce(ctx, n); err == nil {
				err = a.fencer.Fence(ctx, missing)
			}
			if err == nil {
				has = append(has, missing...)
			}
		}
		errs = append(errs, err)
	}
	left, unfenceErr := a.unfence(ctx, n, stay)
	errs = append(errs, unfenceErr, a.writeBlocklist(ctx, n, has, left, err))
	return errors.Join(errs...)
}

// confirmed are the clients that Fence has returned for, and that have been shut out since.
func (a *Agent) confirmed(ctx context.Context, n *v1beta1.StorageNode) ([]string, error) {
	listed, err := a.fencer.Fenced(ctx)
	return slices.DeleteFunc(listed, func(address string) bool {
		return !slices.ContainsFunc(n.Status.Blocklist, func(e v1beta1.BlocklistEntry) bool { return slices.Contains(e.Addresses, v1beta1.CephAddress(address)) })
	}), err
}

// announce reports all that may be in the blocklist from now on, before it is: this process may be killed, and the next one
// must know what to let in again.
func (a *Agent) announce(ctx context.Context, n *v1beta1.StorageNode) error {
	next := n.DeepCopy().Status.Blocklist
	for _, r := range n.Spec.Blocklist {
		if r.Expire {
			continue
		}
		i := slices.IndexFunc(next, func(e v1beta1.BlocklistEntry) bool { return e.Node == r.Node })
		if i < 0 {
			i, next = len(next), append(next, v1beta1.BlocklistEntry{Node: r.Node})
		}
		for _, address := range r.Addresses {
			if e := &next[i]; !slices.Contains(e.Addresses, address) && !slices.Contains(e.Unconfirmed, address) {
				e.Unconfirmed = append(e.Unconfirmed, address)
			}
		}
	}
	return a.reportBlocklist(ctx, n, next)
}

// unfence lets in what was shut out and is not listed any more, and returns what could not be.
func (a *Agent) unfence(ctx context.Context, n *v1beta1.StorageNode, stay map[string]bool) (left []v1beta1.BlocklistEntry, err error) {
	var all []string
	out := map[string]int{} // the number of clients, by their node
	for _, e := range n.Status.Blocklist {
		stays := func(address v1beta1.CephAddress) bool { return stay[string(address)] }
		e.Addresses = slices.DeleteFunc(slices.Clone(e.Addresses), stays)
		e.Unconfirmed = slices.DeleteFunc(slices.Clone(e.Unconfirmed), stays)
		addresses := slices.Concat(e.Addresses, e.Unconfirmed)
		for _, address := range addresses {
			all = append(all, string(address))
		}
		out[e.Node] += len(addresses)
		if n.Spec.BlocklistOf(e.Node) == nil && len(addresses) > 0 {
			left = append(left, e)
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	if err := a.fencer.Unfence(ctx, all); err != nil {
		for i := range left {
			left[i].Message = kube.Shorten("not let in again: "+err.Error(), kube.LongestMessage)
		}
		return left, err
	}
	a.log.Info("clients are let into the Ceph cluster again", "addresses", all)
	for _, node := range slices.Sorted(maps.Keys(out)) {
		if out[node] > 0 {
			a.Events.Eventf(n, core.EventTypeNormal, "ClientsLetIn", "%d clients of node %s are let into the Ceph cluster again", out[node], node)
		}
	}
	return nil, nil
}

// writeBlocklist reports what the cluster has confirmed. why says why it has not confirmed all.
func (a *Agent) writeBlocklist(ctx context.Context, n *v1beta1.StorageNode, has []string, left []v1beta1.BlocklistEntry, why error) error {
	next := append([]v1beta1.BlocklistEntry{}, left...)
	for _, r := range n.Spec.Blocklist {
		if r.Expire {
			continue
		}
		e := v1beta1.BlocklistEntry{Node: r.Node, RequestedAt: r.RequestedAt.DeepCopy()}
		for _, address := range r.Addresses {
			if slices.Contains(has, string(address)) {
				e.Addresses = append(e.Addresses, address)
			} else {
				e.Unconfirmed = append(e.Unconfirmed, address)
			}
		}
		if why != nil {
			e.Message = kube.Shorten(why.Error(), kube.LongestMessage)
		}
		next = append(next, e)
	}
	before := n.Status
	if err := a.reportBlocklist(ctx, n, next); err != nil {
		return err
	}
	for _, e := range next {
		was := before.BlocklistOf(e.Node)
		if len(e.Addresses) > 0 && (was == nil || len(was.Addresses) < len(e.Addresses)) {
			a.log.Warn("clients are shut out of the Ceph cluster", "node", e.Node, "addresses", e.Addresses)
			a.Events.Eventf(n, core.EventTypeWarning, "ClientsShutOut", "%d clients of node %s are shut out of the Ceph cluster", len(e.Addresses), e.Node)
		}
	}
	return nil
}

func (a *Agent) reportBlocklist(ctx context.Context, n *v1beta1.StorageNode, next []v1beta1.BlocklistEntry) error {
	if equality.Semantic.DeepEqual(next, n.Status.Blocklist) || len(next)+len(n.Status.Blocklist) == 0 {
		return nil
	}
	if err := a.reportList(ctx, n, "blocklist", next); err != nil {
		return fmt.Errorf("%w: reporting the clients that are shut out: %w", backend.ErrUnavailable, err)
	}
	n.Status.Blocklist = next
	return nil
}

// reportList writes a list in the status of this agent's StorageNode that the publisher does not apply.
func (a *Agent) reportList(ctx context.Context, n *v1beta1.StorageNode, field string, list any) error {
	change := map[string]any{"metadata": map[string]any{"uid": n.UID}, "status": map[string]any{field: list}}
	_, err := kube.MergePatch(ctx, a.Client.HoldfastV1beta1().StorageNodes().Patch, a.Node, change, fieldManager, "status")
	return err
}
