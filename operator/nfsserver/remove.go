package nfsserver

import (
	"context"
	"fmt"
	"slices"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
)

// remove removes what was made for a server that is being deleted, unless volumes are on it: they need it.
func (r *Controller) remove(ctx context.Context, s *v1.NFSServer, cluster *v1.StorageCluster) (time.Duration, error) {
	if !slices.Contains(s.Finalizers, v1.OperatorFinalizer) {
		return 0, nil
	}
	// With its kind it goes only to be made again, and without the others nobody knows what it holds.
	for _, kind := range []string{"nfsservers", "volumes", "snapshots"} {
		if !r.Whole(kind) {
			return kube.LookAgain, nil
		}
	}
	inUse, err := r.inUse(ctx, s)
	if err != nil {
		return 0, err
	}
	if inUse {
		return r.refuse(ctx, s, cluster)
	}
	waiting, err := r.removeParts(ctx, s)
	if err != nil {
		return 0, err
	}
	if waiting != "" {
		now, err := r.observe(s, cluster)
		if err != nil {
			return 0, err
		}
		now.leaving = waiting
		return kube.LookAgain, r.write(ctx, s, now.status())
	}
	err = r.written.RemoveFinalizer(ctx, s, v1.OperatorFinalizer)
	if err == nil {
		r.Log.Info("an NFS server was removed", "namespace", s.Namespace, "name", s.Name)
	}
	return 0, kube.IgnoreNotFound(err)
}

// refuse keeps a server at work that is to go, until the last volume has gone.
func (r *Controller) refuse(ctx context.Context, s *v1.NFSServer, cluster *v1.StorageCluster) (time.Duration, error) {
	if cluster.Spec.Pause {
		now, err := r.observe(s, cluster)
		if err != nil {
			return 0, err
		}
		return kube.LookAgain, r.write(ctx, s, now.status())
	}
	now, again, err := r.maintain(ctx, s, cluster, "")
	if err != nil {
		return 0, err
	}
	if now.volumes+now.snapshots == 0 {
		again = kube.LookAgain // the caches are behind
	}
	return again, r.write(ctx, s, now.status())
}

// inUse asks the API server, not a cache: a volume may have been made a moment ago.
func (r *Controller) inUse(ctx context.Context, s *v1.NFSServer) (bool, error) {
	one := metav1.ListOptions{Limit: 1, FieldSelector: fields.OneTermEqualSelector("spec.node", s.NodeName()).String()}
	volumes, err := r.Client.HoldfastV1().Volumes().List(ctx, one)
	if err != nil {
		return false, err
	}
	snapshots, err := r.Client.HoldfastV1().Snapshots().List(ctx, one)
	if err != nil {
		return false, err
	}
	if len(volumes.Items)+len(snapshots.Items) > 0 {
		return true, nil
	}
	return r.hasPersistentVolume(ctx, s)
}

// hasPersistentVolume finds volumes of the external provisioner, whose object may not be there: the server writes it when
// it has made the volume, and again when somebody has deleted it.
func (r *Controller) hasPersistentVolume(ctx context.Context, s *v1.NFSServer) (has bool, err error) {
	err = r.eachPersistentVolume(ctx, func(pv *core.PersistentVolume) {
		has = has || pv.Annotations[v1.NFSServerAnnotation] == keyOf(s).String()
	})
	return has, err
}

// removeParts goes as far as it can and says what it waits for. It can be repeated. The pod goes first; then nothing can
// make a volume any more, and what it says of itself stays gone.
func (r *Controller) removeParts(ctx context.Context, s *v1.NFSServer) (waiting string, err error) {
	for _, step := range []func(context.Context, *v1.NFSServer) (string, error){
		r.removePod, r.lookOnce, r.removeObjects, r.releaseData, r.removeClaim, r.removeTraces,
	} {
		if waiting, err := step(ctx, s); err != nil || waiting != "" {
			return waiting, err
		}
	}
	return "", r.removeRights(ctx, keyOf(s), true)
}

func (r *Controller) removePod(ctx context.Context, s *v1.NFSServer) (string, error) {
	if set := r.Servers.Get(refTo(s, "apps", "StatefulSet")); set != nil {
		if err := r.Servers.Delete(ctx, set); err != nil {
			return "", fmt.Errorf("ending the pod: %w", err)
		}
	}
	pods, err := r.Kubernetes.CoreV1().Pods(s.Namespace).List(ctx, metav1.ListOptions{LabelSelector: labels.SelectorFromSet(selector(s)).String()})
	if err != nil {
		return "", err
	}
	if slices.ContainsFunc(pods.Items, func(p core.Pod) bool { return isPodOf(s, p.Name) }) {
		return "its pod to end", nil
	}
	return "", nil
}

// lookOnce finds a volume that was made while the pod still ran. The next pass then lets the server work again.
func (r *Controller) lookOnce(ctx context.Context, s *v1.NFSServer) (string, error) {
	inUse, err := r.inUse(ctx, s)
	if inUse {
		return "a volume that was made meanwhile", err
	}
	return "", err
}

func (r *Controller) removeObjects(ctx context.Context, s *v1.NFSServer) (string, error) {
	left := 0
	for _, o := range r.Servers.List() {
		if o.GetNamespace() != s.Namespace || o.GetLabels()[Label] != s.Name {
			continue
		}
		left++
		if o.GetDeletionTimestamp() == nil {
			if err := r.Servers.Delete(ctx, o); err != nil {
				return "", fmt.Errorf("deleting %s: %w", apply.RefOf(o), err)
			}
		}
	}
	if left > 0 {
		return fmt.Sprintf("%d objects to be deleted", left), nil
	}
	return "", nil
}

// removeTraces removes what the server has said of itself as a node, and its Leases.
func (r *Controller) removeTraces(ctx context.Context, s *v1.NFSServer) (string, error) {
	if err := kube.IgnoreNotFound(r.Client.HoldfastV1().StorageNodes().Delete(ctx, s.NodeName(), metav1.DeleteOptions{})); err != nil {
		return "", fmt.Errorf("deleting StorageNode %s: %w", s.NodeName(), err)
	}
	for _, name := range leasesOf(s) {
		if err := kube.IgnoreNotFound(r.Kubernetes.CoordinationV1().Leases(r.Namespace).Delete(ctx, name, metav1.DeleteOptions{})); err != nil {
			return "", fmt.Errorf("deleting Lease %s: %w", name, err)
		}
	}
	return "", nil
}
