package apply

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// replace deletes an object of which immutable fields would change, and recreates it. If the API server refuses the new
// object as well, the old one stays and refusal is returned.
func (a *application) replace(ctx context.Context, live *unstructured.Unstructured, refusal error) (*unstructured.Unstructured, error) {
	c := a.client(a.Client, a.ref.Namespace)
	_, err := c.Create(ctx, a.desired, metav1.CreateOptions{FieldManager: FieldManager, DryRun: []string{metav1.DryRunAll}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, refusal
	}
	if err := a.inventory.change(ctx, map[Ref]types.UID{a.ref: ""}, nil); err != nil {
		return nil, errors.Join(refusal, err)
	}
	uid, propagation := live.GetUID(), metav1.DeletePropagationBackground
	if a.ref.Group == "apps" {
		propagation = metav1.DeletePropagationOrphan // the new workload adopts the pods
	}
	if err := c.Delete(ctx, a.ref.Name, metav1.DeleteOptions{PropagationPolicy: &propagation, Preconditions: &metav1.Preconditions{UID: &uid}}); err != nil {
		return nil, fmt.Errorf("deleting it to recreate it: %w", err)
	}
	a.forget(a.ref, nil)
	a.Log.Info("recreated, since it cannot be changed", "object", a.ref.String(), "reason", refusal.Error())
	_, err = c.Create(ctx, a.desired, metav1.CreateOptions{FieldManager: FieldManager, DryRun: []string{metav1.DryRunAll}})
	if apierrors.IsAlreadyExists(err) {
		a.again = time.Second
		return nil, ErrLeaving
	}
	return a.apply(ctx, a.desired)
}
