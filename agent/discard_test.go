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

func TestDiscard_HappensAfterTheObjectIsGoneAndNotBefore(t *testing.T) {
	withAgent(t, func(r *rig) {
		v := r.ask("a")
		r.phase("a", v1beta1.PhaseReady)
		r.host.set(func() { r.host.refuse["delete a"] = backend.ErrPrecondition }) // a pod still has it
		r.giveUp(discard(v1beta1.SourceVolume, "a", v.UID))
		r.withVolumes("z") // so the list was seen
		if n := r.node(); len(n.Spec.Discard) == 0 || !r.host.has("a") {
			r.Fatal("the discard was done while the object exists")
		}
		r.remove("a")
		r.phase("a", v1beta1.PhaseDeleting)
		r.patched("a", `{"metadata":{"finalizers":null}}`)
		r.gone("a")
		r.withVolumes("y")
		if r.volume("a") != nil {
			r.Fatal("it was adopted")
		}
		r.host.set(func() { clear(r.host.refuse) })
		wait.Until(r, "the disk without it", func() bool { return !r.host.has("a") })
		r.answered()
	})
}

// The end of an object may be seen before the list that was written first.
func TestDiscard_WhatTheCacheDoesNotShowYetIsNotAdopted(t *testing.T) {
	withAgent(t, func(r *rig) {
		r.stop()
		r.stored(backend.VolumeSpec{Name: "a"})
		check.Got(r.host.Memory.Snapshot(r.Context(), backend.SnapshotSpec{Name: "s", Source: "a"}))(r)
		adopt := func() {
			r.Helper()
			check.OK(r, errors.Join(r.agent.adoptVolume(r.Context(), "a"), r.agent.adoptSnapshot(r.Context(), "s")))
		}
		r.giveUp(discard(v1beta1.SourceVolume, "a", "u1"), discard(v1beta1.SourceSnapshot, "s", "u2"))
		if adopt(); r.volume("a") != nil || r.snapshot("s") != nil {
			r.Error("what was given up was adopted")
		}
		r.giveUp()
		if adopt(); r.volume("a") == nil || r.snapshot("s") == nil {
			r.Error("what was not given up was not adopted")
		}
	})
}

func TestDiscard_WhileTheNodeWasDownTakesNoVolumeOfTheSameNameAndNoOther(t *testing.T) {
	withAgent(t, func(r *rig) {
		r.withVolumes("ready")
		r.host.Write("ready", []byte("of the user"))
		r.giveUp(discard(v1beta1.SourceVolume, "ready", "of one before"))
		r.answered()
		r.stop()
		for _, name := range []string{"old", "next", "kept"} {
			r.stored(backend.VolumeSpec{Name: name})
		}
		check.Got(r.host.Memory.Snapshot(r.Context(), backend.SnapshotSpec{Name: "old", Source: "old"}))(r)
		r.host.Write("next", []byte("of the old one"))
		next := discard(v1beta1.SourceVolume, "next", "u3")
		r.giveUp(discard(v1beta1.SourceVolume, "old", "u1"), discard(v1beta1.SourceSnapshot, "old", "u2"), next)
		r.ask("next")
		r.begin()
		r.adopted("kept")
		r.phase("next", v1beta1.PhaseReady)
		r.answered()
		if ready, next := string(r.host.Read("ready", 100)), string(r.host.Read("next", 100)); ready != "of the user" || next != "" {
			r.Errorf("they hold %q and %q", ready, next)
		}
		if r.host.has("old") || r.volume("old") != nil || r.snapshot("old") != nil {
			r.Error("what was given up came back")
		}
		if _, err := r.host.GetSnapshot(r.Context(), "old"); err == nil {
			r.Error("the snapshot is still on the disk")
		}
	})
}

// half is a node with a group of two snapshots, of which the first was given up while it was down.
func half(t *testing.T) (r *rig, members []string) {
	r = newRig(t).begin().withVolumes("a", "b")
	members = r.withGroup("g", "a", "b")
	r.stop()
	r.giveUp(discard(v1beta1.SourceSnapshot, members[0], r.snapshot(members[0]).UID))
	r.endSnapshot(members[0])
	r.begin().withVolumes("y") // so the list was seen
	return r, members
}

// endSnapshot deletes an object, and what its agent does before.
func (r *rig) endSnapshot(name string) {
	r.Helper()
	check.Got(r.snapshots.Patch(r.Context(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}))(r)
	r.dropSnapshot(name)
}

func (r *rig) noGroup(members []string) {
	r.Helper()
	r.goneSnapshots(members...)
	r.answered()
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
		r.goneSnapshots(members[1])
		r.agent.loop.Retry(key{v1beta1.SourceSnapshot, members[0]})
		r.noGroup(members)
	})
}

func TestDiscard_OfAllMembersRemovesTheGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, members := half(t)
		r.stop()
		r.giveUp(discard(v1beta1.SourceSnapshot, members[0], "u1"), discard(v1beta1.SourceSnapshot, members[1], r.snapshot(members[1]).UID))
		r.endSnapshot(members[1])
		r.begin()
		r.noGroup(members)
	})
}

func TestDiscard_HappensOnceWithAStaleCache(t *testing.T) {
	inBubble(t, func(r *rig) {
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
		r.answered()
		r.stored(backend.VolumeSpec{Name: "a"}) // another one by now
		r.agent.Released("a")
		r.agent.Released("a")
		release()
		r.adopted("a")
		r.called("delete a", 1)
	})
}
