package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/backend"
)

// expect fails unless err is of a kind and names all parts.
func expect(t *testing.T, err, kind error, parts ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("got %v, want an error that is %q", err, kind)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("%q does not name %s", err, p)
		}
	}
}

func TestAVolumeIsMadeOnTheNodeThatWasAskedFor(t *testing.T) {
	w := newWorld(t)
	hosts := w.hosts(map[string]int64{"a": gib, "b": 10 * gib})
	asked := spec("v", mib, "a")
	asked.OnNodeLoss = backend.DeleteOnNodeLoss
	asked.Labels = map[string]string{"csi.storage.k8s.io/pvc/name": "data", "csi.storage.k8s.io/pvc/namespace": "shop"}
	v, err := w.backend.Create(t.Context(), asked)
	if err != nil || v.Node != "a" || !hosts["a"].has("v") {
		t.Fatalf("made %+v, %v", v, err)
	}
	if o := w.volume("v"); o.Spec.Node != "a" || o.Spec.Claim != "shop/data" || o.Spec.OnNodeLoss != v1.DeleteOnNodeLoss {
		t.Errorf("the object is %+v", o.Spec)
	}
}

func TestVolumesThatMayBeAnywhereAreSpreadByFreeCapacity(t *testing.T) {
	w := newWorld(t)
	w.publish = time.Hour // a report that has a volume of which nobody has heard that it is made would count it twice
	hosts := w.hosts(map[string]int64{"a": 20 * gib, "b": 20 * gib, "c": 12 * gib})
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			if _, err := w.backend.Create(t.Context(), spec(fmt.Sprintf("v%d", i), gib)); err != nil {
				t.Errorf("volume %d: %v", i, err)
			}
		})
	}
	all.Wait()
	// Each choice goes to the node with the most left, so what is left is even in the end.
	for name, h := range hosts {
		if c, err := h.Capacity(t.Context(), ""); err != nil || c.Available != 4*gib {
			t.Errorf("node %s has %d MiB left of 12 GiB in all, %v: %v", name, c.Available/mib, err, h.volumes())
		}
	}
}

func TestWhereOneNodeRefusesTheNextIsTried(t *testing.T) {
	w := newWorld(t)
	hosts := w.hosts(map[string]int64{"a": 10 * gib, "b": 5 * gib})
	hosts["a"].refuses("create", fmt.Errorf("%w: the disk is fuller than its report", backend.ErrExhausted))
	v, err := w.backend.Create(t.Context(), spec("v", mib))
	if err != nil || v.Node != "b" || hosts["a"].has("v") {
		t.Fatalf("made %+v, %v", v, err)
	}
	hosts["b"].refuses("create", fmt.Errorf("%w: this one too", backend.ErrExhausted))
	_, err = w.backend.Create(t.Context(), spec("w", mib))
	expect(t, err, backend.ErrExhausted, "this one too")
	w.gone("w")
}

func TestAFullNodeIsRefusedWithWhatIsFreeWhere(t *testing.T) {
	w := newWorld(t)
	hosts := w.hosts(map[string]int64{"a": gib, "b": 2 * gib})
	_, err := w.backend.Create(t.Context(), spec("v", 3*gib))
	expect(t, err, backend.ErrExhausted, "a: ", "b: ", fmt.Sprint(gib), fmt.Sprint(2*gib), fmt.Sprint(3*gib))
	_, err = w.backend.Create(t.Context(), spec("v", 2*gib, "a"))
	expect(t, err, backend.ErrExhausted, "a: ")
	if len(hosts["a"].volumes())+len(hosts["b"].volumes()) > 0 || w.volume("v") != nil {
		t.Error("something was left behind")
	}
	if _, err = w.backend.Create(t.Context(), spec("v", 2*gib, "b")); err != nil {
		t.Errorf("on the node that has room: %v", err)
	}
}

func TestRoomThatWasGivenBackCanBeTakenAtOnce(t *testing.T) {
	w := newWorld(t)
	w.hosts(map[string]int64{"a": gib})
	for i := range 20 {
		name := fmt.Sprintf("v%d", i)
		if _, err := w.backend.Create(t.Context(), spec(name, gib, "a")); err != nil {
			t.Fatalf("volume %d: %v", i, err)
		}
		if err := w.backend.Delete(t.Context(), backend.ID(name)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestARefusalLeavesNothingAndKeepsItsKind(t *testing.T) {
	w := newWorld(t)
	host := w.hosts(map[string]int64{"a": gib})["a"]
	for _, kind := range []error{
		backend.ErrNotFound, backend.ErrExists, backend.ErrInvalid, backend.ErrOutOfRange,
		backend.ErrExhausted, backend.ErrPrecondition, backend.ErrUnavailable,
	} {
		host.refuses("create", fmt.Errorf("%w: said the disk", kind))
		_, err := w.backend.Create(t.Context(), spec("v", mib, "a"))
		expect(t, err, kind, "said the disk", "node a")
	}
	host.refuses("create", nil)
	if _, err := w.backend.Create(t.Context(), spec("v", mib, "a")); err != nil {
		t.Errorf("after all that: %v", err)
	}
}

func TestAPoolThatNoNodeHasIsInvalidAndOneElsewhereIsExhausted(t *testing.T) {
	w := newWorld(t)
	w.puppet("a", gib, "slow")
	w.puppet("b", gib, "fast", "spare")
	w.controller()
	none := spec("v", mib)
	none.Pool = "none"
	_, err := w.backend.Create(t.Context(), none)
	expect(t, err, backend.ErrInvalid, "none", "slow", "fast", "spare")
	fast := spec("v", mib, "a")
	fast.Pool = "fast"
	_, err = w.backend.Create(t.Context(), fast)
	expect(t, err, backend.ErrExhausted, "fast", "a: ")
	_, err = w.backend.CapacityAt(t.Context(), "a", "fast")
	expect(t, err, backend.ErrNotFound, "fast", "slow")
	_, err = w.backend.CapacityAt(t.Context(), "nowhere", "")
	expect(t, err, backend.ErrNotFound, "nowhere")
	_, err = w.backend.Capacity(t.Context(), "none")
	expect(t, err, backend.ErrNotFound, "none")
	if c, err := w.backend.Capacity(t.Context(), ""); err != nil || c.Available != 2*gib || c.Largest != gib {
		t.Errorf("of the first pools of both: %+v, %v", c, err)
	}
}

func TestAPoolThatFailsIsNotChosen(t *testing.T) {
	w := newWorld(t)
	w.puppet("a", 2*gib)
	w.puppet("b", gib)
	n, err := w.nodes().Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n.Status.Pools[0].Message = "not mounted"
	if _, err := w.nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.controller()
	_, err = w.backend.Create(t.Context(), spec("v", mib, "a"))
	expect(t, err, backend.ErrExhausted, "not mounted")
	go w.answer("v", isMade)
	if v, err := w.backend.Create(t.Context(), spec("v", mib)); err != nil || v.Node != "b" {
		t.Errorf("made %+v, %v", v, err)
	}
}

func TestACallerWithoutTimeIsToldWhereThingsStandAndJoinsWhenItAsksAgain(t *testing.T) {
	w := newWorld(t)
	w.puppet("a", gib)
	w.controller()
	ask := func(ctx context.Context) error {
		_, err := w.backend.Create(ctx, spec("v", mib, "a"))
		return err
	}
	expect(t, w.unfinished("v is Pending", ask), backend.ErrBusy, "node a", "old")
	w.answer("v", func(v *v1.Volume) {
		v.Status.Phase, v.Status.Error = v1.PhasePending, &v1.Error{Code: v1.ErrorBusy, Message: "another is at it"}
	})
	expect(t, w.unfinished("another is at it", ask), backend.ErrBusy)
	first := w.volume("v")
	go w.answer("v", isMade)
	v, err := w.backend.Create(t.Context(), spec("v", mib, "a"))
	if err != nil || v.Size != mib || w.volume("v").UID != first.UID {
		t.Errorf("joined as %+v, %v", v, err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = w.backend.Create(gone, spec("w", mib, "a"))
	expect(t, err, backend.ErrBusy)
	if w.volume("w") != nil {
		t.Error("a caller who had gone got an object")
	}
}

func TestAskedForOnAnotherNodeTheUnfinishedOneIsRemovedFirst(t *testing.T) {
	w := newWorld(t)
	w.puppet("a", gib)
	w.puppet("b", gib)
	w.controller()
	expect(t, w.unfinished("v is Pending", func(ctx context.Context) error {
		_, err := w.backend.Create(ctx, spec("v", mib, "a"))
		return err
	}), backend.ErrBusy)
	made := make(chan error, 1)
	go func() {
		_, err := w.backend.Create(t.Context(), spec("v", mib, "b"))
		made <- err
	}()
	w.until("the deletion", func() bool { return w.volume("v").DeletionTimestamp != nil })
	if o := w.volume("v"); o.Spec.Node != "a" {
		t.Fatalf("it is on %s while the first may still be on the disk of a", o.Spec.Node)
	}
	w.letGo("v") // the agent of a says that nothing of it is left
	w.until("the new one", func() bool { o := w.volume("v"); return o != nil && o.Spec.Node == "b" })
	w.answer("v", isMade)
	if err := <-made; err != nil {
		t.Error(err)
	}
}

func TestAVolumeThatIsRealIsReturnedWhereverItIs(t *testing.T) {
	w := newWorld(t)
	w.hosts(map[string]int64{"a": gib, "b": gib})
	if _, err := w.backend.Create(t.Context(), spec("v", mib, "a")); err != nil {
		t.Fatal(err)
	}
	v, err := w.backend.Create(t.Context(), spec("v", mib, "b"))
	if err != nil || v.Node != "a" {
		t.Errorf("got %+v, %v", v, err)
	}
}

func TestACopyIsMadeOnTheNodeOfItsSource(t *testing.T) {
	w := newWorld(t)
	hosts := w.hosts(map[string]int64{"a": gib, "b": 100 * gib})
	if _, err := w.backend.Create(t.Context(), spec("v", mib, "a")); err != nil {
		t.Fatal(err)
	}
	if s, err := w.backend.Snapshot(t.Context(), backend.SnapshotSpec{Name: "s", Source: "v"}); err != nil || s.Node != "a" {
		t.Fatalf("snapshot %+v, %v", s, err)
	}
	for name, copied := range map[string]func(backend.VolumeSpec) (*backend.Volume, error){
		"clone":    func(s backend.VolumeSpec) (*backend.Volume, error) { return w.backend.Clone(t.Context(), "v", s) },
		"restored": func(s backend.VolumeSpec) (*backend.Volume, error) { return w.backend.Restore(t.Context(), "s", s) },
	} {
		_, err := copied(spec(name, mib, "b"))
		expect(t, err, backend.ErrExhausted, "node a", name, "asked for on b")
		if c, err := copied(spec(name, 0)); err != nil || c.Node != "a" || !hosts["a"].has(backend.ID(name)) {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
		_, err = copied(spec(name+"-large", 2*gib))
		expect(t, err, backend.ErrExhausted, "a: ")
	}
	_, err := w.backend.Clone(t.Context(), "absent", spec("x", mib))
	expect(t, err, backend.ErrNotFound, "absent", "x")
}

func TestTwoControllersAtOnceMakeOneVolume(t *testing.T) {
	w := newWorld(t)
	host := w.hosts(map[string]int64{"a": 10 * gib})["a"]
	first := w.backend
	w.controller()
	w.ready("a")
	var all sync.WaitGroup
	for i := range 10 {
		for _, b := range []backend.Backend{first, w.backend} {
			all.Go(func() {
				if _, err := b.Create(t.Context(), spec(fmt.Sprintf("v%d", i), mib)); err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	if n := len(host.volumes()); n != 10 {
		t.Errorf("%d volumes were made", n)
	}
	for i := range 10 {
		for _, b := range []backend.Backend{first, w.backend} {
			all.Go(func() {
				if err := b.Delete(t.Context(), backend.ID(fmt.Sprintf("v%d", i))); err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	if left := host.volumes(); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}

func TestWithoutAnyNodeAVolumeIsUnavailable(t *testing.T) {
	w := newWorld(t).controller()
	_, err := w.backend.Create(t.Context(), spec("v", mib))
	expect(t, err, backend.ErrUnavailable, "no node")
	for _, bad := range []backend.VolumeSpec{{Name: ""}, {Name: "v", Size: backend.Size{Required: -1}}} {
		_, err := w.backend.Create(t.Context(), bad)
		expect(t, err, backend.ErrInvalid)
	}
}
