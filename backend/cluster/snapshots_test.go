package cluster_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/inmemory"
)

func TestGroup_EveryMemberCarriesTheWholeGroup(t *testing.T) {
	inBubble(t, func(w *world) {
		w.Hosts(map[string]int64{"a": gib, "b": gib})
		var sources []backend.ID
		for i := range 5 {
			id := backend.ID(fmt.Sprintf("v%d", i))
			check.Got(w.Backend.Create(w.Context(), inmemory.Spec(string(id), mib, "a")))(w)
			sources = append(sources, id)
		}
		check.Got(w.Backend.Create(w.Context(), inmemory.Spec("on-b", mib, "b")))(w)
		across := backend.GroupSpec{Name: "across", Sources: []backend.ID{"v0", "on-b"}}
		inmemory.Refused(w.Backend.SnapshotGroup(w.Context(), across))(w, backend.ErrInvalid, "a has v0", "b has on-b")
		g, err := w.Backend.SnapshotGroup(w.Context(), backend.GroupSpec{Name: "g", Sources: sources})
		if err != nil || len(g.Snapshots) != 5 || g.Snapshots[0].Node != "a" || g.Created.IsZero() {
			w.Fatalf("taken %+v, %v", g, err)
		}
		all, err := w.Snapshots().List(w.Context(), metav1.ListOptions{})
		check.OK(w, err)
		if len(all.Items) != 5 {
			w.Errorf("there are %d snapshots", len(all.Items))
		}
		for _, o := range all.Items {
			if o.Spec.Group == nil || o.Spec.Group.Name != "g" || len(o.Spec.Group.Volumes) != 5 {
				w.Errorf("%s has group %+v", o.Name, o.Spec.Group)
			}
		}
	})
}

func TestGroup_FailureLeavesNothing(t *testing.T) {
	inBubble(t, func(w *world) {
		host := w.Hosts(map[string]int64{"a": gib})["a"]
		for _, name := range []string{"v", "x"} {
			check.Got(w.Backend.Create(w.Context(), inmemory.Spec(name, mib)))(w)
		}
		// A group of this name is on the disk and has no objects yet: the agent refuses the members of another.
		check.Got(host.SnapshotGroup(w.Context(), backend.GroupSpec{Name: "g", Sources: []backend.ID{"v"}}))(w)
		_, err := w.Backend.SnapshotGroup(w.Context(), backend.GroupSpec{Name: "g", Sources: []backend.ID{"v", "x"}})
		inmemory.Expect(w, err, backend.ErrExists)
		w.Until("the end of the member that was new", func() bool {
			all, err := w.Backend.ListSnapshots(w.Context())
			return err == nil && len(all) == 1 && all[0].Source == "v"
		})
		check.Got(host.GetGroup(w.Context(), "g"))(w) // the group that was there stays
	})
}

func TestGroup_UnfinishedIsHiddenAndCompletedOnRetry(t *testing.T) {
	inBubble(t, func(w *world) {
		w.Puppet("a", gib)
		w.Start()
		for _, name := range []string{"v", "x"} {
			go w.Answer(name, inmemory.Made)
			check.Got(w.Backend.Create(w.Context(), inmemory.Spec(name, mib)))(w)
		}
		group := backend.GroupSpec{Name: "g", Sources: []backend.ID{"v", "x"}}
		ctx, cancel := context.WithCancel(w.Context())
		answered := make(chan error, 1)
		go func() {
			_, err := w.Backend.SnapshotGroup(ctx, group)
			answered <- err
		}()
		var all *v1beta1.SnapshotList
		w.Until("the members", func() (both bool) {
			var err error
			all, err = w.Snapshots().List(w.Context(), metav1.ListOptions{})
			return err == nil && len(all.Items) == 2
		})
		cancel()
		inmemory.Expect(w, <-answered, backend.ErrBusy)
		take := func(s *v1beta1.Snapshot) {
			w.Helper()
			now := metav1.NowMicro()
			s.Status.Phase, s.Status.CreationTime, s.Status.Size, s.Status.Group, s.Status.ObservedGeneration = v1beta1.PhaseReady, &now, resource.NewQuantity(mib, resource.BinarySI), "g", s.Generation
			check.Got(w.Snapshots().UpdateStatus(w.Context(), s, metav1.UpdateOptions{}))(w)
		}
		take(&all.Items[0])
		fence, err := w.Snapshots().Create(w.Context(), &v1beta1.Snapshot{
			ObjectMeta: metav1.ObjectMeta{Name: "fence"}, Spec: v1beta1.SnapshotSpec{Name: "fence", SourceRef: v1beta1.FromVolume("v"), Node: "a"},
		}, metav1.CreateOptions{})
		check.OK(w, err)
		take(fence)
		w.Until("what was written last in the cache", func() bool {
			shown, err := w.Backend.ListSnapshots(w.Context())
			return err == nil && slices.ContainsFunc(shown, func(s *backend.Snapshot) bool { return s.ID == "fence" })
		})
		if shown, err := w.Backend.ListSnapshots(w.Context()); err != nil || len(shown) != 1 {
			w.Errorf("a half-made group is shown: %v, %v", shown, err)
		}
		inmemory.Refused(w.Backend.GetSnapshot(w.Context(), backend.ID(all.Items[0].Name)))(w, backend.ErrNotFound)
		inmemory.Refused(w.Backend.GetGroup(w.Context(), "g"))(w, backend.ErrNotFound)
		take(&all.Items[1])
		g, err := w.Backend.SnapshotGroup(w.Context(), group)
		if err != nil || len(g.Snapshots) != 2 {
			w.Errorf("at last %+v, %v", g, err)
		}
	})
}

func TestSnapshot_RefusalLeavesNothing(t *testing.T) {
	inBubble(t, func(w *world) {
		host := w.Hosts(map[string]int64{"a": gib})["a"]
		check.Got(w.Backend.Create(w.Context(), inmemory.Spec("v", mib)))(w)
		host.Refuses("snapshot", fmt.Errorf("%w: a directory in use cannot be copied", backend.ErrPrecondition))
		_, err := w.Backend.Snapshot(w.Context(), backend.SnapshotSpec{Name: "s", Source: "v"})
		inmemory.Expect(w, err, backend.ErrPrecondition, "cannot be copied")
		host.Refuses("snapshot", nil)
		if s, err := w.Backend.Snapshot(w.Context(), backend.SnapshotSpec{Name: "s", Source: "v"}); err != nil || s.Size != mib {
			w.Errorf("afterwards %+v, %v", s, err)
		}
	})
}

// A volume without the agent's finalizer was given up, and is awaited until its claim is gone. A snapshot has no claim.
func TestDelete_ObjectThatOnlyAnotherFinalizerHoldsOnANodeThatIsDown(t *testing.T) {
	inBubble(t, func(w *world) {
		w.Start()
		held := func(name string) metav1.ObjectMeta {
			return metav1.ObjectMeta{Name: name, Finalizers: []string{"example.com/other"}}
		}
		v := &v1beta1.Volume{ObjectMeta: held("v"), Spec: v1beta1.VolumeSpec{Name: "v", Node: "a"}}
		check.Got(w.Volumes().Create(w.Context(), v, metav1.CreateOptions{}))(w)
		v = w.Answer("v", inmemory.Made)
		v.Spec.Deletion = v1beta1.NewDeletionRequest(v.UID, "test", "test")
		check.Got(w.Volumes().Update(w.Context(), v, metav1.UpdateOptions{}))(w)
		check.OK(w, w.Volumes().Delete(w.Context(), "v", metav1.DeleteOptions{}))
		snapshot := func(name string, status v1beta1.SnapshotStatus) {
			s := &v1beta1.Snapshot{ObjectMeta: held(name), Spec: v1beta1.SnapshotSpec{Name: name, Node: "a", SourceRef: v1beta1.FromVolume("v")}}
			s = check.Got(w.Snapshots().Create(w.Context(), s, metav1.CreateOptions{}))(w)
			s.Spec.Deletion = v1beta1.NewDeletionRequest(s.UID, "test", "test")
			s = check.Got(w.Snapshots().Update(w.Context(), s, metav1.UpdateOptions{}))(w)
			s.Status = status
			check.Got(w.Snapshots().UpdateStatus(w.Context(), s, metav1.UpdateOptions{}))(w)
			check.OK(w, w.Snapshots().Delete(w.Context(), name, metav1.DeleteOptions{}))
		}
		snapshot("pending", v1beta1.SnapshotStatus{})
		snapshot("taken", v1beta1.SnapshotStatus{CreationTime: new(metav1.NowMicro())})
		snapshot("failed", v1beta1.SnapshotStatus{
			CreationTime: new(metav1.NowMicro()), Phase: v1beta1.PhaseDeleting, Error: &v1beta1.Error{Code: v1beta1.ErrorPrecondition, Message: "it is cloned"},
		})
		synctest.Wait()
		soon, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		retaken := func(name string) error {
			_, err := w.Backend.Snapshot(soon, backend.SnapshotSpec{Name: name, Source: "v"})
			return err
		}
		inmemory.Expect(w, retaken("taken"), backend.ErrUnavailable, "being deleted", "is down")
		inmemory.Expect(w, retaken("failed"), backend.ErrPrecondition, "being deleted", "it is cloned")
		inmemory.Expect(w, w.Backend.DeleteSnapshot(soon, "taken"), backend.ErrUnavailable, "node a", "is down")
		check.Report(w, w.Backend.DeleteSnapshot(soon, "pending"))
		inmemory.Expect(w, w.Backend.Delete(soon, "v"), backend.ErrBusy, "v is Deleting")
	})
}
