package cluster_test

import (
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/inmemory"
)

func TestServer_ThatIsNotAllowedGetsNoVolumesOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		hosts := w.Servers(map[string]int64{inmemory.ServerA: 2 * gib, inmemory.ServerB: 400 * gib}, map[string]int64{"node-a": gib})
		check.Got(w.Backend.Create(t.Context(), inmemory.SharedSpec("before", mib, "team/b")))(t)
		check.Got(w.Backend.Snapshot(t.Context(), backend.SnapshotSpec{Name: "s", Source: "before"}))(t)
		w.Allow("shop", "other")
		w.Until("the list", func() bool { _, err := w.Backend.SharedCapacity(t.Context(), "team/b", ""); return err != nil })
		const command = `kubectl patch storagecluster holdfast --type=merge --patch='{"spec":{"nfs":{"namespaces":["shop","other","team"]}}}'`
		v, err := w.Backend.Create(t.Context(), inmemory.SharedSpec("v", mib, ""))
		if err != nil || v.Server != "shop/a" {
			t.Fatalf("made %+v, %v", v, err)
		}
		if c, err := w.Backend.SharedCapacity(t.Context(), "", ""); err != nil || c.Total != 2*gib {
			t.Errorf("the capacity is %+v, %v", c, err)
		}
		_, err = w.Backend.Create(t.Context(), inmemory.SharedSpec("w", mib, "team/b"))
		inmemory.Expect(t, err, backend.ErrUnavailable, "team/b", command)
		_, err = w.Backend.Restore(t.Context(), "s", inmemory.SharedSpec("restored", mib, ""))
		inmemory.Expect(t, err, backend.ErrUnavailable, "team/b", command)
		_, err = w.Backend.Clone(t.Context(), "before", inmemory.SharedSpec("cloned", mib, ""))
		inmemory.Expect(t, err, backend.ErrUnavailable, "team/b", command)
		if has := hosts[inmemory.ServerB].Volumes(); len(has) != 1 {
			t.Errorf("the server has %v", has)
		}
		// What it has is served on: it grows, is copied, and goes.
		if v, err := w.Backend.Expand(t.Context(), "before", backend.Size{Required: 2 * mib}); err != nil || v.Size != 2*mib {
			t.Errorf("it grew to %+v, %v", v, err)
		}
		if _, err := w.Backend.Snapshot(t.Context(), backend.SnapshotSpec{Name: "another", Source: "before"}); err != nil {
			t.Error(err)
		}
		check.Report(t, w.Backend.Delete(t.Context(), "before"))
		w.Allow("shop", "team")
		w.Until("a volume of the server that is allowed again", func() bool {
			v, err := w.Backend.Create(t.Context(), inmemory.SharedSpec("w", mib, "team/b"))
			return err == nil && v.Server == "team/b"
		})
	})
}

// What an agent has written is a copy only where the source is: its content may be anything.
func TestStranger_WhatAnotherNodeHasWrittenIsNoCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Hosts(map[string]int64{node: gib})
		w.Puppet("other", gib)
		w.Ready("other")
		ctx := t.Context()
		check.Got(w.Backend.Create(ctx, inmemory.Spec("v", mib, node)))(t)
		check.Got(w.Backend.Snapshot(ctx, backend.SnapshotSpec{Name: "s", Source: "v"}))(t)
		w.forgedVolume("restored", v1beta1.SourceReference{Kind: v1beta1.SourceSnapshot, Name: "s"})
		_, err := w.Backend.Restore(ctx, "s", inmemory.Spec("restored", mib))
		inmemory.Expect(t, err, backend.ErrExists, "restored is on node other", "snapshot s", "on node "+node, "look for who did")
		w.forgedVolume("cloned", v1beta1.FromVolume("v"))
		_, err = w.Backend.Clone(ctx, "v", inmemory.Spec("cloned", mib))
		inmemory.Expect(t, err, backend.ErrExists, "cloned is on node other", "look for who did")
		w.forgedSnapshot("taken", "v", nil)
		_, err = w.Backend.Snapshot(ctx, backend.SnapshotSpec{Name: "taken", Source: "v"})
		inmemory.Expect(t, err, backend.ErrExists, "taken is on node other", "look for who did")
		group := backend.GroupSpec{Name: "g", Sources: []backend.ID{"v"}}
		member, err := backend.IDFor(group.Member("v").Name)
		check.OK(t, err)
		w.forgedSnapshot(string(member), "v", &v1beta1.SnapshotGroup{Name: "g", Volumes: []string{"v"}})
		_, err = w.Backend.SnapshotGroup(ctx, group)
		inmemory.Expect(t, err, backend.ErrExists, "look for who did")
		if _, err := w.Backend.Restore(ctx, "s", inmemory.Spec("true", mib)); err != nil {
			t.Error(err)
		}
	})
}

// forgedVolume is what the agent of the node other writes as its own.
func (w *world) forgedVolume(name string, source v1beta1.SourceReference) {
	w.Helper()
	o := &v1beta1.Volume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1beta1.AdoptedLabel: "true"}},
		Spec:       v1beta1.VolumeSpec{Name: name, Node: "other", SourceRef: &source, Size: v1beta1.VolumeSize{Required: v1beta1.Quantity(mib)}},
	}
	check.Got(w.Volumes().Create(w.Context(), o, metav1.CreateOptions{}))(w)
	w.Answer(name, func(v *v1beta1.Volume) {
		inmemory.Made(v)
		v.Status.SourceRef = &source
	})
	w.Until("the controller knowing it", func() bool { _, err := w.Backend.Get(w.Context(), backend.ID(name)); return err == nil })
}

func (w *world) forgedSnapshot(name, volume string, group *v1beta1.SnapshotGroup) {
	w.Helper()
	o := &v1beta1.Snapshot{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1beta1.AdoptedLabel: "true"}},
		Spec:       v1beta1.SnapshotSpec{Name: name, Node: "other", SourceRef: v1beta1.FromVolume(volume), Group: group},
	}
	made := check.Got(w.Snapshots().Create(w.Context(), o, metav1.CreateOptions{}))(w)
	made.Status.Phase, made.Status.Size, made.Status.Pool, made.Status.CreationTime = v1beta1.PhaseReady, v1beta1.Quantity(mib), "memory", new(metav1.NowMicro())
	check.Got(w.Snapshots().UpdateStatus(w.Context(), made, metav1.UpdateOptions{}))(w)
	w.Until("the controller knowing it", func() bool { _, err := w.Backend.GetSnapshot(w.Context(), backend.ID(name)); return err == nil })
}
