package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
)

// remove removes the objects of a StorageCluster that is being deleted, unless data would be lost.
func (r *Controller) remove(ctx context.Context, c *v1beta1.StorageCluster) (time.Duration, error) {
	if !slices.Contains(c.Finalizers, v1beta1.OperatorFinalizer) {
		return 0, nil
	}
	if r.Kinds.Returning() { // the definitions controller removes the finalizer and recreates it
		return kube.LookAgain, nil
	}
	if slices.Contains(c.Finalizers, metav1.FinalizerDeleteDependents) {
		// The garbage collector would remove what is needed until the last volume is gone.
		return kube.LookAgain, kube.IgnoreNotFound(r.written.RemoveFinalizer(ctx, c, metav1.FinalizerDeleteDependents))
	}
	orphan := c.Spec.DeletionPolicy == v1beta1.OrphanVolumes
	s := r.observe(c)
	var err error
	if s.servers, err = r.countServers(ctx); err != nil {
		return 0, err
	}
	if !orphan && !s.holdsUp(orphan) {
		if s.bound, err = r.countBound(ctx); err != nil {
			return 0, err
		}
	}
	if s.holdsUp(orphan) {
		return r.stay(ctx, c, s)
	}
	if !orphan {
		// The caches may be behind.
		if left, err := r.anyData(ctx); err != nil || left {
			return kube.LookAgain, err
		}
	}
	waiting, err := r.removeParts(ctx, c, orphan)
	if err != nil {
		return 0, err
	}
	if waiting != "" {
		s := r.observe(c)
		s.leaving = waiting
		return kube.LookAgain, r.write(ctx, c, s.status())
	}
	err = r.written.RemoveFinalizer(ctx, c, v1beta1.OperatorFinalizer)
	if err == nil {
		r.Log.Info("removed; the rest is deleted with the StorageCluster", "cluster", c.Name)
	}
	return 0, kube.IgnoreNotFound(err)
}

// stay keeps the objects running until nothing blocks the removal any more.
func (r *Controller) stay(ctx context.Context, c *v1beta1.StorageCluster, s *situation) (again time.Duration, err error) {
	if servers, bound := s.servers, s.bound; !c.Spec.Paused {
		if s, again, err = r.maintain(ctx, c); err != nil || s == nil {
			return again, err
		}
		s.servers, s.bound = servers, bound
	}
	if s.servers.all > 0 || s.bound != (bound{}) {
		again = kube.Sooner(again, kube.LookAgain)
	}
	return again, r.write(ctx, c, s.status())
}

func (r *Controller) anyData(ctx context.Context) (bool, error) {
	one := metav1.ListOptions{Limit: 1}
	volumes, err := r.Client.HoldfastV1beta1().Volumes().List(ctx, one)
	if err != nil && !r.isMissing("volumes", err) {
		return false, err
	}
	snapshots, err := r.Client.HoldfastV1beta1().Snapshots().List(ctx, one)
	if err != nil && !r.isMissing("snapshots", err) {
		return false, err
	}
	return len(volumes.Items)+len(snapshots.Items) > 0, nil
}

// isMissing says whether a kind is known to be gone. The status has the counts of its objects.
func (r *Controller) isMissing(resource string, err error) bool {
	return apierrors.IsNotFound(err) && !r.Kinds.Whole(resource)
}

// removeParts goes as far as it can and says what it waits for. It is idempotent.
func (r *Controller) removeParts(ctx context.Context, c *v1beta1.StorageCluster, orphan bool) (waiting string, err error) {
	for _, step := range []func(context.Context) (string, error){
		r.removeTasks, r.removeNodes, r.removeObjects, r.cleanNodes,
		func(ctx context.Context) (string, error) { return "", r.removeSnapshots(ctx, c) },
		func(ctx context.Context) (string, error) { return "", r.takeAttachersFinalizers(ctx) },
		func(ctx context.Context) (string, error) { return "", r.releaseDefinitions(ctx, c, orphan) },
	} {
		if waiting, err := step(ctx); err != nil || waiting != "" {
			return waiting, err
		}
	}
	return "", nil
}

// removeTasks ends jobs and upgrades first, since upgrades need the cluster to roll back.
func (r *Controller) removeTasks(ctx context.Context) (string, error) {
	upgrades, jobs := kube.Cached(r.upgrades.List), kube.Cached(r.jobs.List)
	for _, u := range upgrades {
		if u.DeletionTimestamp == nil {
			if err := kube.IgnoreNotFound(r.Client.HoldfastV1beta1().StorageUpgrades().Delete(ctx, u.Name, metav1.DeleteOptions{})); err != nil {
				return "", err
			}
		}
	}
	for _, j := range jobs {
		if j.DeletionTimestamp == nil {
			if err := kube.IgnoreNotFound(r.Client.HoldfastV1beta1().NodeJobs().Delete(ctx, j.Name, metav1.DeleteOptions{})); err != nil {
				return "", err
			}
		}
	}
	if len(upgrades)+len(jobs) > 0 {
		return fmt.Sprintf("%d upgrades and %d jobs to end", len(upgrades), len(jobs)), nil
	}
	return "", nil
}

// removeNodes removes the pods of nodes and of pools in Ceph clusters, and the classes, so that no new volumes are created.
func (r *Controller) removeNodes(ctx context.Context) (string, error) {
	left, err := r.delete(ctx, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "DaemonSet" || o.GetKind() == "StorageClass" || o.GetKind() == "Deployment" && o.GetLabels()[v1beta1.ComponentLabel] == v1beta1.CephComponent
	})
	if err != nil || left > 0 {
		return "the node pods to end", err
	}
	left = 0
	for _, component := range []string{v1beta1.NodeComponent, v1beta1.LoopSetsComponent, v1beta1.CephComponent} {
		left += len(r.podsOf(component))
	}
	if left > 0 {
		return fmt.Sprintf("%d node pods to end", left), nil
	}
	return "", nil
}

// removeObjects leaves the controller's workload, which is deleted with the StorageCluster.
func (r *Controller) removeObjects(ctx context.Context) (string, error) {
	left, err := r.delete(ctx, func(o *unstructured.Unstructured) bool { return !isControllerWorkload(o) })
	if err != nil || left > 0 {
		return fmt.Sprintf("%d objects to be deleted", left), err
	}
	return "", nil
}

// delete deletes the owned objects that match, and returns how many still exist.
func (r *Controller) delete(ctx context.Context, match func(*unstructured.Unstructured) bool) (left int, err error) {
	for _, o := range r.Owned.List() {
		if !match(o) {
			continue
		}
		left++
		if o.GetDeletionTimestamp() == nil {
			if err := r.Owned.Delete(ctx, o); err != nil {
				return left, fmt.Errorf("deleting %s: %w", apply.RefOf(o), err)
			}
		}
	}
	return left, nil
}

// cleanNodes removes the topology label that the kubelets have set on nodes for the driver, and those of labelNodes.
func (r *Controller) cleanNodes(ctx context.Context) (string, error) {
	keys := append(slices.Collect(maps.Values(v1beta1.ClientLabels)), v1beta1.TopologyKey)
	for _, n := range kube.Cached(r.nodes.List) {
		change := map[string]any{}
		for _, key := range keys {
			if _, has := n.Labels[key]; has {
				change[key] = nil
			}
		}
		if len(change) == 0 {
			continue
		}
		if err := r.label(ctx, n.Name, change); err != nil {
			return "", err
		}
	}
	return "", nil
}

// removeSnapshots removes the installed kinds of snapshots, unless there is an object of one.
func (r *Controller) removeSnapshots(ctx context.Context, c *v1beta1.StorageCluster) error {
	if r.Snapshots == nil {
		return nil
	}
	kept, err := r.Snapshots.Remove(ctx)
	if err == nil && kept != "" {
		r.Events.Eventf(c, core.EventTypeNormal, "SnapshotKindsKept", "the kinds of snapshots stay, without a controller: there are %s", kept)
	}
	return err
}

// releaseDefinitions decides whether the kinds that stand for data are deleted too.
func (r *Controller) releaseDefinitions(ctx context.Context, c *v1beta1.StorageCluster, orphan bool) error {
	all := dataMarks(c)
	if orphan {
		for _, o := range all {
			unmark(o)
		}
	}
	inventory := mark(c, schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, r.Namespace, apply.InventoryName)
	inventory.SetLabels(nil) // it is no object of the inventory
	r.othersHome = false     // the namespace may be another by now
	return r.mark(ctx, c, append(all, inventory)...).Err()
}

// handOver removes the finalizer of a StorageCluster that another one replaces, once it owns nothing any more.
func (r *Controller) handOver(ctx context.Context, c *v1beta1.StorageCluster) (time.Duration, error) {
	if !slices.Contains(c.Finalizers, v1beta1.OperatorFinalizer) {
		return 0, nil
	}
	mine := func(o *unstructured.Unstructured) bool {
		return o != nil && slices.ContainsFunc(o.GetOwnerReferences(), func(ref metav1.OwnerReference) bool { return ref.UID == c.UID })
	}
	all := append(r.Owned.List(), r.Owned.Get(r.homeRef()))
	for _, m := range slices.Concat(marks(c, r.Namespace), dataMarks(c)) {
		all = append(all, r.Owned.Get(apply.RefOf(m)))
	}
	if slices.ContainsFunc(all, mine) {
		return kube.LookAgain, nil
	}
	r.Events.Event(c, core.EventTypeNormal, "Terminating", "another StorageCluster has taken over; nothing is removed")
	return 0, kube.IgnoreNotFound(r.written.RemoveFinalizer(ctx, c, v1beta1.OperatorFinalizer))
}
