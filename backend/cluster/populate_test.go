package cluster_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/inmemory"
)

// snapshotOnNode makes a volume on the node, and a snapshot s of it.
func (w *world) snapshotOnNode() {
	w.Helper()
	check.Got(w.Backend.Create(w.Context(), inmemory.Spec("local", 2*mib)))(w)
	check.Got(w.Backend.Snapshot(w.Context(), backend.SnapshotSpec{Name: "s", Source: "local"}))(w)
}

// intoCeph restores the snapshot into the Ceph pool, as volume v, until the call ends while a pod would copy.
func (w *world) intoCeph() error {
	w.Helper()
	return w.Unfinished("by a pod", func(ctx context.Context) error {
		_, err := w.Backend.Restore(ctx, "s", cephSpec("v", 0, "elsewhere"))
		return err
	})
}

func TestPopulated_VolumeIsMadeEmptyAndReturnedWhenItIsComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, pool, _ := withCeph(t, v1beta1.EngineRBD, 100*gib, 100*gib)
		w.snapshotOnNode()
		inmemory.Expect(t, w.intoCeph(), backend.ErrBusy, "by a pod")
		o := w.Volume("v")
		if o.Spec.PopulatedBy != v1beta1.PopulatedByPod || o.Spec.Node != inmemory.CephPool || v1beta1.Bytes(o.Spec.Size.Required) != 2*mib {
			t.Fatalf("the object asks for %+v", o.Spec)
		}
		if v, err := pool.Get(t.Context(), "v"); err != nil || v.Source != nil || v.Size != 2*mib {
			t.Fatalf("the pool has %+v, %v", v, err)
		}
		if v, err := w.Backend.Get(t.Context(), "v"); err != nil || v.Access.RBD == nil {
			t.Errorf("the pod that copies would use %+v, %v", v, err)
		}
		_, err := w.Backend.Snapshot(t.Context(), backend.SnapshotSpec{Name: "of-v", Source: "v"})
		inmemory.Expect(t, err, backend.ErrUnavailable, "all of its content")
		inmemory.Refused(w.Backend.Clone(t.Context(), "v", cephSpec("clone", 2*mib)))(t, backend.ErrUnavailable, "all of its content")

		w.Answer("v", func(v *v1beta1.Volume) {
			v.Status.Copy = &v1beta1.VolumeCopy{Phase: v1beta1.CopyCopying, BytesDone: 700, BytesTotal: 2000}
		})
		w.Until("the word how far it is", func() bool { return strings.Contains(w.intoCeph().Error(), "700 of 2000") })
		w.Answer("v", func(v *v1beta1.Volume) {
			meta.SetStatusCondition(&v.Status.Conditions, metav1.Condition{Type: v1beta1.PopulatedCondition, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonPopulated})
		})
		for range 2 {
			v, err := w.Backend.Restore(t.Context(), "s", cephSpec("v", 0))
			if err != nil || v.Source == nil || v.Source.ID != "s" || v.Size != 2*mib {
				t.Fatalf("complete it is %+v, %v", v, err)
			}
		}
		w.Until("the agent saying that it is ready", func() bool {
			status, _ := w.Readiness(w.Volume("v").Status.Conditions)
			return status == metav1.ConditionTrue && w.Volume("v").Status.Copy != nil
		})
	})
}

func TestPopulated_VolumeDeletedWhileItIsCopiedIsNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, pool, _ := withCeph(t, v1beta1.EngineRBD, 100*gib, 100*gib)
		w.snapshotOnNode()
		inmemory.Expect(t, w.intoCeph(), backend.ErrBusy)
		check.OK(t, w.Volumes().Delete(t.Context(), "v", metav1.DeleteOptions{}))
		w.Until("the agent finding it", func() bool {
			v, err := w.Volumes().Get(t.Context(), "v", metav1.GetOptions{})
			return err == nil && v.IsIncomplete()
		})
		inmemory.Refused(w.Backend.Restore(t.Context(), "s", cephSpec("v", 0)))(t, backend.ErrExists, "holdfast volumes delete v")
		inmemory.Refused(w.Backend.Clone(t.Context(), "v", cephSpec("clone", 2*mib)))(t, backend.ErrPrecondition, "only a part of its content")
		check.OK(t, w.Backend.Delete(t.Context(), "v"))
		if w.Gone("v"); pool.Has("v") {
			t.Error("the pool still has it")
		}
		inmemory.Expect(t, w.intoCeph(), backend.ErrBusy)
	})
}

func TestPopulated_FailedCopyIsTheErrorAndIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, pool, _ := withCeph(t, v1beta1.EngineRBD, 100*gib, 100*gib)
		w.snapshotOnNode()
		inmemory.Expect(t, w.intoCeph(), backend.ErrBusy)
		w.Answer("v", func(v *v1beta1.Volume) {
			v.Status.Copy = &v1beta1.VolumeCopy{Phase: v1beta1.CopyFailed, Message: "no space left in /to"}
		})
		if o := w.Volume("v"); o.IsComplete() {
			t.Error("it counts as complete")
		}
		var err error
		w.Until("the error", func() bool {
			err = w.intoCeph()
			return strings.Contains(err.Error(), "no space left in /to")
		})
		inmemory.Expect(t, err, backend.ErrPrecondition, "could not be copied")
		w.Gone("v")
		if pool.Has("v") {
			t.Error("the pool still has it")
		}
	})
}

func TestPopulated_WhatDoesNotFitTheSourceIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _, host := withCeph(t, v1beta1.EngineRBD, 100*gib, 100*gib)
		w.snapshotOnNode()
		block := cephSpec("a", 0)
		block.Mode = backend.Block
		inmemory.Refused(w.Backend.Restore(t.Context(), "s", block))(t, backend.ErrInvalid, "mode Block", "mode Filesystem")
		inmemory.Refused(w.Backend.Restore(t.Context(), "s", cephSpec("b", mib)))(t, backend.ErrOutOfRange, "1Mi, ", "has 2Mi")
		gone := cephSpec("d", 0)
		gone.Labels = map[string]string{v1beta1.ClaimNamespaceLabel: "shop", v1beta1.ClaimNameLabel: "gone"}
		inmemory.Refused(w.Backend.Restore(t.Context(), "s", gone))(t, backend.ErrPrecondition, "shop/gone is gone")
		limited := cephSpec("c", 0)
		limited.Size.Limit = mib
		inmemory.Refused(w.Backend.Restore(t.Context(), "s", limited))(t, backend.ErrInvalid, "as large as snapshot s")
		for _, name := range []string{"a", "b", "c", "d"} {
			if w.Volume(name) != nil || host.Has(backend.ID(name)) {
				t.Errorf("%s is there", name)
			}
		}
	})
}

func TestPopulated_NodeOfTheSourceMustReachTheCephPool(t *testing.T) {
	for engine, condition := range map[v1beta1.Engine]string{v1beta1.EngineRBD: v1beta1.RBDVolumesCondition, v1beta1.EngineCephFS: v1beta1.CephFSVolumesCondition} {
		t.Run(string(engine), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, _, _ := withCeph(t, engine, 100*gib, 100*gib)
				w.snapshotOnNode()
				_ = w.reports(condition, metav1.ConditionFalse)
				_, err := w.Backend.Restore(t.Context(), "s", cephSpec("v", 0))
				inmemory.Expect(t, err, backend.ErrPrecondition, "the kernel has no module", "on node "+node, "mend that")
				if w.Volume("v") != nil {
					t.Error("it is requested")
				}
				_ = w.reports(condition, metav1.ConditionTrue)
				inmemory.Expect(t, w.intoCeph(), backend.ErrBusy)
			})
		})
	}
}

func TestPopulated_PoolsOfOneNodeAreCopiedThere(t *testing.T) {
	inBubble(t, func(w *world) {
		w.Puppet("a", 100*gib, "memory", "fast", "memory.2")
		w.Puppet("b", 100*gib, "memory", "fast")
		w.Start()
		for _, n := range []string{"a", "b"} {
			w.Ready(n)
		}
		source, err := w.Volumes().Create(w.Context(), &v1beta1.Volume{
			ObjectMeta: metav1.ObjectMeta{Name: "source"},
			Spec:       v1beta1.VolumeSpec{Name: "source", Node: "a", Pool: "memory.2", Size: v1beta1.VolumeSize{Required: v1beta1.Quantity(mib)}},
		}, metav1.CreateOptions{})
		check.OK(w, err)
		w.Answer(source.Name, func(v *v1beta1.Volume) {
			inmemory.Made(v)
			v.Status.Mode, v.Status.Pool = v1beta1.ModeFilesystem, "memory.2"
		})
		w.Until("the source in the cache", func() bool {
			v, err := w.Backend.Get(w.Context(), "source")
			return err == nil && v.Pool == "memory.2"
		})
		for name, test := range map[string]struct {
			pool, in string
			by       v1beta1.Populator
		}{
			"same": {"memory", "memory.2", ""}, "none": {"", "memory.2", ""}, "several": {"fast,memory", "memory.2", ""},
			"other": {"fast", "fast", v1beta1.PopulatedByPod},
		} {
			spec := inmemory.Spec(name, 2*mib, "b")
			spec.Pool, spec.NodesYield = test.pool, true
			inmemory.Expect(w, w.Unfinished("retry", func(ctx context.Context) error {
				_, err := w.Backend.Clone(ctx, "source", spec)
				return err
			}), backend.ErrBusy)
			if o := w.Volume(name); o.Spec.Node != "a" || o.Spec.Pool != test.in || o.Spec.PopulatedBy != test.by {
				w.Errorf("%s: requested %+v", name, o.Spec)
			}
		}
		spec := inmemory.Spec("elsewhere", 2*mib, "b")
		spec.Pool = "fast"
		inmemory.Refused(w.Backend.Clone(w.Context(), "source", spec))(w, backend.ErrExhausted, "must be on node a")
	})
}

func TestPopulated_SourceInACephPoolLeavesTheNodeToTheScheduler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, pool, _ := withCeph(t, v1beta1.EngineRBD, 100*gib, gib)
		check.Got(w.Backend.Create(t.Context(), cephSpec("there", mib)))(t)
		spec := inmemory.Spec("v", mib, node)
		spec.NodesYield = true
		err := w.Unfinished("by a pod", func(ctx context.Context) error {
			_, err := w.Backend.Clone(ctx, "there", spec)
			return err
		})
		inmemory.Expect(t, err, backend.ErrBusy)
		if o := w.Volume("v"); o.Spec.Node != node || o.Spec.PopulatedBy != v1beta1.PopulatedByPod || pool.Has("v") {
			t.Errorf("requested %+v", o.Spec)
		}
	})
}
