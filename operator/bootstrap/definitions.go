package bootstrap

import (
	"context"
	"fmt"
	"log/slog"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/holdfast-storage/holdfast/deploy"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
)

// Definers is the field manager of the definitions that belong to no Helm release. Another manager sets their owner,
// since an apply removes the fields that the same manager applied before.
const Definers = "holdfast-definitions"

// Define updates the installed kinds to this release: an upgrade changes the image and applies no manifest. Missing
// kinds are created by the installation.
func Define(ctx context.Context, client dynamic.Interface, log *slog.Logger) error {
	kinds := client.Resource(kube.Definitions)
	for _, d := range deploy.Definitions() {
		was, err := kinds.Get(ctx, d.GetName(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("kind %s: %w", d.GetName(), err)
		}
		d.SetUID(was.GetUID()) // otherwise it would be created if it has just been deleted
		is, err := Apply(ctx, kinds, d, apply.ReleaseOf(was))
		if err != nil {
			return fmt.Errorf("updating kind %s to this release: %w", d.GetName(), err)
		}
		if is.GetGeneration() != was.GetGeneration() {
			log.Info("updated a kind to this release", "kind", d.GetName())
		}
	}
	return nil
}

// Apply applies a kind. The fields of one that belongs to a Helm release stay Helm's, so that helm upgrade can change them.
func Apply(ctx context.Context, kinds dynamic.ResourceInterface, d *unstructured.Unstructured, release *apply.Release) (*unstructured.Unstructured, error) {
	if release == nil {
		return kinds.Apply(ctx, d.GetName(), d, metav1.ApplyOptions{FieldManager: Definers, Force: true})
	}
	rendered, err := kinds.Apply(ctx, d.GetName(), release.Rendered(d), metav1.ApplyOptions{FieldManager: release.Manager, Force: true})
	if err != nil {
		return nil, err
	}
	// Definers gives up the fields that it owned before Helm did.
	nothing := &unstructured.Unstructured{}
	nothing.SetGroupVersionKind(d.GroupVersionKind())
	nothing.SetName(d.GetName())
	nothing.SetUID(rendered.GetUID())
	return kinds.Apply(ctx, d.GetName(), nothing, metav1.ApplyOptions{FieldManager: Definers, Force: true})
}
