package cluster_test

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/inmemory"
)

func TestCreate_VolumeIsCreatedOnTheRequestedNode(t *testing.T) {
	inBubble(t, func(w *world) {
		hosts := w.Hosts(map[string]int64{"a": gib, "b": 10 * gib})
		asked := inmemory.Spec("v", mib, "a")
		asked.OnNodeLoss = backend.DeleteOnNodeLoss
		asked.Labels = map[string]string{"csi.storage.k8s.io/pvc/name": "data", "csi.storage.k8s.io/pvc/namespace": "shop"}
		v, err := w.Backend.Create(w.Context(), asked)
		if err != nil || v.Node != "a" || !hosts["a"].Has("v") {
			w.Fatalf("made %+v, %v", v, err)
		}
		if o := w.Volume("v"); o.Spec.Node != "a" || o.Spec.ClaimRef.String() != "shop/data" || o.Spec.OnNodeLoss != v1beta1.DeleteOnNodeLoss {
			w.Errorf("the object is %+v", o.Spec)
		}
		asked.Nodes = []string{"b"}
		if v, err := w.Backend.Create(w.Context(), asked); err != nil || v.Node != "a" {
			w.Errorf("requested on another node it is %+v, %v", v, err)
		}
	})
}

func TestCreate_VolumesWithoutANodeAreSpreadByFreeCapacity(t *testing.T) {
	inBubble(t, func(w *world) {
		w.Publish = time.Hour // a report that lists a volume before its object does would count it twice
		hosts := w.Hosts(map[string]int64{"a": 20 * gib, "b": 20 * gib, "c": 12 * gib})
		var all sync.WaitGroup
		for i := range 40 {
			all.Go(func() {
				if _, err := w.Backend.Create(w.Context(), inmemory.Spec(fmt.Sprintf("v%d", i), gib)); err != nil {
					w.Errorf("volume %d: %v", i, err)
				}
			})
		}
		all.Wait()
		// Each choice goes to the node with the most left, so what is left is even in the end.
		for name, h := range hosts {
			if c, err := h.Capacity(w.Context(), ""); err != nil || c.Available != 4*gib {
				w.Errorf("node %s has %d MiB left of 12 GiB in all, %v: %v", name, c.Available/mib, err, h.Volumes())
			}
		}
	})
}

func TestCreate_NextNodeIsTriedWhenOneRefuses(t *testing.T) {
	inBubble(t, func(w *world) {
		hosts := w.Hosts(map[string]int64{"a": 10 * gib, "b": 5 * gib})
		hosts["a"].Refuses("create", fmt.Errorf("%w: the disk is fuller than its report", backend.ErrExhausted))
		v, err := w.Backend.Create(w.Context(), inmemory.Spec("v", mib))
		if err != nil || v.Node != "b" || hosts["a"].Has("v") {
			w.Fatalf("made %+v, %v", v, err)
		}
		hosts["b"].Refuses("create", fmt.Errorf("%w: this one too", backend.ErrExhausted))
		inmemory.Refused(w.Backend.Create(w.Context(), inmemory.Spec("w", mib)))(w, backend.ErrExhausted, "this one too")
		w.Gone("w")
	})
}

func TestCreate_FullNodeIsRefusedWithTheFreeCapacityPerNode(t *testing.T) {
	inBubble(t, func(w *world) {
		hosts := w.Hosts(map[string]int64{"a": gib, "b": 2 * gib})
		_, err := w.Backend.Create(w.Context(), inmemory.Spec("v", 3*gib))
		inmemory.Expect(w, err, backend.ErrExhausted, "a: ", "b: ", "needs 3Gi", "1Gi are free", "2Gi are free")
		inmemory.Refused(w.Backend.Create(w.Context(), inmemory.Spec("v", 2*gib, "a")))(w, backend.ErrExhausted, "a: ")
		if len(hosts["a"].Volumes())+len(hosts["b"].Volumes()) > 0 || w.Volume("v") != nil {
			w.Error("something was left behind")
		}
		if _, err = w.Backend.Create(w.Context(), inmemory.Spec("v", 2*gib, "b")); err != nil {
			w.Errorf("on the node that has room: %v", err)
		}
	})
}

func TestCapacity_ReleasedIsAvailableAtOnce(t *testing.T) {
	inBubble(t, func(w *world) {
		w.Hosts(map[string]int64{"a": gib})
		for i := range 20 {
			name := fmt.Sprintf("v%d", i)
			if _, err := w.Backend.Create(w.Context(), inmemory.Spec(name, gib, "a")); err != nil {
				w.Fatalf("volume %d: %v", i, err)
			}
			check.OK(w, w.Backend.Delete(w.Context(), backend.ID(name)))
		}
	})
}

func TestCreate_RefusalLeavesNothingAndKeepsItsKind(t *testing.T) {
	inBubble(t, func(w *world) {
		host := w.Hosts(map[string]int64{"a": gib})["a"]
		for _, kind := range []error{
			backend.ErrNotFound, backend.ErrExists, backend.ErrInvalid, backend.ErrOutOfRange,
			backend.ErrExhausted, backend.ErrPrecondition, backend.ErrUnavailable,
		} {
			host.Refuses("create", fmt.Errorf("%w: said the disk", kind))
			inmemory.Refused(w.Backend.Create(w.Context(), inmemory.Spec("v", mib, "a")))(w, kind, "said the disk", "node a")
		}
		host.Refuses("create", nil)
		check.Got(w.Backend.Create(w.Context(), inmemory.Spec("v", mib, "a")))(w) // after all that
	})
}

func TestCreate_UnknownPoolIsInvalidAndOneOnOtherNodesIsExhausted(t *testing.T) {
	inBubble(t, func(w *world) {
		w.Puppet("a", gib, "slow")
		w.Puppet("b", gib, "fast", "spare")
		w.Start()
		none := inmemory.Spec("v", mib)
		none.Pool = "none"
		inmemory.Refused(w.Backend.Create(w.Context(), none))(w, backend.ErrInvalid, "none", "slow", "fast", "spare")
		fast := inmemory.Spec("v", mib, "a")
		fast.Pool = "fast"
		inmemory.Refused(w.Backend.Create(w.Context(), fast))(w, backend.ErrExhausted, "fast", "a: ")
		inmemory.Refused(w.Backend.CapacityAt(w.Context(), "a", "fast"))(w, backend.ErrNotFound, "fast", "slow")
		inmemory.Refused(w.Backend.CapacityAt(w.Context(), "noNode", ""))(w, backend.ErrNotFound, "noNode")
		inmemory.Refused(w.Backend.Capacity(w.Context(), "none"))(w, backend.ErrNotFound, "none")
		if c, err := w.Backend.Capacity(w.Context(), ""); err != nil || c.Available != 2*gib || c.Largest != gib {
			w.Errorf("of the first pools of both: %+v, %v", c, err)
		}
	})
}

// made makes a volume on puppets, and returns its object.
func (w *world) made(name string, bytes int64, pool string) *v1beta1.Volume {
	w.Helper()
	spec := inmemory.Spec(name, bytes)
	spec.Pool = pool
	go w.Answer(name, func(v *v1beta1.Volume) {
		inmemory.Made(v)
		v.Status.Pool = v.Spec.Pool
	})
	v := check.Got(w.Backend.Create(w.Context(), spec))(w.T)
	if again, err := w.Backend.Create(w.Context(), spec); err != nil || again.Pool != v.Pool {
		w.Errorf("%s, which is in %s, is requested again: %+v, %v", name, v.Pool, again, err)
	}
	return w.Volume(name)
}

func TestCreate_PoolsOfANodeAreFilledEvenly(t *testing.T) {
	for request, want := range map[string]map[string]int{
		"fast":      {"fast": 4, "fast.2": 4, "fast.3": 4},
		"fast,slow": {"fast": 3, "fast.2": 3, "fast.3": 3, "slow": 3},
		"":          {"fast": 4, "fast.2": 4, "fast.3": 4},
		"fast.2":    {"fast.2": 12},
		"slow":      {"slow": 12},
	} {
		t.Run(request, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.Puppet("a", 20*gib, "fast", "slow", "fast.2", "fast.3")
				w.Start()
				got := map[string]int{}
				for i := range 12 {
					got[w.made(fmt.Sprintf("v%d", i), gib, request).Spec.Pool]++
				}
				if !maps.Equal(got, want) {
					w.Errorf("the volumes are in %v, want %v", got, want)
				}
			})
		})
	}
}

func TestCreate_VolumeFitsOnePoolOfAClassAndASickOneTakesNoOtherWithIt(t *testing.T) {
	inBubble(t, func(w *world) {
		w.Puppet("a", 2*gib, "fast", "fast.2")
		w.Start()
		large := inmemory.Spec("large", 3*gib)
		large.Pool = "fast"
		if c, err := w.Backend.CapacityAt(w.Context(), "a", "fast"); err != nil || c.Available != 4*gib || c.Largest != 2*gib || c.Total != 4*gib {
			w.Errorf("both have %+v, %v", c, err)
		}
		inmemory.Refused(w.Backend.Create(w.Context(), large))(w, backend.ErrExhausted, "2Gi are free")
		sick := func(pool int, why string) {
			w.statusOf("a", func(n *v1beta1.StorageNode) { n.Status.Pools[pool].Message = why })
		}
		sick(0, "its disk is missing")
		w.Until("that being known", func() bool {
			c, err := w.Backend.CapacityAt(w.Context(), "a", "fast")
			return err == nil && c.Available == 2*gib && c.Largest == 2*gib
		})
		if v := w.made("v", gib, "fast"); v.Spec.Pool != "fast.2" {
			w.Errorf("it is requested in %q", v.Spec.Pool)
		}
		spec := inmemory.Spec("w", 2*gib)
		spec.Pool = "fast"
		inmemory.Refused(w.Backend.Create(w.Context(), spec))(w, backend.ErrExhausted, "its disk is missing")
		sick(1, "so is this one's")
		w.Until("both being sick", func() bool {
			_, err := w.Backend.CapacityAt(w.Context(), "a", "fast")
			return err != nil
		})
	})
}

func TestCreate_NextPoolIsTriedWhenOneRefuses(t *testing.T) {
	inBubble(t, func(w *world) {
		w.Puppet("a", 2*gib, "fast", "fast.2")
		w.Start()
		go func() {
			w.Answer("v", func(v *v1beta1.Volume) {
				v.Status.Phase, v.Status.Error = v1beta1.PhaseFailed, &v1beta1.Error{Code: v1beta1.ErrorExhausted, Message: "the disk is fuller than its report"}
			})
			w.Until("the deletion", func() bool { return w.Volume("v").DeletionTimestamp != nil })
			w.RemoveFinalizer("v")
			w.Until("a request in the other pool", func() bool { v := w.Volume("v"); return v != nil && v.Spec.Pool == "fast.2" })
			w.Answer("v", func(v *v1beta1.Volume) { inmemory.Made(v); v.Status.Pool = "fast.2" })
		}()
		spec := inmemory.Spec("v", gib, "a")
		spec.Pool = "fast"
		if v, err := w.Backend.Create(w.Context(), spec); err != nil || v.Pool != "fast.2" {
			w.Errorf("made %+v, %v", v, err)
		}
	})
}

func TestCreate_FailingPoolIsNotChosen(t *testing.T) {
	inBubble(t, func(w *world) {
		w.Puppet("a", 2*gib)
		w.Puppet("b", gib)
		w.statusOf("a", func(n *v1beta1.StorageNode) { n.Status.Pools[0].Message = "not mounted" })
		w.Start()
		inmemory.Refused(w.Backend.Create(w.Context(), inmemory.Spec("v", mib, "a")))(w, backend.ErrExhausted, "not mounted")
		go w.Answer("v", inmemory.Made)
		if v, err := w.Backend.Create(w.Context(), inmemory.Spec("v", mib)); err != nil || v.Node != "b" {
			w.Errorf("made %+v, %v", v, err)
		}
	})
}

func TestCreate_ExpiredCallReportsProgressAndItsRetryJoins(t *testing.T) {
	inBubble(t, func(w *world) {
		w.Puppet("a", gib)
		w.Start()
		ask := func(ctx context.Context) error {
			_, err := w.Backend.Create(ctx, inmemory.Spec("v", mib, "a"))
			return err
		}
		inmemory.Expect(w, w.Unfinished("v is Pending", ask), backend.ErrBusy, "node a", "old")
		w.Answer("v", func(v *v1beta1.Volume) {
			v.Status.Phase, v.Status.Error = v1beta1.PhasePending, &v1beta1.Error{Code: v1beta1.ErrorBusy, Message: "another is at it"}
		})
		inmemory.Expect(w, w.Unfinished("another is at it", ask), backend.ErrBusy)
		first := w.Volume("v")
		go w.Answer("v", inmemory.Made)
		v, err := w.Backend.Create(w.Context(), inmemory.Spec("v", mib, "a"))
		if err != nil || v.Size != mib || w.Volume("v").UID != first.UID {
			w.Errorf("joined as %+v, %v", v, err)
		}
		gone, cancel := context.WithCancel(w.Context())
		cancel()
		inmemory.Refused(w.Backend.Create(gone, inmemory.Spec("w", mib, "a")))(w, backend.ErrBusy)
		if w.Volume("w") != nil {
			w.Error("a caller who had gone got an object")
		}
	})
}

func TestCreate_RetryOnAnotherNodeFirstRemovesTheUnfinishedVolume(t *testing.T) {
	inBubble(t, func(w *world) {
		w.Puppet("a", gib)
		w.Puppet("b", gib)
		w.Start()
		inmemory.Expect(w, w.Unfinished("v is Pending", func(ctx context.Context) error {
			_, err := w.Backend.Create(ctx, inmemory.Spec("v", mib, "a"))
			return err
		}), backend.ErrBusy)
		made := make(chan error, 1)
		go func() {
			_, err := w.Backend.Create(w.Context(), inmemory.Spec("v", mib, "b"))
			made <- err
		}()
		w.Until("the deletion", func() bool { return w.Volume("v").DeletionTimestamp != nil })
		if o := w.Volume("v"); o.Spec.Node != "a" {
			w.Fatalf("it is on %s while the first may still be on the disk of a", o.Spec.Node)
		}
		w.RemoveFinalizer("v") // the agent of a says that nothing of it is left
		w.Until("the new one", func() bool { o := w.Volume("v"); return o != nil && o.Spec.Node == "b" })
		w.Answer("v", inmemory.Made)
		check.Report(w, <-made)
	})
}

func TestCreate_CopyIsCreatedOnTheNodeOfItsSource(t *testing.T) {
	inBubble(t, func(w *world) {
		hosts := w.Hosts(map[string]int64{"a": gib, "b": 100 * gib})
		check.Got(w.Backend.Create(w.Context(), inmemory.Spec("v", mib, "a")))(w)
		if s, err := w.Backend.Snapshot(w.Context(), backend.SnapshotSpec{Name: "s", Source: "v"}); err != nil || s.Node != "a" {
			w.Fatalf("snapshot %+v, %v", s, err)
		}
		for name, copied := range map[string]func(backend.VolumeSpec) (*backend.Volume, error){
			"clone":    func(s backend.VolumeSpec) (*backend.Volume, error) { return w.Backend.Clone(w.Context(), "v", s) },
			"restored": func(s backend.VolumeSpec) (*backend.Volume, error) { return w.Backend.Restore(w.Context(), "s", s) },
		} {
			inmemory.Refused(copied(inmemory.Spec(name, mib, "b")))(w, backend.ErrExhausted, "node a", name, "requested on b")
			if c, err := copied(inmemory.Spec(name, 0)); err != nil || c.Node != "a" || !hosts["a"].Has(backend.ID(name)) {
				w.Errorf("%s: %+v, %v", name, c, err)
			}
			inmemory.Refused(copied(inmemory.Spec(name+"-large", 2*gib)))(w, backend.ErrExhausted, "a: ")
		}
		inmemory.Refused(w.Backend.Clone(w.Context(), "absent", inmemory.Spec("x", mib)))(w, backend.ErrNotFound, "absent", "x")
	})
}

func TestCreate_TwoControllersAtOnceCreateOneVolume(t *testing.T) {
	inBubble(t, func(w *world) {
		host := w.Hosts(map[string]int64{"a": 10 * gib})["a"]
		first := w.Backend
		w.Start()
		w.Ready("a")
		var all sync.WaitGroup
		for i := range 10 {
			for _, b := range []backend.Backend{first, w.Backend} {
				all.Go(func() {
					_, err := b.Create(w.Context(), inmemory.Spec(fmt.Sprintf("v%d", i), mib))
					check.Report(w, err)
				})
			}
		}
		all.Wait()
		if n := len(host.Volumes()); n != 10 {
			w.Errorf("%d volumes were made", n)
		}
		for i := range 10 {
			for _, b := range []backend.Backend{first, w.Backend} {
				all.Go(func() { check.Report(w, b.Delete(w.Context(), backend.ID(fmt.Sprintf("v%d", i)))) })
			}
		}
		all.Wait()
		if left := host.Volumes(); len(left) > 0 {
			w.Errorf("left are %v", left)
		}
	})
}

func TestCreate_WithoutAnyNodeIsUnavailable(t *testing.T) {
	inBubble(t, func(w *world) {
		w.Start()
		inmemory.Refused(w.Backend.Create(w.Context(), inmemory.Spec("v", mib)))(w, backend.ErrUnavailable, "no node")
		for _, bad := range []backend.VolumeSpec{{Name: ""}, {Name: "v", Size: backend.Size{Required: -1}}} {
			inmemory.Refused(w.Backend.Create(w.Context(), bad))(w, backend.ErrInvalid)
		}
	})
}
