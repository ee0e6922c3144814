// Package bootstrap creates the StorageCluster of a new installation. kubectl cannot create an object together with its
// definition, so a manifest with both would fail when it is applied for the first time.
package bootstrap

import (
	"context"
	"fmt"
	"log/slog"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// Annotation, on the namespace of Holdfast, names the StorageCluster to create. Users with a StorageCluster of their
// own leave it out of the manifest.
const Annotation = v1beta1.GroupName + "/first-cluster"

// Make creates the StorageCluster that the namespace requests, unless there is or was one: a namespace that belongs to a
// StorageCluster is about to be deleted with it.
func Make(ctx context.Context, kube kubernetes.Interface, client holdfast.Interface, namespace string, log *slog.Logger) error {
	in, err := kube.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("whether a StorageCluster should be created: namespace %s: %w", namespace, err)
	}
	name := in.Annotations[Annotation]
	if name == "" || in.DeletionTimestamp != nil || BelongsToCluster(in) {
		return nil
	}
	clusters := client.HoldfastV1beta1().StorageClusters()
	existing, err := clusters.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return fmt.Errorf("whether there is a StorageCluster: %w", err)
	}
	if len(existing.Items) > 0 {
		return nil
	}
	_, err = clusters.Create(ctx, &v1beta1.StorageCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{FieldManager: "holdfast-install"})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("creating StorageCluster %s, which annotation %s of namespace %s requests: %w", name, Annotation, namespace, err)
	}
	log.Info("created the first StorageCluster", "name", name)
	return nil
}

// BelongsToCluster says whether a StorageCluster owns an object.
func BelongsToCluster(o metav1.Object) bool {
	for _, owner := range o.GetOwnerReferences() {
		if owner.Kind == "StorageCluster" {
			return true
		}
	}
	return false
}
