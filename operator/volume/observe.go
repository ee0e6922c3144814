package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/parameters"
)

// observeNode reads the caches. It asks the API server only for claims of volumes that are given up, and for a silent node
// that is gone by the cache of Nodes: that may be behind, and what is given up does not come back.
func (l *leader) observeNode(ctx context.Context, name string) (nodeObserved, error) {
	o := nodeObserved{
		name: name, down: l.WhyDown(name), volumes: l.VolumesOn(name), snapshots: l.SnapshotsOn(name),
		claims: map[types.UID]*core.PersistentVolumeClaim{},
	}
	o.reported = l.reportedOn(name, o.volumes)
	o.storageNode, _ = l.storageNodes.Get(name) // the only error of a cache is that there is none
	if o.down != "" {
		o.doubt, o.heard = l.InDoubt(name), l.LastHeardOf(name)
		o.node, _ = l.nodes.Get(name)
	}
	var err error
	if o.isSilent() && o.outage().gone() {
		if o.node, err = kube.Live(ctx, l.Kubernetes.CoreV1().Nodes().Get, name); err != nil {
			return o, fmt.Errorf("whether node %s is gone: %w", name, err)
		}
	}
	o.moved = l.observeMoved(o)
	for _, v := range o.volumes {
		if o.needsClaim(v) {
			if o.claims[v.UID], err = l.claimOf(ctx, v); err != nil {
				return o, err
			}
		}
	}
	return o, nil
}

// observeMoved finds the pools of a node that is certainly gone on other nodes.
func (l *leader) observeMoved(o nodeObserved) map[string]*v1beta1.StorageNode {
	if !o.isSilent() || o.isThere() {
		return nil
	}
	return movedPools(o.name, kube.Cached(l.storageNodes.List), func(other string) bool { return l.WhyDown(other) == "" })
}

// claimOf is liveClaim for a volume that is given up, but returns only a claim that is bound to the volume until that is on record:
// an agent writes which claim a Volume is for.
func (l *leader) claimOf(ctx context.Context, v *v1beta1.Volume) (*core.PersistentVolumeClaim, error) {
	claim, err := l.liveClaim(ctx, v)
	switch {
	case err != nil || claim == nil || needsRenewal(v):
		return claim, err
	case claim.Spec.VolumeName == "":
		return nil, nil
	}
	pv, err := kube.Live(ctx, l.Kubernetes.CoreV1().PersistentVolumes().Get, claim.Spec.VolumeName)
	if err != nil {
		return nil, fmt.Errorf("the PersistentVolume of volume %s: %w", v.Name, err)
	}
	if pv == nil || isBound(v, claim, pv) != nil {
		claim = nil
	}
	return claim, nil
}

// liveClaim asks the API server for the claim that a volume was made for; nil if it is gone.
func (l *leader) liveClaim(ctx context.Context, v *v1beta1.Volume) (*core.PersistentVolumeClaim, error) {
	claim, err := kube.Live(ctx, l.Kubernetes.CoreV1().PersistentVolumeClaims(v.Spec.Labels[v1beta1.ClaimNamespaceLabel]).Get, v.Spec.Labels[v1beta1.ClaimNameLabel])
	if err != nil {
		return nil, fmt.Errorf("the claim of volume %s: %w", v.Name, err)
	}
	return claim, nil
}

// observeWaiting reads the pending claims, and what is free where their classes allow.
func (l *leader) observeWaiting(ctx context.Context) waitingObserved {
	o := waitingObserved{now: time.Now(), classes: map[string]*class{}, reminded: l.reminded, remindAfter: l.RemindAfter}
	for _, c := range kube.Cached(l.claims.List) {
		if c.Status.Phase != core.ClaimPending {
			continue
		}
		o.claims = append(o.claims, c)
		if name := className(c); o.classes[name] == nil {
			o.classes[name] = l.observeClass(ctx, name)
		}
	}
	return o
}

// observeClass returns nil for a class that is not of this driver.
func (l *leader) observeClass(ctx context.Context, name string) *class {
	found, err := l.classes.Get(name)
	if err != nil || found.Provisioner != l.Driver {
		return nil
	}
	c := &class{
		pool: found.Parameters[parameters.Pool], shared: found.Parameters[parameters.Shared] == "true", server: found.Parameters[parameters.NFSServer],
		allowed: found.AllowedTopologies,
	}
	c.home = l.Home(c.shared, c.server, c.pool)
	for _, n := range l.Hosts(c.home) {
		capacity, err := l.CapacityAt(ctx, n.Name, c.pool)
		c.rooms = append(c.rooms, room{n.Name, min(capacity.Available, capacity.Largest), err})
	}
	servers, why := l.DisallowedServers()
	switch {
	case c.server == "":
		c.disallowed = why
	case slices.Contains(servers, c.server):
		c.disallowed = l.Disallowed(v1beta1.NodeOfServer(c.server))
	}
	return c
}

// observeGarbage asks the API server for nothing but the claims of old candidates, and for the PersistentVolumes only if there may be
// garbage: a cache may lack one. They are read after the claims, since one may be made as long as there is the claim. A candidate of
// which that cannot be read is left out, and keeps no other from being noted as bound.
func (l *leader) observeGarbage(ctx context.Context, now time.Time) (candidates []candidate, err error) {
	var unread []error
	var garbage []candidate
	for _, v := range kube.Cached(l.volumes.List) {
		if !isCandidate(v, now, l.GarbageEvery) {
			continue
		}
		c := candidate{Volume: v, persistent: l.HasPersistent(v)}
		if !c.persistent && isOld(v, now, l.GarbageAge) {
			if c.claim, err = l.liveClaim(ctx, v); err != nil {
				unread = append(unread, fmt.Errorf("volume %s: %w", v.Name, err))
				continue
			}
			if !c.mayBind() {
				garbage = append(garbage, c)
				continue
			}
		}
		candidates = append(candidates, c)
	}
	if len(garbage) > 0 {
		persistent, err := l.persistent(ctx)
		if err != nil {
			return candidates, errors.Join(append(unread, err)...)
		}
		for _, c := range garbage {
			c.persistent = persistent[c.Name] || persistent[c.Spec.Labels[v1beta1.PersistentVolumeLabel]]
			candidates = append(candidates, c)
		}
	}
	return candidates, errors.Join(unread...)
}

// persistent lists the names and volume handles of all PersistentVolumes.
func (l *leader) persistent(ctx context.Context) (map[string]bool, error) {
	all := map[string]bool{}
	return all, kube.Each(ctx, l.Kubernetes.CoreV1().PersistentVolumes().List, metav1.ListOptions{}, func(p *core.PersistentVolume) {
		if p.Labels[v1beta1.CopyLabel] != "" { // it is for the pod that copies, and goes with it
			return
		}
		all[p.Name] = true
		if p.Spec.CSI != nil {
			all[p.Spec.CSI.VolumeHandle] = true
		}
	})
}
