//go:build linux && !client

package main

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	typed "github.com/holdfast-storage/holdfast/api/client/clientset/typed/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
)

// checkComplete decides about volumes that are stored as incomplete. One with spec.populatedBy is used by the pod that brings
// its content, or is complete and its agent has not recorded that yet. The content of any other is not brought any more.
func checkComplete(volumes typed.VolumeInterface) func(context.Context, backend.ID) error {
	return func(ctx context.Context, id backend.ID) error {
		ctx, cancel := context.WithTimeout(ctx, lookUpTime)
		defer cancel()
		o, err := volumes.Get(ctx, string(id), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return fmt.Errorf("%w: volume %s is stored as incomplete, and has no object yet that says whether its content is being brought", backend.ErrUnavailable, id)
		case err != nil:
			return fmt.Errorf("%w: volume %s is stored as incomplete, and its object cannot be read, which says whether its content is being brought: %w", backend.ErrUnavailable, id, err)
		case o.Spec.PopulatedBy == "":
			return fmt.Errorf("%w: volume %s has only a part of its content, since its object was deleted while it was copied; delete it (holdfast volumes delete %s)", backend.ErrPrecondition, id, id)
		}
		return nil
	}
}
