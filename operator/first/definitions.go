package first

import (
	"context"
	"fmt"
	"log/slog"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/holdfast-storage/holdfast/deploy"
)

// Definers is the field manager of the kinds. It is not the one that marks them with their owner, since of one manager
// the server keeps only what it said last.
const Definers = "holdfast-definitions"

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// Define brings the kinds that are installed to this release: an upgrade brings an image and no manifest. Those that
// are not there are left to whoever installs.
func Define(ctx context.Context, client dynamic.Interface, log *slog.Logger) error {
	wanted, err := deploy.Definitions()
	if err != nil {
		return err
	}
	kinds := client.Resource(definitions)
	for _, d := range wanted {
		was, err := kinds.Get(ctx, d.GetName(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("kind %s: %w", d.GetName(), err)
		}
		d.SetUID(was.GetUID()) // or it would be made if it has just been deleted
		is, err := kinds.Apply(ctx, d.GetName(), d, metav1.ApplyOptions{FieldManager: Definers, Force: true})
		if err != nil {
			return fmt.Errorf("bringing kind %s to this release: %w", d.GetName(), err)
		}
		if is.GetGeneration() != was.GetGeneration() {
			log.Info("brought a kind to this release", "kind", d.GetName())
		}
	}
	return nil
}
