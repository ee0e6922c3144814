package upgrade

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
	"github.com/holdfast-storage/holdfast/operator/held"
	"github.com/holdfast-storage/holdfast/operator/render"
	"github.com/holdfast-storage/holdfast/operator/rollout"
)

func (c *Controller) reconcile(ctx context.Context, name string) (time.Duration, error) {
	cached, _ := c.upgrades.Get(name) // the only error of a cache is that there is none
	if cached == nil {
		c.written.Forget(name)
		delete(c.trouble, name)
		c.touch() // another upgrade may be waiting
		return 0, c.endPause(ctx, name)
	}
	u := c.written.Newest(cached).DeepCopy()
	if hasEnded(u) && len(u.Finalizers) == 0 {
		return 0, nil
	}
	if u.Unreadable() != nil && u.DeletionTimestamp == nil && !hasEnded(u) { // its deletion can still roll back what it has done
		return 0, c.reportUnreadable(ctx, u)
	}
	o, world := c.observe(ctx, u)
	p := newPlan(u, o)
	problem := c.do(ctx, u, o, world, p)
	delete(c.trouble, name)
	if problem != nil {
		c.trouble[name] = problem.Error()
	}
	if p.finalizer != nil && problem == nil {
		return 0, nil // that change queues it again
	}
	if problem != nil && (p.status.Phase != u.Status.Phase || p.status.Step != u.Status.Step) {
		return 0, problem // a step is not left before it is done
	}
	for _, e := range p.events {
		if err := c.announce(ctx, u, e); err != nil {
			c.Log.Warn("an event could not be written", "upgrade", name, "error", err)
		}
	}
	return p.again, errors.Join(problem, c.write(ctx, u, p.status))
}

// endPause unpauses the StorageCluster after an upgrade that does not exist any more, and could not do it: its finalizer was
// removed by hand, or its kind was deleted.
func (c *Controller) endPause(ctx context.Context, upgrade string) error {
	cluster := c.cluster()
	if cluster == nil || !cluster.Spec.Paused || cluster.Annotations[v1beta1.PausedByAnnotation] != upgrade {
		return nil
	}
	if _, err := c.Client.HoldfastV1beta1().StorageUpgrades().Get(ctx, upgrade, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return err // the cache may not have it yet
	}
	c.Log.Warn("unpausing the StorageCluster, since the upgrade that paused it does not exist", "storagecluster", cluster.Name, "upgrade", upgrade)
	return c.setPause(ctx, "", cluster, "")
}

// reportUnreadable reports an upgrade that cannot be decoded, and leaves it in its step.
func (c *Controller) reportUnreadable(ctx context.Context, u *v1beta1.StorageUpgrade) error {
	written, err := c.unreadable.Report(ctx, c.Client, u, component)
	if written == nil {
		return err
	}
	c.written.Wrote(written.(*v1beta1.StorageUpgrade))
	c.touch() // another upgrade may run now
	return c.announce(ctx, u, event{core.EventTypeWarning, v1beta1.ReasonUnreadable, kube.UnreadableMessage(u)})
}

// do carries out the plan in the order of its fields.
func (c *Controller) do(ctx context.Context, u *v1beta1.StorageUpgrade, o observed, world rollout.World, p plan) error {
	if p.finalizer != nil {
		return kube.IgnoreNotFound(c.setFinalizer(ctx, u, *p.finalizer))
	}
	if p.bringJobs {
		if err := c.bring(ctx, u, o); err != nil {
			return err
		}
	}
	if p.pause {
		if err := c.setPause(ctx, u.Name, o.cluster, ""); err != nil {
			return err
		}
	}
	if p.apply != nil {
		if err := c.apply(ctx, o.cluster, *p.apply); err != nil {
			return err
		}
	}
	if p.roll {
		if _, err := rollout.Step(ctx, c.Kubernetes, world); err != nil {
			return err
		}
	}
	if p.bringNFS != "" {
		if err := c.NFS.RollBack(ctx, p.bringNFS); err != nil {
			return err
		}
	}
	if err := c.scaleAll(ctx, p); err != nil {
		return err
	}
	if p.unpause || p.setImage != "" {
		return c.setPause(ctx, "", o.cluster, p.setImage)
	}
	return nil
}

func (c *Controller) scaleAll(ctx context.Context, p plan) error {
	var failed []error
	for _, a := range p.stop {
		failed = append(failed, stop(ctx, c.Kubernetes, a))
	}
	for _, a := range p.start {
		failed = append(failed, start(ctx, c.Kubernetes, a))
	}
	return errors.Join(failed...)
}

func (c *Controller) setFinalizer(ctx context.Context, u *v1beta1.StorageUpgrade, wanted bool) error {
	if !wanted {
		return c.written.RemoveFinalizer(ctx, u, v1beta1.OperatorFinalizer)
	}
	_, err := c.written.AddFinalizer(ctx, u, v1beta1.OperatorFinalizer)
	return err
}

// setPause writes by which upgrade the StorageCluster is paused, if by any, and the image, if there is one, in one request.
func (c *Controller) setPause(ctx context.Context, upgrade string, cluster *v1beta1.StorageCluster, image v1beta1.Image) error {
	annotations, spec := map[string]any{v1beta1.PausedByAnnotation: nil}, map[string]any{"paused": nil}
	if upgrade != "" {
		annotations[v1beta1.PausedByAnnotation], spec["paused"] = upgrade, true
	}
	if image != "" {
		annotations[v1beta1.UpgradedAnnotation] = image
		spec["images"] = map[string]any{"holdfast": image}
	}
	now, err := kube.MergePatch(ctx, c.Client.HoldfastV1beta1().StorageClusters().Patch, cluster.Name, map[string]any{
		"metadata": map[string]any{"resourceVersion": cluster.ResourceVersion, "annotations": annotations},
		"spec":     spec,
	}, component)
	if err != nil {
		return fmt.Errorf("the pause of StorageCluster %s: %w", cluster.Name, err)
	}
	c.paused.Wrote(now)
	return nil
}

// apply sets the images of the nodes' DaemonSet and the controller's workload. The StorageCluster's controller does the
// rest, but for the configuration of the nodes: the spec may have changed in the meantime, and the DaemonSet is for one
// configuration.
func (c *Controller) apply(ctx context.Context, cluster *v1beta1.StorageCluster, i images) error {
	secret, err := c.secret(ctx, cluster)
	if err != nil {
		return err
	}
	if cluster, err = c.effective(cluster); err != nil {
		return err
	}
	all, err := render.Objects(render.Input{
		Cluster: cluster, Namespace: c.Namespace, Secret: secret, Has: c.Owned.Has, Image: i.nodes, ControllerImage: i.controller, Release: c.Release,
		KubeletDir: render.KubeletDir(c.Owned.Get(apply.RefTo("apps", "DaemonSet", c.Namespace, v1beta1.NodeName)), kube.Cached(c.nodes.List)),
	})
	if err != nil {
		return fmt.Errorf("StorageCluster %s: %w", cluster.Name, err)
	}
	var wanted []*unstructured.Unstructured
	for _, o := range all {
		isNode := (o.GetKind() == "ConfigMap" || o.GetKind() == "DaemonSet") && o.GetName() == v1beta1.NodeName
		isController := (o.GetKind() == "Deployment" || o.GetKind() == "StatefulSet") && o.GetName() == v1beta1.ControllerName
		if isNode || isController {
			wanted = append(wanted, o)
		}
	}
	if err := rollout.StampAll(wanted); err != nil {
		return err
	}
	if refusal, err := c.Owned.Refusal(ctx, wanted); refusal != nil || err != nil {
		return cmp.Or(refusal, err)
	}
	outcome := c.Owned.Apply(ctx, wanted)
	return outcome.Err()
}

// effective leaves out changes that would hide volumes, which the StorageCluster's controller reports.
func (c *Controller) effective(cluster *v1beta1.StorageCluster) (*v1beta1.StorageCluster, error) {
	cluster, _, err := held.Effective(cluster, held.Running(c.Owned, c.Namespace), cluster.Status.Pools, kube.Cached(c.nodes.List))
	return cluster, err
}

func (c *Controller) secret(ctx context.Context, cluster *v1beta1.StorageCluster) (map[string][]byte, error) {
	name := kube.SecretName(cluster, c.Namespace)
	if name.Name == "" {
		return nil, nil
	}
	secret, err := c.Kubernetes.CoreV1().Secrets(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("spec.secretRef of StorageCluster %s: %w", cluster.Name, err)
	}
	return secret.Data, nil
}

func (c *Controller) announce(ctx context.Context, u *v1beta1.StorageUpgrade, e event) error {
	return kube.RecordOnce(ctx, c.Kubernetes, component, kube.Event{
		About: u, Kind: v1beta1.SchemeGroupVersion.WithKind("StorageUpgrade"), Type: e.kind, Reason: e.reason, Message: e.message,
	})
}

// write fails with a conflict if the upgrade has changed, which is then reconciled again.
func (c *Controller) write(ctx context.Context, u *v1beta1.StorageUpgrade, s v1beta1.StorageUpgradeStatus) error {
	_, _, err := c.written.WriteStatus(ctx, u, s)
	return kube.IgnoreNotFound(err)
}

// jobName is the NodeJob that pulls the image of an upgrade.
func jobName(u *v1beta1.StorageUpgrade) string {
	uid := string(u.UID)
	return "upgrade-" + uid[:min(len(uid), 50)]
}

func nfsJobName(u *v1beta1.StorageUpgrade) string { return jobName(u) + "-nfs" }

func cephJobName(u *v1beta1.StorageUpgrade) string { return jobName(u) + "-ceph" }

// bring creates the NodeJobs that pull the images: that of Holdfast, and of pools in Ceph clusters, to every storage node,
// and that of NFS servers to their nodes. Each image reports its version there.
func (c *Controller) bring(ctx context.Context, u *v1beta1.StorageUpgrade, o observed) error {
	err := c.bringOne(ctx, u, jobName(u), u.Status.To, o.cluster.Spec.NodeSelectorTerms)
	if err == nil && o.ceph != "" { // the pod of a pool may start on any of them
		err = c.bringOne(ctx, u, cephJobName(u), o.ceph, o.cluster.Spec.NodeSelectorTerms)
	}
	if err != nil || o.nfs.image == "" {
		return err
	}
	return c.bringOne(ctx, u, nfsJobName(u), o.nfs.image, []core.NodeSelectorTerm{{
		MatchFields: []core.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: core.NodeSelectorOpIn, Values: o.nfs.nodes}},
	}})
}

func (c *Controller) bringOne(ctx context.Context, u *v1beta1.StorageUpgrade, name string, image v1beta1.Image, to []core.NodeSelectorTerm) error {
	owner := metav1.NewControllerRef(u, v1beta1.SchemeGroupVersion.WithKind("StorageUpgrade"))
	owner.BlockOwnerDeletion = nil
	retries := int32(2)
	_, err := c.Client.HoldfastV1beta1().NodeJobs().Create(ctx, &v1beta1.NodeJob{
		ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{*owner}},
		Spec: v1beta1.NodeJobSpec{
			Image: image, Args: askForVersion, BackoffLimit: &retries,
			Timeout:           v1beta1.DurationOf((&round{upgrade: u}).timeout()),
			NodeSelectorTerms: to,
			Tolerations:       []core.Toleration{{Operator: core.TolerationOpExists}},
		},
	}, metav1.CreateOptions{FieldManager: component})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("making NodeJob %s of upgrade %s: %w", name, u.Name, err)
	}
	return nil
}
