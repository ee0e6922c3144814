package admin

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	typed "github.com/holdfast-storage/holdfast/api/client/clientset/typed/api/v1beta1"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/printable"
)

// record has the common fields of Volumes and Snapshots.
type record struct {
	*metav1.ObjectMeta
	kind       string
	node, pool string
	csiName    string                       // the name in the CSI request
	claim      *v1beta1.NamespacedReference // of a Volume
	source     *v1beta1.SourceReference     // of a Snapshot
	mode       string
	fsType     string
	created    *metav1.MicroTime // on disk
	size, used *resource.Quantity
	phase      v1beta1.Phase
	conditions []metav1.Condition
	failure    *v1beta1.Error
	request    *v1beta1.DeletionRequest
	requested  bool // the deletion request has the UID of this object
	group      *v1beta1.SnapshotGroup
	copying    string // how far a pod has brought the content of a Volume; empty if none does
}

func (r *record) String() string { return r.kind + " " + r.Name }

func recordOf(o runtime.Object) *record {
	switch o := o.(type) {
	case *v1beta1.Volume:
		r := &record{
			ObjectMeta: &o.ObjectMeta, kind: "Volume", node: o.Spec.Node, pool: o.PoolName(), claim: o.Spec.ClaimRef,
			csiName: o.Spec.Name, mode: string(o.Status.Mode), fsType: o.Status.FSType, created: o.Status.CreationTime,
			size: o.Status.Size, used: o.Status.Used, phase: cmp.Or(o.Status.Phase, v1beta1.PhasePending), conditions: o.Status.Conditions,
			failure: o.Status.Error, request: o.Spec.Deletion, requested: o.DeletionRequested(),
		}
		if c := o.Status.Copy; o.IsBeingPopulated() && c != nil {
			r.copying = strings.TrimSuffix(fmt.Sprintf("%s: %s", c, c.Message), ": ")
		}
		return r
	case *v1beta1.Snapshot:
		return &record{
			ObjectMeta: &o.ObjectMeta, kind: "Snapshot", node: o.Spec.Node, pool: o.Status.Pool, source: &o.Spec.SourceRef,
			csiName: o.Spec.Name, mode: string(o.Status.Mode), fsType: o.Status.FSType, created: o.Status.CreationTime,
			size: o.Status.Size, used: o.Status.Used, phase: cmp.Or(o.Status.Phase, v1beta1.PhasePending), conditions: o.Status.Conditions,
			failure: o.Status.Error, request: o.Spec.Deletion, requested: o.DeletionRequested(), group: o.Spec.Group,
		}
	}
	return nil
}

// noProblem is the condition of an object without problems.
const noProblem = "ok"

// condition returns the first problem in one line, or fine.
func (r *record) condition() string {
	if r.failure != nil {
		return fmt.Sprintf("%s: %s", r.failure.Code, printable.Line(r.failure.Message))
	}
	for _, kind := range []string{v1beta1.HealthyCondition, v1beta1.ReadyCondition} {
		if c := meta.FindStatusCondition(r.conditions, kind); c != nil && c.Status != metav1.ConditionTrue {
			message := c.Message
			if c.Reason == v1beta1.ReasonPopulating {
				message = cmp.Or(r.copying, message)
			}
			return strings.TrimSuffix(fmt.Sprintf("%s: %s", c.Reason, printable.Line(message)), ": ")
		}
	}
	return noProblem
}

// kind has the requests for Volumes or for Snapshots.
type kind struct {
	name     string
	resource string // also the name of the command
	get      func(context.Context, holdfast.Interface, string) (runtime.Object, error)
	follow   func(holdfast.Interface, string) followed
	patch    func(context.Context, holdfast.Interface, string, []byte) error
	remove   func(context.Context, holdfast.Interface, string, metav1.DeleteOptions) error
}

var (
	volumes = kindOf("Volume", "volumes", func(c holdfast.Interface) typed.VolumeInterface { return c.HoldfastV1beta1().Volumes() })

	snapshots = kindOf("Snapshot", "snapshots", func(c holdfast.Interface) typed.SnapshotInterface { return c.HoldfastV1beta1().Snapshots() })
)

// client is the common part of the generated clients.
type client[T runtime.Object] interface {
	reader[T]
	Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (T, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
}

func kindOf[T runtime.Object, C client[T]](name, resource string, of func(holdfast.Interface) C) kind {
	return kind{
		name: name, resource: resource,
		get: func(ctx context.Context, c holdfast.Interface, name string) (runtime.Object, error) {
			return of(c).Get(ctx, name, metav1.GetOptions{})
		},
		follow: func(c holdfast.Interface, name string) followed { return following(of(c), name) },
		patch: func(ctx context.Context, c holdfast.Interface, name string, data []byte) error {
			_, err := of(c).Patch(ctx, name, types.MergePatchType, data, metav1.PatchOptions{FieldManager: fieldManager})
			return err
		},
		remove: func(ctx context.Context, c holdfast.Interface, name string, opts metav1.DeleteOptions) error {
			return of(c).Delete(ctx, name, opts)
		},
	}
}
