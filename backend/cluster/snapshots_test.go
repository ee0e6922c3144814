package cluster_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/backend"
)

func TestAGroupAcrossNodesIsRefusedWithTheirNames(t *testing.T) {
	w := newWorld(t)
	w.hosts(map[string]int64{"a": gib, "b": gib})
	for _, at := range []string{"a", "b"} {
		if _, err := w.backend.Create(t.Context(), spec("on-"+at, mib, at)); err != nil {
			t.Fatal(err)
		}
	}
	_, err := w.backend.SnapshotGroup(t.Context(), backend.GroupSpec{Name: "g", Sources: []backend.ID{"on-a", "on-b"}})
	expect(t, err, backend.ErrInvalid, "a has on-a", "b has on-b")
	if all, err := w.snapshots().List(t.Context(), metav1.ListOptions{}); err != nil || len(all.Items) > 0 {
		t.Errorf("left are %v, %v", all.Items, err)
	}
}

func TestEveryMemberOfAGroupCarriesTheWholeGroup(t *testing.T) {
	w := newWorld(t)
	w.hosts(map[string]int64{"a": gib})
	var sources []backend.ID
	for i := range 5 {
		id := backend.ID(fmt.Sprintf("v%d", i))
		if _, err := w.backend.Create(t.Context(), spec(string(id), mib)); err != nil {
			t.Fatal(err)
		}
		sources = append(sources, id)
	}
	g, err := w.backend.SnapshotGroup(t.Context(), backend.GroupSpec{Name: "g", Sources: sources})
	if err != nil || len(g.Snapshots) != 5 || g.Snapshots[0].Node != "a" || g.Created.IsZero() {
		t.Fatalf("taken %+v, %v", g, err)
	}
	all, err := w.snapshots().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range all.Items {
		if o.Spec.Group == nil || o.Spec.Group.Name != "g" || len(o.Spec.Group.Sources) != 5 {
			t.Errorf("%s has group %+v", o.Name, o.Spec.Group)
		}
	}
}

func TestAGroupThatCannotBeTakenLeavesNothing(t *testing.T) {
	w := newWorld(t)
	host := w.hosts(map[string]int64{"a": gib})["a"]
	for _, name := range []string{"v", "x"} {
		if _, err := w.backend.Create(t.Context(), spec(name, mib)); err != nil {
			t.Fatal(err)
		}
	}
	// A group of this name is on the disk and has no objects yet: the agent refuses the members of another.
	if _, err := host.SnapshotGroup(t.Context(), backend.GroupSpec{Name: "g", Sources: []backend.ID{"v"}}); err != nil {
		t.Fatal(err)
	}
	_, err := w.backend.SnapshotGroup(t.Context(), backend.GroupSpec{Name: "g", Sources: []backend.ID{"v", "x"}})
	expect(t, err, backend.ErrExists)
	w.until("the end of the member that was new", func() bool {
		all, err := w.backend.ListSnapshots(t.Context())
		return err == nil && len(all) == 1 && all[0].Source == "v"
	})
	if _, err := host.GetGroup(t.Context(), "g"); err != nil {
		t.Errorf("the group that was there is gone: %v", err)
	}
}

func TestAHalfMadeGroupIsNotShownAndIsFinishedWhenAskedAgain(t *testing.T) {
	w := newWorld(t)
	w.puppet("a", gib)
	w.controller()
	for _, name := range []string{"v", "x"} {
		go w.answer(name, isMade)
		if _, err := w.backend.Create(t.Context(), spec(name, mib)); err != nil {
			t.Fatal(err)
		}
	}
	group := backend.GroupSpec{Name: "g", Sources: []backend.ID{"v", "x"}}
	ctx, cancel := context.WithCancel(t.Context())
	answered := make(chan error, 1)
	go func() {
		_, err := w.backend.SnapshotGroup(ctx, group)
		answered <- err
	}()
	var all *v1.SnapshotList
	w.until("the members", func() (both bool) {
		var err error
		all, err = w.snapshots().List(t.Context(), metav1.ListOptions{})
		return err == nil && len(all.Items) == 2
	})
	cancel()
	expect(t, <-answered, backend.ErrBusy)
	take := func(s *v1.Snapshot) {
		t.Helper()
		now := metav1.NowMicro()
		s.Status.Phase, s.Status.Created, s.Status.Size, s.Status.Group, s.Status.ObservedGeneration = v1.PhaseReady, &now, bytes(mib), "g", s.Generation
		if _, err := w.snapshots().UpdateStatus(t.Context(), s, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	take(&all.Items[0])
	fence, err := w.snapshots().Create(t.Context(), &v1.Snapshot{
		ObjectMeta: metav1.ObjectMeta{Name: "fence"}, Spec: v1.SnapshotSpec{Name: "fence", Source: "v", Node: "a"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	take(fence)
	w.until("what was written last in the cache", func() bool {
		shown, err := w.backend.ListSnapshots(t.Context())
		return err == nil && slices.ContainsFunc(shown, func(s *backend.Snapshot) bool { return s.ID == "fence" })
	})
	if shown, err := w.backend.ListSnapshots(t.Context()); err != nil || len(shown) != 1 {
		t.Errorf("a half-made group is shown: %v, %v", shown, err)
	}
	_, err = w.backend.GetSnapshot(t.Context(), backend.ID(all.Items[0].Name))
	expect(t, err, backend.ErrNotFound)
	_, err = w.backend.GetGroup(t.Context(), "g")
	expect(t, err, backend.ErrNotFound)
	take(&all.Items[1])
	g, err := w.backend.SnapshotGroup(t.Context(), group)
	if err != nil || len(g.Snapshots) != 2 {
		t.Errorf("at last %+v, %v", g, err)
	}
}

func TestASnapshotThatIsRefusedLeavesNothing(t *testing.T) {
	w := newWorld(t)
	host := w.hosts(map[string]int64{"a": gib})["a"]
	if _, err := w.backend.Create(t.Context(), spec("v", mib)); err != nil {
		t.Fatal(err)
	}
	host.refuses("snapshot", fmt.Errorf("%w: a directory in use cannot be copied", backend.ErrPrecondition))
	_, err := w.backend.Snapshot(t.Context(), backend.SnapshotSpec{Name: "s", Source: "v"})
	expect(t, err, backend.ErrPrecondition, "cannot be copied")
	host.refuses("snapshot", nil)
	if s, err := w.backend.Snapshot(t.Context(), backend.SnapshotSpec{Name: "s", Source: "v"}); err != nil || s.Size != mib {
		t.Errorf("afterwards %+v, %v", s, err)
	}
}
