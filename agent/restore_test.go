package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// askBack asks for deleted volumes the way a user does.
func (r *rig) askBack(names ...string) {
	r.Helper()
	var all []v1beta1.RestoreRequest
	for _, name := range names {
		now := metav1.NowMicro()
		all = append(all, v1beta1.RestoreRequest{Name: name, RequestedBy: "a test", RequestedAt: &now})
	}
	patch := check.Got(json.Marshal(map[string]any{"spec": map[string]any{"restore": all}}))(r)
	check.Got(r.nodes.Patch(r.Context(), node, types.MergePatchType, patch, metav1.PatchOptions{}))(r)
}

// thrown puts a volume that holds its own name into the host's trash.
func (r *rig) thrown(name string, labels map[string]string) {
	r.Helper()
	v := r.stored(backend.VolumeSpec{Name: name, Labels: labels})
	r.host.Write(v.ID, []byte(name))
	check.OK(r, r.host.Memory.Delete(r.Context(), v.ID))
}

func (r *rig) trash() []backend.Trashed {
	r.Helper()
	return check.Got(r.host.Trash(r.Context()))(r)
}

// answered waits until the node is requested neither to restore nor to discard anything.
func (r *rig) answered() {
	r.Helper()
	wait.Until(r, "empty lists of what to restore and to discard", func() bool {
		n, err := r.nodes.Get(r.Context(), node, metav1.GetOptions{})
		return err == nil && len(n.Spec.Restore)+len(n.Spec.Discard) == 0
	})
}

// back fails unless a volume is on the disk as it was thrown away.
func (r *rig) back(name string) {
	r.Helper()
	r.adopted(name)
	if !r.host.has(backend.ID(name)) {
		r.Fatalf("volume %s is not on the disk", name)
	}
	if got := string(r.host.Read(backend.ID(name), 100)); got != name {
		r.Errorf("volume %s holds %q", name, got)
	}
}

func TestRestore_DeletedVolumeIsPublishedAndRestoredOnRequest(t *testing.T) {
	withAgent(t, func(r *rig) {
		labels := map[string]string{"csi.storage.k8s.io/pvc/namespace": "shop", "csi.storage.k8s.io/pvc/name": "orders"}
		r.thrown("older", nil)
		r.ask("a", func(v *v1beta1.Volume) { v.Spec.Labels = labels })
		r.phase("a", v1beta1.PhaseReady)
		r.host.Write("a", []byte("a"))
		r.remove("a")
		r.gone("a")
		wait.Until(r, "the trash", func() bool { return len(r.node().Status.Trash) == 2 })
		trashed := r.node().Status.Trash[0]
		if trashed.Name != "a" || trashed.Pool != "memory" || trashed.ClaimRef.String() != "shop/orders" || trashed.Size.Value() != 16*mib || trashed.ExpirationTime.Sub(trashed.DeletionTime.Time) != 24*time.Hour {
			r.Errorf("the trash is reported as %+v", trashed)
		}
		r.askBack("a")
		r.answered()
		if r.volume("a") == nil {
			r.Error("the request went before the object came")
		}
		r.back("a")
		if claim := r.volume("a").Spec.ClaimRef.String(); claim != "shop/orders" {
			r.Errorf("it comes back for the claim %q", claim)
		}
		r.expectEvent(v1beta1.ReasonRestored)
		wait.Until(r, "the trash without it", func() bool { all := r.node().Status.Trash; return len(all) == 1 && all[0].Name == "older" })
	})
}

func TestStorageNode_IsWrittenOnlyOnChange(t *testing.T) {
	inBubble(t, func(r *rig) {
		for i := range v1beta1.MostTrash + 1 {
			r.thrown(fmt.Sprintf("v%d", i), nil)
		}
		r.begin()
		wait.Until(r, "the trash", func() bool { return len(r.node().Status.Trash) == v1beta1.MostTrash })
		if first := r.node().Status.Trash[0].Name; first != fmt.Sprintf("v%d", v1beta1.MostTrash) {
			r.Errorf("the first is %s, which was not deleted last", first)
		}
		r.withVolumes("a")
		wait.Until(r, "the count", func() bool { return r.node().Status.Pools[0].Volumes == 1 })
		r.restart()
		surveys := func() {
			from := r.host.count("list")
			wait.Until(r, "five surveys", func() bool { r.agent.node.change(); return r.host.count("list") >= from+5 })
		}
		surveys() // after a start it is written once
		r.api.Requests()
		surveys()
		if n := r.api.Requests()["apply storagenodes/status"]; n > 0 {
			r.Errorf("it was written %d times without news", n)
		}
	})
}

func TestTrash_OfAnUnreachablePoolIsStillReported(t *testing.T) {
	withAgent(t, func(r *rig) {
		r.thrown("a", nil)
		wait.Until(r, "the trash", func() bool { return len(r.node().Status.Trash) == 1 })
		back := r.pull()
		wait.Until(r, "the pool out of reach", func() bool { return r.node().Status.Pools[0].Message != "" })
		n := r.node()
		if all := r.agent.trashStatus(r.Context(), n.Status.Pools, &n.Status); len(all) != 1 || all[0].Name != "a" {
			r.Errorf("the trash is reported as %+v", all)
		}
		r.askBack("a")
		wait.Until(r, "the request", func() bool { return restoreOf(r.agent.nodeObject(), "a") != nil })
		if _, err := r.agent.reconcile(context.Background(), key{v1beta1.SourceVolume, "a"}); err == nil || !strings.Contains(err.Error(), "its disk is missing") {
			r.Errorf("the request was answered with %v", err)
		}
		if n := r.node(); len(n.Spec.Restore) != 1 || n.Spec.Restore[0].Error != "" {
			r.Errorf("requested are %+v", n.Spec.Restore)
		}
		back()
		r.back("a")
		r.answered()
	})
}

func TestRestore_ThatIsImpossibleIsAnsweredAndNotRetried(t *testing.T) {
	withAgent(t, func(r *rig) {
		r.host.set(func() { r.host.refuse["create made"] = fmt.Errorf("%w: not yet", backend.ErrUnavailable) })
		r.ask("made")
		wait.Until(r, "the object", func() bool { v := r.volume("made"); return v != nil && v.Status.Error != nil })
		r.thrown("made", nil)
		check.Got(r.volumes.Create(r.Context(), &v1beta1.Volume{
			ObjectMeta: metav1.ObjectMeta{Name: "moved"}, Spec: v1beta1.VolumeSpec{Name: "moved", Node: "node-b", Size: v1beta1.VolumeSize{Required: size(mib)}},
		}, metav1.CreateOptions{}))(r)
		r.thrown("moved", nil)
		r.askBack("never", "made", "moved")
		for name, words := range map[string]string{"never": "not in the trash", "made": "a new volume of the name made", "moved": "node-b"} {
			wait.Until(r, "the answer about "+name, func() bool {
				for _, q := range r.node().Spec.Restore {
					if q.Name == name && strings.Contains(q.Error, words) && q.RequestedBy == "a test" {
						return true
					}
				}
				return false
			})
		}
		r.expectEvent(v1beta1.ReasonRestoreFailed)
		r.thrown("never", nil) // from now on it could be
		r.restart()
		check.Got(r.agent.reconcile(r.Context(), key{v1beta1.SourceVolume, "never"}))(r)
		if n := r.host.count("undelete never"); n != 1 || r.host.has("never") || r.host.has("moved") {
			r.Errorf("it was tried %d times", n)
		}
		r.askBack("never")
		r.back("never")
		r.answered()
	})
}

func TestRestore_TransientFailureIsRetried(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.thrown("a", nil)
		r.host.refuse["undelete a"] = fmt.Errorf("%w: the disk does not answer", backend.ErrUnavailable)
		r.begin()
		r.askBack("a")
		wait.Until(r, "two tries", func() bool { return r.host.count("undelete a") > 1 })
		if q := r.node().Spec.Restore; len(q) != 1 || q[0].Error != "" {
			r.Errorf("the request is %+v", q)
		}
		r.host.set(func() { clear(r.host.refuse) })
		r.back("a")
		r.answered()
	})
}

func TestRestore_OfALostVolumeIsForItsObject(t *testing.T) {
	withAgent(t, func(r *rig) {
		v := r.ask("a")
		r.phase("a", v1beta1.PhaseReady)
		r.host.Write("a", []byte("a"))
		check.OK(r, r.host.Memory.Delete(r.Context(), "a")) // by hand
		r.phase("a", v1beta1.PhaseLost)
		r.askBack("a")
		r.phase("a", v1beta1.PhaseReady)
		r.answered()
		if got := string(r.host.Read("a", 100)); got != "a" || r.volume("a").UID != v.UID {
			r.Errorf("it holds %q, and its object is %s, was %s", got, r.volume("a").UID, v.UID)
		}
	})
}

func TestRestore_LeftoversRestoreNeitherALaterDeletionNorWhatWasGivenUpAndDiscardNothingRestored(t *testing.T) {
	withAgent(t, func(r *rig) {
		r.withVolumes("deleted")
		r.stop() // right after it had restored or discarded them, before it took the requests away
		r.stored(backend.VolumeSpec{Name: "given-up"})
		r.thrown("restored", nil)
		r.askBack("deleted", "given-up", "restored")
		r.remove("deleted")
		r.giveUp(discard(v1beta1.SourceVolume, "given-up", "u1"), discard(v1beta1.SourceVolume, "restored", "u2"))
		r.begin()
		r.gone("deleted")
		r.answered()
		r.back("restored")
		r.restart()
		r.withVolumes("z")
		r.back("restored")
		kept := slices.ContainsFunc(r.trash(), func(v backend.Trashed) bool { return v.ID == "deleted" })
		if r.host.has("deleted") || r.host.count("undelete deleted") != 0 || !kept {
			r.Errorf("what was deleted later came back, or is in the trash: %t", kept)
		}
		if r.host.has("given-up") || r.volume("given-up") != nil {
			r.Error("what was given up is there")
		}
	})
}

func TestRestore_RestoredVolumeIsNotRemovedForAnObjectThatTheCacheStillShows(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.refuseDeletion("a")
		r.host.Write("a", []byte("a"))
		r.remove("a")
		r.phase("a", v1beta1.PhaseDeleting)
		check.OK(r, r.host.Memory.Delete(r.Context(), "a"))
		r.askBack("a")
		wait.Until(r, "the request in the cache of the agent", func() bool { return restoreOf(r.agent.nodeObject(), "a") != nil })
		r.unseenEnd("a")
		check.Got(r.agent.reconcile(r.Context(), key{v1beta1.SourceVolume, "a"}))(r)
		if n := r.host.count("undelete a"); n != 1 || !r.host.has("a") {
			r.Errorf("it was restored %d times, and is on the disk: %t", n, r.host.has("a"))
		}
		r.begin()
		r.back("a")
	})
}

func TestRestore_RestoredVolumeIsNotDiscardedByAStaleCache(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.change = func(c *Config) { c.SurveyEvery = time.Hour }
		r.thrown("a", nil)
		r.begin()
		k := key{v1beta1.SourceVolume, "a"}
		r.host.set(func() { r.host.broken = errPulled }) // so that the entry waits
		r.giveUp(discard(v1beta1.SourceVolume, "a", "u1"))
		wait.Until(r, "the entry", func() bool {
			n := r.agent.nodeObject()
			return n != nil && givenUp(n, k)
		})
		r.stop()   // its cache stays as it is
		r.giveUp() // another agent of the node has answered the request and restored the volume
		check.Got(r.host.Memory.Undelete(r.Context(), "a"))(r)
		r.host.set(func() { r.host.broken = nil })
		check.OK(r, r.agent.discard(r.Context(), k, (*v1beta1.Volume)(nil), false))
		if n := r.host.count("delete a"); n != 0 || !r.host.has("a") {
			r.Errorf("it was discarded %d times", n)
		}
	})
}

// TestRestore_AgentKilledDuringItIsContinuedByTheNext kills the agent at each step in turn.
func TestRestore_AgentKilledDuringItIsContinuedByTheNext(t *testing.T) {
	for at, over := 0, false; !over; at++ {
		if at > 100 {
			t.Fatal("the story has no end")
		}
		t.Run(fmt.Sprintf("step %d", at), func(t *testing.T) { over = !killedRestoring(t, at) })
	}
}

// killedRestoring says whether the restore was long enough for the agent to be killed. Here what it writes into the
// StorageNode's spec counts too.
func killedRestoring(t *testing.T, at int) bool {
	r := newRig(t)
	r.thrown("a", nil)
	r.begin().stop()
	r.askBack("a")
	died := r.killed(dying(at, true), func() {
		r.back("a")
		r.answered()
	})
	if n := len(r.trash()); n != 0 || r.host.count("delete a") != 0 {
		t.Errorf("%d volumes are in the trash, and it was deleted %d times", n, r.host.count("delete a"))
	}
	return died
}
