package bench

import (
	"cmp"
	"context"
	"fmt"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// noProvisioner is the provisioner of classes without dynamic provisioning.
const noProvisioner = "kubernetes.io/no-provisioner"

// readCluster reads the class and the nodes.
func (b *Bench) readCluster(ctx context.Context) error {
	class, err := b.Client.StorageV1().StorageClasses().Get(ctx, b.StorageClass, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("there is no storage class %q: name one that kubectl get storageclasses lists", b.StorageClass)
	case err != nil:
		return fmt.Errorf("storage class %q: %w", b.StorageClass, err)
	case class.Provisioner == noProvisioner:
		return fmt.Errorf("storage class %q makes no volumes: its provisioner is %s", b.StorageClass, noProvisioner)
	}
	b.class = Class{
		b.StorageClass, class.Provisioner,
		*cmp.Or(class.VolumeBindingMode, new(storage.VolumeBindingImmediate)),
		*cmp.Or(class.ReclaimPolicy, new(core.PersistentVolumeReclaimDelete)),
	}
	version, err := b.Client.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("version of the API server: %w", err)
	}
	b.kube = version.GitVersion
	return b.findNodes(ctx)
}

func (b *Bench) findNodes(ctx context.Context) error {
	all, err := b.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	for i := range all.Items {
		if node := &all.Items[i]; takesPods(node) && (b.Node == "" || b.Node == node.Name) {
			b.nodes = append(b.nodes, node.Name)
		}
	}
	switch {
	case len(b.nodes) > 0:
		return nil
	case b.Node != "":
		return fmt.Errorf("node %q takes no pods: it is missing, not ready, cordoned or tainted; name another of kubectl get nodes", b.Node)
	}
	return fmt.Errorf("none of %d nodes takes pods: all are not ready, cordoned or tainted", len(all.Items))
}

func takesPods(node *core.Node) bool {
	for _, taint := range node.Spec.Taints {
		if taint.Effect != core.TaintEffectPreferNoSchedule {
			return false
		}
	}
	for _, c := range node.Status.Conditions {
		if c.Type == core.NodeReady && c.Status != core.ConditionTrue {
			return false
		}
	}
	return !node.Spec.Unschedulable
}
