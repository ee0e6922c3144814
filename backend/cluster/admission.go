package cluster

import (
	"context"
	"fmt"
	"slices"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/kube"
)

// admit refuses the node of a volume's source if the class of its claim does not allow that node. The nodes of the request
// do not show this: a single one may be the scheduler's choice, which the source overrules, or the only one that the class
// allows, which it does not.
func (b *Backend) admit(ctx context.Context, id backend.ID, labels map[string]string, source *backend.Source, node string) error {
	class, err := b.classOf(ctx, labels)
	if err != nil || class == "" {
		return err
	}
	c, err := kube.Live(ctx, b.Kubernetes.StorageV1().StorageClasses().Get, class)
	if err != nil {
		return unavailable(id, err)
	}
	if c == nil || len(c.AllowedTopologies) == 0 { // a deleted class restricts nothing
		return nil
	}
	has := map[string]string{v1beta1.TopologyKey: node}
	n, err := b.Kubernetes.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	switch {
	case err == nil && n.Labels != nil:
		has = n.Labels
	case err != nil && !apierrors.IsNotFound(err):
		return unavailable(id, err)
	}
	if slices.ContainsFunc(c.AllowedTopologies, func(t core.TopologySelectorTerm) bool { return matches(t, has) }) {
		return nil
	}
	return fmt.Errorf("%w: volume %s must be on node %s, where %s is, and allowedTopologies of class %s leave that node out; use a class that allows it",
		backend.ErrExhausted, id, node, source, class)
}

// classOf returns the class of a volume's claim, empty if it has none.
func (b *Backend) classOf(ctx context.Context, labels map[string]string) (string, error) {
	name := labels[v1beta1.ClaimNameLabel]
	if name == "" {
		return "", nil
	}
	claim, err := b.Kubernetes.CoreV1().PersistentVolumeClaims(labels[v1beta1.ClaimNamespaceLabel]).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && claim.Spec.StorageClassName == nil:
		return "", nil
	case err != nil:
		return "", unavailable(backend.ID(labels[v1beta1.PersistentVolumeLabel]), err)
	}
	return *claim.Spec.StorageClassName, nil
}

func unavailable(id backend.ID, err error) error {
	return fmt.Errorf("%w: where volume %s may be: %w", backend.ErrUnavailable, id, err)
}

// matches says whether labels match all expressions.
func matches(term core.TopologySelectorTerm, labels map[string]string) bool {
	return !slices.ContainsFunc(term.MatchLabelExpressions, func(e core.TopologySelectorLabelRequirement) bool {
		value, ok := labels[e.Key]
		return !ok || !slices.Contains(e.Values, value)
	})
}
