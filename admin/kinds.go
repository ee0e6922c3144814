package admin

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	typed "github.com/holdfast-storage/holdfast/api/client/clientset/typed/api/v1beta1"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/printable"
)

// record is what a command knows of a Volume or a Snapshot.
type record struct {
	Row
	kind      string
	uid       types.UID
	made      time.Time // the object
	request   *v1beta1.DeletionRequest
	requested bool // the deletion request has the UID of this object
	group     *v1beta1.SnapshotGroup
}

func (r *record) String() string { return r.kind + " " + r.Name }

func recordOf(o runtime.Object) *record {
	switch o := o.(type) {
	case *v1beta1.Volume:
		s, copying := &o.Status, ""
		if s.Copy != nil && o.IsBeingPopulated() {
			copying = strings.TrimSuffix(fmt.Sprintf("%s: %s", s.Copy, s.Copy.Message), ": ")
		}
		return &record{
			Row: Row{
				Name: o.Name, CSIName: o.Spec.Name, ClaimRef: o.Spec.ClaimRef, Node: o.Spec.Node, Pool: o.PoolName(),
				Mode: string(s.Mode), FSType: s.FSType, CreationTime: timeOf(s.CreationTime), Size: v1beta1.Bytes(s.Size), Used: v1beta1.Bytes(s.Used),
				Phase: cmp.Or(s.Phase, v1beta1.PhasePending), Condition: condition(s.Error, s.Conditions, copying),
			},
			kind: "Volume", uid: o.UID, made: o.CreationTimestamp.Time, request: o.Spec.Deletion, requested: o.DeletionRequested(),
		}
	case *v1beta1.Snapshot:
		s := &o.Status
		return &record{
			Row: Row{
				Name: o.Name, CSIName: o.Spec.Name, SourceRef: &o.Spec.SourceRef, Node: o.Spec.Node, Pool: s.Pool,
				Mode: string(s.Mode), FSType: s.FSType, CreationTime: timeOf(s.CreationTime), Size: v1beta1.Bytes(s.Size), Used: v1beta1.Bytes(s.Used),
				Phase: cmp.Or(s.Phase, v1beta1.PhasePending), Condition: condition(s.Error, s.Conditions, ""),
			},
			kind: "Snapshot", uid: o.UID, made: o.CreationTimestamp.Time, request: o.Spec.Deletion, requested: o.DeletionRequested(), group: o.Spec.Group,
		}
	}
	return nil
}

func timeOf(t *metav1.MicroTime) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

const noProblem = "ok"

// condition returns the first problem in one line, or that there is none. A copy says how far it has brought the content.
func condition(failure *v1beta1.Error, conditions []metav1.Condition, copying string) string {
	if failure != nil {
		return fmt.Sprintf("%s: %s", failure.Code, printable.Line(failure.Message))
	}
	for _, kind := range []string{v1beta1.HealthyCondition, v1beta1.ReadyCondition} {
		if c := meta.FindStatusCondition(conditions, kind); c != nil && c.Status != metav1.ConditionTrue {
			message := c.Message
			if c.Reason == v1beta1.ReasonPopulating {
				message = cmp.Or(copying, message)
			}
			return strings.TrimSuffix(fmt.Sprintf("%s: %s", c.Reason, printable.Line(message)), ": ")
		}
	}
	return noProblem
}

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
