package cluster_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/inmemory"
)

func TestGroup_AcrossNodesIsRefusedWithTheirNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Hosts(map[string]int64{"a": gib, "b": gib})
		for _, at := range []string{"a", "b"} {
			check.Got(w.Backend.Create(t.Context(), inmemory.Spec("on-"+at, mib, at)))(t)
		}
		_, err := w.Backend.SnapshotGroup(t.Context(), backend.GroupSpec{Name: "g", Sources: []backend.ID{"on-a", "on-b"}})
		inmemory.Expect(t, err, backend.ErrInvalid, "a has on-a", "b has on-b")
		if all, err := w.Snapshots().List(t.Context(), metav1.ListOptions{}); err != nil || len(all.Items) > 0 {
			t.Errorf("left are %v, %v", all.Items, err)
		}
	})
}

func TestGroup_EveryMemberCarriesTheWholeGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Hosts(map[string]int64{"a": gib})
		var sources []backend.ID
		for i := range 5 {
			id := backend.ID(fmt.Sprintf("v%d", i))
			check.Got(w.Backend.Create(t.Context(), inmemory.Spec(string(id), mib)))(t)
			sources = append(sources, id)
		}
		g, err := w.Backend.SnapshotGroup(t.Context(), backend.GroupSpec{Name: "g", Sources: sources})
		if err != nil || len(g.Snapshots) != 5 || g.Snapshots[0].Node != "a" || g.Created.IsZero() {
			t.Fatalf("taken %+v, %v", g, err)
		}
		all, err := w.Snapshots().List(t.Context(), metav1.ListOptions{})
		check.OK(t, err)
		for _, o := range all.Items {
			if o.Spec.Group == nil || o.Spec.Group.Name != "g" || len(o.Spec.Group.Volumes) != 5 {
				t.Errorf("%s has group %+v", o.Name, o.Spec.Group)
			}
		}
	})
}

func TestGroup_FailureLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		host := w.Hosts(map[string]int64{"a": gib})["a"]
		for _, name := range []string{"v", "x"} {
			check.Got(w.Backend.Create(t.Context(), inmemory.Spec(name, mib)))(t)
		}
		// A group of this name is on the disk and has no objects yet: the agent refuses the members of another.
		check.Got(host.SnapshotGroup(t.Context(), backend.GroupSpec{Name: "g", Sources: []backend.ID{"v"}}))(t)
		_, err := w.Backend.SnapshotGroup(t.Context(), backend.GroupSpec{Name: "g", Sources: []backend.ID{"v", "x"}})
		inmemory.Expect(t, err, backend.ErrExists)
		w.Until("the end of the member that was new", func() bool {
			all, err := w.Backend.ListSnapshots(t.Context())
			return err == nil && len(all) == 1 && all[0].Source == "v"
		})
		if _, err := host.GetGroup(t.Context(), "g"); err != nil {
			t.Errorf("the group that was there is gone: %v", err)
		}
	})
}

func TestGroup_UnfinishedIsHiddenAndCompletedOnRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Puppet("a", gib)
		w.Start()
		for _, name := range []string{"v", "x"} {
			go w.Answer(name, inmemory.Made)
			check.Got(w.Backend.Create(t.Context(), inmemory.Spec(name, mib)))(t)
		}
		group := backend.GroupSpec{Name: "g", Sources: []backend.ID{"v", "x"}}
		ctx, cancel := context.WithCancel(t.Context())
		answered := make(chan error, 1)
		go func() {
			_, err := w.Backend.SnapshotGroup(ctx, group)
			answered <- err
		}()
		var all *v1beta1.SnapshotList
		w.Until("the members", func() (both bool) {
			var err error
			all, err = w.Snapshots().List(t.Context(), metav1.ListOptions{})
			return err == nil && len(all.Items) == 2
		})
		cancel()
		inmemory.Expect(t, <-answered, backend.ErrBusy)
		take := func(s *v1beta1.Snapshot) {
			t.Helper()
			now := metav1.NowMicro()
			s.Status.Phase, s.Status.CreationTime, s.Status.Size, s.Status.Group, s.Status.ObservedGeneration = v1beta1.PhaseReady, &now, resource.NewQuantity(mib, resource.BinarySI), "g", s.Generation
			check.Got(w.Snapshots().UpdateStatus(t.Context(), s, metav1.UpdateOptions{}))(t)
		}
		take(&all.Items[0])
		fence, err := w.Snapshots().Create(t.Context(), &v1beta1.Snapshot{
			ObjectMeta: metav1.ObjectMeta{Name: "fence"}, Spec: v1beta1.SnapshotSpec{Name: "fence", SourceRef: v1beta1.FromVolume("v"), Node: "a"},
		}, metav1.CreateOptions{})
		check.OK(t, err)
		take(fence)
		w.Until("what was written last in the cache", func() bool {
			shown, err := w.Backend.ListSnapshots(t.Context())
			return err == nil && slices.ContainsFunc(shown, func(s *backend.Snapshot) bool { return s.ID == "fence" })
		})
		if shown, err := w.Backend.ListSnapshots(t.Context()); err != nil || len(shown) != 1 {
			t.Errorf("a half-made group is shown: %v, %v", shown, err)
		}
		_, err = w.Backend.GetSnapshot(t.Context(), backend.ID(all.Items[0].Name))
		inmemory.Expect(t, err, backend.ErrNotFound)
		_, err = w.Backend.GetGroup(t.Context(), "g")
		inmemory.Expect(t, err, backend.ErrNotFound)
		take(&all.Items[1])
		g, err := w.Backend.SnapshotGroup(t.Context(), group)
		if err != nil || len(g.Snapshots) != 2 {
			t.Errorf("at last %+v, %v", g, err)
		}
	})
}

func TestSnapshot_RefusalLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		host := w.Hosts(map[string]int64{"a": gib})["a"]
		check.Got(w.Backend.Create(t.Context(), inmemory.Spec("v", mib)))(t)
		host.Refuses("snapshot", fmt.Errorf("%w: a directory in use cannot be copied", backend.ErrPrecondition))
		_, err := w.Backend.Snapshot(t.Context(), backend.SnapshotSpec{Name: "s", Source: "v"})
		inmemory.Expect(t, err, backend.ErrPrecondition, "cannot be copied")
		host.Refuses("snapshot", nil)
		if s, err := w.Backend.Snapshot(t.Context(), backend.SnapshotSpec{Name: "s", Source: "v"}); err != nil || s.Size != mib {
			t.Errorf("afterwards %+v, %v", s, err)
		}
	})
}
