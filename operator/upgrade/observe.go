package upgrade

import (
	"cmp"
	"context"
	"slices"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
	"github.com/holdfast-storage/holdfast/kube/podstatus"
	"github.com/holdfast-storage/holdfast/operator/render"
	"github.com/holdfast-storage/holdfast/operator/rollout"
)

func (c *Controller) observe(ctx context.Context, u *v1beta1.StorageUpgrade) (observed, rollout.World) {
	var err error
	o := observed{now: time.Now(), metadata: c.Metadata, trouble: c.trouble[u.Name], cluster: c.cluster(), other: c.first(u)}
	if o.cluster != nil {
		o.current = c.Release.Images(o.cluster).Holdfast
	}
	o.job, _ = c.jobs.Get(jobName(u)) // the only error of a cache is that there is none
	o.nfsJob, _ = c.jobs.Get(nfsJobName(u))
	o.cephJob, _ = c.jobs.Get(cephJobName(u))
	var stores []*core.Node
	if o.cluster != nil {
		stores, _ = rollout.Storing(o.cluster, kube.Cached(c.nodes.List)) // an invalid selector is refused when the spec is rendered
	}
	world := c.caches.World(stores)
	o.nodes, o.controller = nodesOf(world), c.controllerWorkload(o.cluster)
	o.nodes.none = o.cluster != nil && !render.WithCSI(&o.cluster.Spec)
	switch u.Status.Step {
	case v1beta1.StepPullImage:
		o.ceph = c.cephImage(o.cluster, u.Status.To)
		o.nfs.image, o.nfs.nodes = c.NFS.Outdated(u.Status.To)
	case v1beta1.StepNFSServers:
		o.nfs.next, o.nfs.waiting, o.nfs.unawaited, err = c.NFS.Upgrade(ctx, u.Status.To, startTime(u))
	}
	// What cannot be looked at now is waited for like all else: for as long as the step may take.
	if err != nil {
		o.nfs, o.trouble = servers{unknown: true}, err.Error()
	}
	if stopsApplications(u) {
		s := &survey{client: c.Kubernetes, namespace: c.Namespace, servers: c.NFS.Workloads()}
		if o.apps, err = s.look(ctx); err != nil {
			o.apps, o.trouble = applications{unknown: true}, err.Error()
		}
	}
	return o, world
}

// startTime is when an upgrade began.
func startTime(u *v1beta1.StorageUpgrade) time.Time {
	if len(u.Status.Steps) == 0 {
		return time.Time{}
	}
	return u.Status.Steps[0].StartTime.Time
}

// cephImage is the image that pools in Ceph clusters run after the upgrade; "" if there are none, or they run it.
func (c *Controller) cephImage(cluster *v1beta1.StorageCluster, to v1beta1.Image) v1beta1.Image {
	if cluster == nil || len(v1beta1.CephPools(cluster.Spec.Pools)) == 0 {
		return ""
	}
	next := cmp.Or(cluster.Spec.Images.Ceph, c.Release.CephImage(to))
	if next == c.Release.Images(cluster).Ceph {
		return ""
	}
	return next
}

// stopsApplications says whether the current step needs the list of applications.
func stopsApplications(u *v1beta1.StorageUpgrade) bool {
	steps := []v1beta1.UpgradeStep{v1beta1.StepPreflight, v1beta1.StepScaleDown, v1beta1.StepScaleUp, v1beta1.StepRollBack}
	return u.Spec.Strategy == v1beta1.OfflineUpgrade && !hasEnded(u) && slices.Contains(steps, u.Status.Step)
}

// cluster returns the StorageCluster that is served; nil if there is none.
func (c *Controller) cluster() *v1beta1.StorageCluster {
	served := v1beta1.Served(kube.Cached(c.clusters.List))
	if served == nil {
		return nil
	}
	return c.paused.Newest(served)
}

// first returns the upgrade that runs before this one: one that is running, or else an older one.
func (c *Controller) first(u *v1beta1.StorageUpgrade) string {
	var working, waiting []*v1beta1.StorageUpgrade
	for _, other := range kube.Cached(c.upgrades.List) {
		other = c.written.Newest(other)
		switch {
		case other.Name == u.Name, hasEnded(other):
		case other.Unreadable() != nil && !hasBegun(other): // it will never start
		case hasBegun(other):
			working = append(working, other)
		case other.DeletionTimestamp == nil && v1beta1.ByAge(other, u) < 0:
			waiting = append(waiting, other)
		}
	}
	for _, before := range slices.Concat(working, waiting) {
		return before.Name
	}
	return ""
}

func nodesOf(w rollout.World) nodes {
	if w.DaemonSet == nil {
		return nodes{rollout: rollout.Result{Waiting: "the DaemonSet " + v1beta1.NodeName + " to be there"}}
	}
	n := nodes{image: render.ImageOf(&w.DaemonSet.Spec.Template.Spec)}
	n.rollout, _ = rollout.Plan(w)
	served := map[string]bool{}
	for _, p := range w.Pods {
		if !metav1.IsControlledBy(p, w.DaemonSet) || podstatus.HasEnded(p) {
			continue
		}
		served[p.Spec.NodeName] = true
		if !podstatus.IsReady(p) {
			why, _ := rollout.Trouble(p)
			n.unready = append(n.unready, unreadyNode{p.Spec.NodeName, "pod " + p.Name + " is not ready" + kube.Because(": ", why)})
		}
	}
	for _, s := range w.Nodes {
		if why := readiness(s); served[s.Name] && why != "" {
			n.unready = append(n.unready, unreadyNode{s.Name, why})
		}
	}
	slices.SortStableFunc(n.unready, func(a, b unreadyNode) int { return cmp.Compare(a.name, b.name) })
	return n
}

// readiness says why a node's storage is not ready; "" if it is.
func readiness(n *v1beta1.StorageNode) string {
	switch c := meta.FindStatusCondition(n.Status.Conditions, v1beta1.ReadyCondition); {
	case c == nil:
		return "its agent has not reported yet"
	case c.Status != metav1.ConditionTrue:
		return "its storage is not ready" + kube.Because(": ", c.Message)
	}
	return ""
}

// controllerWorkload returns the workload of the kind that the StorageCluster specifies.
func (c *Controller) controllerWorkload(cluster *v1beta1.StorageCluster) rollout.Workload {
	kind := string(v1beta1.AsDeployment)
	if cluster != nil && cluster.Spec.Controller.Kind != "" {
		kind = string(cluster.Spec.Controller.Kind)
	}
	o := c.Owned.Get(apply.RefTo(apps.GroupName, kind, c.Namespace, v1beta1.ControllerName))
	if o == nil {
		return rollout.Workload{Waiting: kind + " " + v1beta1.ControllerName + " to be there"}
	}
	return rollout.ReadWorkload(o)
}
