package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/retry"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
)

// Restore restores a deleted volume from the trash of its node, waits until it is Ready, and prints the next step. The
// node may be omitted if only one has the volume in its trash.
func (a *Admin) Restore(ctx context.Context, name, node string) error {
	there, absence := a.Holdfast.HoldfastV1beta1().Volumes().Get(ctx, name, metav1.GetOptions{})
	if absence != nil && !apierrors.IsNotFound(absence) {
		return a.absent(ctx, name, absence)
	}
	exists := absence == nil
	n, err := a.whereTrashed(ctx, name, node)
	if exists && there.Status.Phase != v1beta1.PhaseLost && errors.Is(err, errUnlisted) {
		err = nil // it need not be in a trash
	}
	switch {
	case err != nil:
		return err
	case !exists && n == nil:
		return a.absent(ctx, name, absence)
	case exists && (n == nil || restoring(n, name) == nil && !missing(there, n.Name)):
		return a.notRestored(ctx, there, n)
	}
	if t := trashed(n, name); t != nil && t.Incomplete {
		return fmt.Errorf("volume %s in the trash of %s was deleted before all of its content had been copied into it: it is a part of what it was to be, and is not restored; copy its source again", name, n.Name)
	}
	ctx, cancel := a.limited(ctx)
	defer cancel()
	if err := a.requestRestore(ctx, n.Name, name); err != nil {
		return err
	}
	if err := a.awaitRestore(ctx, n.Name, name); err != nil {
		return err
	}
	v, err := a.awaitReady(ctx, name)
	if err != nil {
		return err
	}
	a.sayf("volume %s (%s) is back on %s in pool %s", name, v.Status.Columns.Size, v.Spec.Node, v.Status.Pool)
	return a.printNextStep(ctx, v)
}

// notRestored fails unless the volume exists with its data, such as after a restore, and no trash lists another one of
// that name. What is being deleted may be listed before its object is gone.
func (a *Admin) notRestored(ctx context.Context, v *v1beta1.Volume, n *v1beta1.StorageNode) error {
	if err := refuseDeleted(v); err != nil {
		return err
	}
	r := recordOf(v)
	switch {
	case n != nil && trashed(n, v.Name) != nil:
		return fmt.Errorf("volume %s exists, on %s (%s): what %s has in its trash is an older one of that name, "+
			"and can come back only when this one is gone",
			v.Name, v.Spec.Node, r.Phase, n.Name)
	case r.Phase == v1beta1.PhaseLost, r.Phase == v1beta1.PhaseFailed:
		return fmt.Errorf("volume %s cannot be restored: no trash lists it, and on %s it is %s (%s); docs/disaster-recovery.md says what to do",
			v.Name, v.Spec.Node, r.Phase, r.Condition)
	}
	a.sayf("no trash lists volume %s: it exists on %s and is %s", v.Name, v.Spec.Node, r.Phase)
	return a.printNextStep(ctx, v)
}

// missing returns whether a Volume is Lost on that node. After a restore of etcd from before the deletion, the volume
// in the trash is that of the object.
func missing(v *v1beta1.Volume, node string) bool {
	return v.Spec.Node == node && v.Status.Phase == v1beta1.PhaseLost && v.DeletionTimestamp == nil
}

// requestRestore writes the request, unless it exists. A failed one is replaced.
func (a *Admin) requestRestore(ctx context.Context, node, name string) error {
	who, err := a.whoami(ctx)
	if err != nil {
		return err
	}
	return a.changeRestores(ctx, node, func(n *v1beta1.StorageNode) []v1beta1.RestoreRequest {
		if r := restoring(n, name); r != nil && r.Error == "" {
			return n.Spec.Restore
		}
		return append(without(n.Spec.Restore, name), v1beta1.RestoreRequest{Name: name, RequestedBy: who, RequestedAt: new(metav1.NowMicro())})
	})
}

// withdraw removes a failed request, so that it is not fulfilled later when no command waits for it.
func (a *Admin) withdraw(ctx context.Context, node, name string) error {
	return a.changeRestores(ctx, node, func(n *v1beta1.StorageNode) []v1beta1.RestoreRequest {
		if r := restoring(n, name); r == nil || r.Error == "" {
			return n.Spec.Restore
		}
		return without(n.Spec.Restore, name)
	})
}

func without(all []v1beta1.RestoreRequest, name string) []v1beta1.RestoreRequest {
	return slices.DeleteFunc(slices.Clone(all), func(r v1beta1.RestoreRequest) bool { return r.Name == name })
}

// changeRestores changes spec.restore of a StorageNode. It retries if another client changes the object in between.
func (a *Admin) changeRestores(ctx context.Context, node string, change func(*v1beta1.StorageNode) []v1beta1.RestoreRequest) error {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		n, err := a.Holdfast.HoldfastV1beta1().StorageNodes().Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		next := change(n)
		if slices.Equal(next, n.Spec.Restore) {
			return nil
		}
		_, err = kube.MergePatch(ctx, a.Controller.HoldfastV1beta1().StorageNodes().Patch, node, map[string]any{
			"metadata": map[string]any{"uid": n.UID, "resourceVersion": n.ResourceVersion}, "spec": map[string]any{"restore": next},
		}, fieldManager)
		return err
	})
	if err != nil {
		return a.explain(fmt.Errorf("spec.restore of StorageNode %s could not be written: %w", node, err))
	}
	return nil
}

// awaitRestore waits until the agent has fulfilled the request. A request that fails is withdrawn.
func (a *Admin) awaitRestore(ctx context.Context, node, name string) error {
	failure := ""
	err := a.followNode(ctx, node, func(n *v1beta1.StorageNode) (bool, string, error) {
		if n == nil {
			return false, "", fmt.Errorf("StorageNode %s was deleted, and with it the request; try again when its agent has written it again", node)
		}
		switch r := restoring(n, name); {
		case r == nil:
			return true, "", nil
		case r.Error != "":
			failure = r.Error
			return true, "", nil
		}
		state := fmt.Sprintf("%s takes volume %s out of its trash", node, name)
		if c := meta.FindStatusCondition(n.Status.Conditions, v1beta1.ReadyCondition); c != nil && c.Status == metav1.ConditionUnknown {
			state = fmt.Sprintf("%s does not renew its Lease (%s); the request stays, and is carried out when the agent is back", node, c.Message)
		}
		return false, state, nil
	})
	if err != nil || failure == "" {
		return err
	}
	refused := fmt.Errorf("%s could not restore volume %s: %s", node, name, failure)
	if err := a.withdraw(ctx, node, name); err != nil {
		return fmt.Errorf("%w; and the request is still there: %w", refused, err)
	}
	return fmt.Errorf("%w. The request is withdrawn; when the cause is resolved, try again", refused)
}

func (a *Admin) awaitReady(ctx context.Context, name string) (v *v1beta1.Volume, err error) {
	err = a.follow(ctx, volumes.follow(a.Holdfast, name), func(o runtime.Object) (bool, string, error) {
		if o == nil {
			return false, fmt.Sprintf("the object of volume %s is written", name), nil
		}
		if v = o.(*v1beta1.Volume); v.DeletionTimestamp != nil {
			return false, "", refuseDeleted(v)
		}
		r := recordOf(v)
		return r.Phase == v1beta1.PhaseReady, fmt.Sprintf("volume %s is %s (%s)", name, r.Phase, r.Condition), nil
	})
	return v, err
}

func (a *Admin) printNextStep(ctx context.Context, v *v1beta1.Volume) error {
	all, err := a.persistentVolumes(ctx)
	if err != nil {
		return err
	}
	found, err := a.namingOf(ctx, v, all)
	if err != nil {
		return err
	}
	for _, n := range found {
		if n.bound() {
			a.sayf("it is bound to claim %s/%s by PersistentVolume %s", n.claim.Namespace, n.claim.Name, n.Name)
			return a.unsaid
		}
	}
	claim := v.Spec.ClaimRef.String()
	if claim == "" {
		claim = "NAMESPACE/NAME"
	}
	a.sayf("no claim has it; to give it one: holdfast volumes adopt %s --claim %s", v.Name, claim)
	return a.unsaid
}
