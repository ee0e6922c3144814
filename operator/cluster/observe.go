package cluster

import (
	"fmt"
	"maps"
	"slices"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
	"github.com/holdfast-storage/holdfast/operator/held"
	"github.com/holdfast-storage/holdfast/operator/render"
	"github.com/holdfast-storage/holdfast/operator/rollout"
)

// situation is a StorageCluster and all that its status depends on.
type situation struct {
	now          time.Time
	release      render.Release
	cluster      *v1beta1.StorageCluster
	allNodes     map[string]*core.Node
	nodes        []*core.Node // storage nodes, by name
	storageNodes map[string]*v1beta1.StorageNode
	world        rollout.World               // what runs on the storage nodes
	sitePods     []*core.Pod                 // of the pools in Ceph clusters
	sites        map[string]rollout.Workload // of these, by pool
	onNodes      map[string]int              // volumes of nodes and sites that have Volumes or Snapshots
	// controllerPods are those of the controller, sorted by name.
	controllerPods []*core.Pod
	controllers    []workload // the controller's own; two while it changes its kind
	volumes        int        // and snapshots: what would be lost
	snapshots      int
	servers        servers  // counted only while the cluster is being deleted
	bound          bound    // counted only while the cluster is being deleted, once there are no volumes and servers
	leftOut        []string // nodes that are not selected any more and still have volumes
	held           []v1beta1.HeldPool
	hidden         []held.Hidden     // what the spec would hide; cluster has the running values instead
	refused        error             // it would hide something, and there are no running values
	unreachable    []*v1beta1.Volume // out of reach or lost
	protected      metav1.Condition

	// The outcome of the last pass; empty while it is paused.
	invalid  error // the spec cannot be rendered
	failures []apply.Failure
	rollout  rollout.Result
	leaving  string // what a deletion waits for

	handingTo string // the release that was installed over this one
	ignored   string // the release that was installed although the spec names another image
}

// observe reads only caches.
func (r *Controller) observe(c *v1beta1.StorageCluster) *situation {
	s := &situation{now: time.Now(), release: r.Release, allNodes: map[string]*core.Node{}, storageNodes: map[string]*v1beta1.StorageNode{}}
	nodes := kube.Cached(r.nodes.List)
	for _, n := range nodes {
		s.allNodes[n.Name] = n
	}
	r.recount()
	s.onNodes, s.unreachable = r.stored.OnNodes, r.unreachable
	s.volumes, s.snapshots = r.countStored(c, r.stored.Volumes, r.stored.Snapshots)
	running := r.running()
	r.stored.Partial = !r.Kinds.Whole("volumes") || !r.Kinds.Whole("snapshots")
	s.held = held.Pools(c, running, nodes, r.stored)
	s.cluster, s.hidden, s.refused = held.Effective(c, running, s.held, nodes)
	s.nodes, s.invalid = rollout.Storing(s.cluster, nodes)
	for _, n := range kube.Cached(r.storageNodes.List) {
		s.storageNodes[n.Name] = n
	}
	s.world = r.caches.World(s.nodes)
	s.sitePods = r.podsOfSites()
	s.controllerPods = r.podsOf(v1beta1.ControllerComponent)
	slices.SortFunc(s.controllerPods, func(a, b *core.Pod) int { return compare(a.Name, b.Name) })
	s.leftOut = s.nodesLeftOut()
	s.look(r.Owned, r.Namespace)
	s.protected = r.protected(s.cluster)
	return s
}

// podsOf returns the pods of a component of Holdfast.
func (r *Controller) podsOf(component string) []*core.Pod {
	return kube.Selected(r.pods.Pods(r.Namespace).List, labels.Set{v1beta1.NameLabel: v1beta1.AppName, v1beta1.ComponentLabel: component})
}

// nodesLeftOut names the existing nodes that have volumes and are not selected by the spec.
func (s *situation) nodesLeftOut() (all []string) {
	if !s.withCSI() || s.invalid != nil {
		return nil
	}
	stores := map[string]bool{}
	for _, n := range s.nodes {
		stores[n.Name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(s.onNodes)) {
		if volumes := s.onNodes[name]; volumes > 0 && !stores[name] && s.allNodes[name] != nil { // onNodeLoss decides about nodes that are gone
			all = append(all, fmt.Sprintf("node %s is no longer selected and has %d volumes", name, volumes))
		}
	}
	return all
}

// look reads the workloads, whose applied versions are known at once.
func (s *situation) look(set *apply.Set, namespace string) {
	s.controllers, s.sites = nil, map[string]rollout.Workload{}
	for _, ref := range controllerRefs(namespace) {
		if o := set.Get(ref); o != nil && o.GetDeletionTimestamp() == nil {
			s.controllers = append(s.controllers, workload{Workload: rollout.ReadWorkload(o), kind: o.GetKind()})
		}
	}
	for _, pool := range v1beta1.CephPools(s.cluster.Spec.Pools) {
		if o := set.Get(apply.RefTo(apps.GroupName, "Deployment", namespace, render.CephObjectName(pool.Name))); o != nil {
			s.sites[pool.Name] = rollout.ReadWorkload(o)
		}
	}
}

func (s *situation) withCSI() bool { return render.WithCSI(&s.cluster.Spec) }
