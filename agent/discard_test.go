package agent

import (
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// giveUp writes what a controller writes when it gives up things of a node.
func (r *rig) giveUp(all ...v1beta1.Discard) {
	r.Helper()
	patch := check.Got(json.Marshal(map[string]any{"spec": map[string]any{"discard": all}}))(r)
	check.Got(r.nodes.Patch(r.Context(), node, types.MergePatchType, patch, metav1.PatchOptions{}))(r)
}

func discard(kind v1beta1.SourceKind, name string, uid types.UID) v1beta1.Discard {
	return v1beta1.Discard{Kind: kind, Name: name, DeletionRequest: v1beta1.DeletionRequest{UID: uid, RequestedBy: "a test", RequestedAt: metav1.NowMicro()}}
}

func (r *rig) discarded() {
	r.Helper()
	wait.Until(r, "an empty list of what to discard", func() bool {
		n, err := r.nodes.Get(r.Context(), node, metav1.GetOptions{})
		return err == nil && len(n.Spec.Discard) == 0
	})
}

func TestDiscard_VolumeGivenUpWhileTheNodeWasDownIsNotAdopted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).begin()
		r.stop()
		r.stored(backend.VolumeSpec{Name: "old"})
		r.stored(backend.VolumeSpec{Name: "kept"})
		check.Got(r.host.Memory.Snapshot(t.Context(), backend.SnapshotSpec{Name: "old", Source: "old"}))(t)
		r.giveUp(discard(v1beta1.SourceVolume, "old", "u1"), discard(v1beta1.SourceSnapshot, "old", "u2"))
		r.begin()
		r.adopted("kept")
		r.discarded()
		if r.host.has("old") || r.volume("old") != nil || r.snapshot("old") != nil {
			t.Error("what was given up came back")
		}
		if _, err := r.host.GetSnapshot(t.Context(), "old"); err == nil {
			t.Error("the snapshot is still on the disk")
		}
	})
}

func TestDiscard_HappensAfterTheObjectIsGoneAndNotBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).begin()
		v := r.ask("a")
		r.phase("a", v1beta1.PhaseReady)
		r.host.set(func() { r.host.refuse["delete a"] = backend.ErrPrecondition }) // a pod still has it
		r.giveUp(discard(v1beta1.SourceVolume, "a", v.UID))
		r.withVolumes("z") // so the list was seen
		if n := r.node(); len(n.Spec.Discard) == 0 || !r.host.has("a") {
			t.Fatal("the discard was done while the object exists")
		}
		r.remove("a")
		r.phase("a", v1beta1.PhaseDeleting)
		check.Got(r.volumes.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}))(t)
		r.gone("a")
		r.withVolumes("y")
		if r.volume("a") != nil {
			t.Fatal("it was adopted")
		}
		r.host.set(func() { clear(r.host.refuse) })
		wait.Until(r, "the disk without it", func() bool { return !r.host.has("a") })
		r.discarded()
	})
}

// The end of an object may be seen before the list that was written first.
func TestDiscard_WhatTheCacheDoesNotShowYetIsNotAdopted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).begin()
		r.stop()
		r.stored(backend.VolumeSpec{Name: "a"})
		check.Got(r.host.Memory.Snapshot(t.Context(), backend.SnapshotSpec{Name: "s", Source: "a"}))(t)
		adopt := func() {
			t.Helper()
			check.OK(t, errors.Join(r.agent.adoptVolume(t.Context(), "a"), r.agent.adoptSnapshot(t.Context(), "s")))
		}
		r.giveUp(discard(v1beta1.SourceVolume, "a", "u1"), discard(v1beta1.SourceSnapshot, "s", "u2"))
		if adopt(); r.volume("a") != nil || r.snapshot("s") != nil {
			t.Error("what was given up was adopted")
		}
		r.giveUp()
		if adopt(); r.volume("a") == nil || r.snapshot("s") == nil {
			t.Error("what was not given up was not adopted")
		}
	})
}

func TestDiscard_NewVolumeOfTheSameNameIsEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).begin()
		r.stop()
		r.stored(backend.VolumeSpec{Name: "a"})
		r.host.Write("a", []byte("of the old one"))
		r.giveUp(discard(v1beta1.SourceVolume, "a", "u1"))
		r.ask("a")
		r.begin()
		r.phase("a", v1beta1.PhaseReady)
		r.discarded()
		if got := r.host.Read("a", 100); len(got) > 0 {
			t.Errorf("it holds %q", got)
		}
	})
}

func TestDiscard_ReadyVolumeOfTheSameNameIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).begin()
		r.ask("a")
		r.phase("a", v1beta1.PhaseReady)
		r.host.Write("a", []byte("of the user"))
		r.giveUp(discard(v1beta1.SourceVolume, "a", "of one before"))
		r.discarded()
		if got := string(r.host.Read("a", 100)); got != "of the user" {
			t.Errorf("it holds %q", got)
		}
	})
}

// half is a node with a group of two snapshots, of which the first was given up while it was down.
func half(t *testing.T) (r *rig, members []string) {
	r = newRig(t).begin().withVolumes("a", "b")
	members = r.askGroup("g", "a", "b")
	for _, name := range members {
		r.readySnapshot(name)
	}
	r.stop()
	r.giveUp(discard(v1beta1.SourceSnapshot, members[0], r.snapshot(members[0]).UID))
	check.Got(r.snapshots.Patch(t.Context(), members[0], types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}))(t)
	r.dropSnapshot(members[0])
	r.begin().withVolumes("y") // so the list was seen
	return r, members
}

func (r *rig) noGroup(members []string) {
	r.Helper()
	for _, name := range members {
		wait.Until(r, "the end of "+name, func() bool { return r.snapshot(name) == nil })
	}
	r.discarded()
	if _, err := r.host.Memory.GetGroup(r.Context(), "g"); !errors.Is(err, backend.ErrNotFound) {
		r.Errorf("the group is still there: %v", err)
	}
}

func TestDiscard_OfOneMemberOfAGroupKeepsTheOthers(t *testing.T) {
	r, members := half(t)
	r.agent.loop.Retry(key{v1beta1.SourceSnapshot, members[0]})
	r.withVolumes("z")
	if err := r.agent.reconcileSnapshot(t.Context(), key{v1beta1.SourceSnapshot, members[0]}); !errors.Is(err, errWaits) {
		t.Errorf("the discard of one member returned %v", err)
	}
	if _, err := r.host.GetSnapshot(t.Context(), backend.ID(members[1])); err != nil || r.snapshot(members[1]).Status.Phase != v1beta1.PhaseReady {
		t.Fatalf("the other member: %v", err)
	}
	r.removeSnapshot(members[1])
	r.noGroup(members)
}

func TestDiscard_AGroupOfWhichAMemberWasGivenUpCanBeDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, members := half(t)
		r.change = func(c *Config) { c.RetryFirst, c.RetryLast, c.SurveyEvery = time.Hour, time.Hour, time.Hour } // the discard does not come first
		r.restart()
		r.removeSnapshot(members[1])
		wait.Until(r, "the end of "+members[1], func() bool { return r.snapshot(members[1]) == nil })
		r.agent.loop.Retry(key{v1beta1.SourceSnapshot, members[0]})
		r.noGroup(members)
	})
}

func TestDiscard_OfAllMembersRemovesTheGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, members := half(t)
		r.stop()
		r.giveUp(discard(v1beta1.SourceSnapshot, members[0], "u1"), discard(v1beta1.SourceSnapshot, members[1], r.snapshot(members[1]).UID))
		check.Got(r.snapshots.Patch(t.Context(), members[1], types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}))(t)
		r.dropSnapshot(members[1])
		r.begin()
		r.noGroup(members)
	})
}

func TestDiscard_HappensOnceWithAStaleCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.change = func(c *Config) { c.SurveyEvery = DefaultSurveyEvery }
		r.begin().stop()
		r.stored(backend.VolumeSpec{Name: "a"})
		r.giveUp(discard(v1beta1.SourceVolume, "a", "u1"))
		release := func() {}
		r.host.enter = func(call string) {
			if call == "delete a" {
				release = r.api.HoldWatches() // the agent will not see that its list is empty
			}
		}
		r.begin()
		r.discarded()
		r.stored(backend.VolumeSpec{Name: "a"}) // another one by now
		r.agent.Released("a")
		r.agent.Released("a")
		release()
		r.adopted("a")
		if n := r.host.count("delete a"); n != 1 {
			t.Errorf("it was discarded %d times", n)
		}
	})
}
