package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
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

func (h *host) Undelete(ctx context.Context, id backend.ID) (*backend.Volume, error) {
	if err := h.call("undelete", id); err != nil {
		return nil, err
	}
	return h.Memory.Undelete(ctx, id)
}

func (m *mortal) Undelete(ctx context.Context, id backend.ID) (*backend.Volume, error) {
	return made(m, "undelete", func() (*backend.Volume, error) { return m.host.Undelete(ctx, id) })
}

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

// deleteForGood asks for the end of a volume and of its data, as the controller does.
func (r *rig) deleteForGood(name string) {
	r.Helper()
	request := v1beta1.DeletionRequest{UID: r.volume(name).UID, RequestedBy: "a test", RequestedAt: metav1.NowMicro()}
	patch := check.Got(json.Marshal(map[string]any{"spec": map[string]any{"deletion": request}}))(r)
	check.Got(r.volumes.Patch(r.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}))(r)
	check.OK(r, r.volumes.Delete(r.Context(), name, metav1.DeleteOptions{}))
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

// answered waits until no restore is requested any more.
func (r *rig) answered() {
	r.Helper()
	wait.Until(r, "an empty list of what to restore", func() bool {
		n, err := r.nodes.Get(r.Context(), node, metav1.GetOptions{})
		return err == nil && len(n.Spec.Restore) == 0
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
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).begin()
		labels := map[string]string{"csi.storage.k8s.io/pvc/namespace": "shop", "csi.storage.k8s.io/pvc/name": "orders"}
		r.thrown("older", nil)
		r.ask("a", func(v *v1beta1.Volume) { v.Spec.Labels = labels })
		r.phase("a", v1beta1.PhaseReady)
		r.host.Write("a", []byte("a"))
		r.deleteForGood("a")
		r.gone("a")
		wait.Until(r, "the trash", func() bool { return len(r.node().Status.Trash) == 2 })
		trashed := r.node().Status.Trash[0]
		if trashed.Name != "a" || trashed.Pool != "memory" || trashed.ClaimRef.String() != "shop/orders" || trashed.Size.Value() != 16*mib || trashed.ExpirationTime.Sub(trashed.DeletionTime.Time) != 24*time.Hour {
			t.Errorf("the trash is reported as %+v", trashed)
		}
		r.askBack("a")
		r.answered()
		if r.volume("a") == nil {
			t.Error("the request went before the object came")
		}
		r.back("a")
		if claim := r.volume("a").Spec.ClaimRef.String(); claim != "shop/orders" {
			t.Errorf("it comes back for the claim %q", claim)
		}
		r.expectEvent(v1beta1.ReasonRestored)
		wait.Until(r, "the trash without it", func() bool { all := r.node().Status.Trash; return len(all) == 1 && all[0].Name == "older" })
	})
}

func TestTrash_IsWrittenOnlyOnChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for i := range v1beta1.MostTrash + 1 {
			r.thrown(fmt.Sprintf("v%d", i), nil)
		}
		r.begin()
		wait.Until(r, "the trash", func() bool { return len(r.node().Status.Trash) == v1beta1.MostTrash })
		if first := r.node().Status.Trash[0].Name; first != fmt.Sprintf("v%d", v1beta1.MostTrash) {
			t.Errorf("the first is %s, which was not deleted last", first)
		}
		r.restart()
		surveys := func() {
			from := r.host.count("list")
			wait.Until(r, "five surveys", func() bool { r.agent.node.change(); return r.host.count("list") >= from+5 })
		}
		surveys() // after a start it is written once
		r.api.Requests()
		surveys()
		if n := r.api.Requests()["apply storagenodes/status"]; n > 0 {
			t.Errorf("it was written %d times without news", n)
		}
	})
}

func TestTrash_OfAnUnreachablePoolIsStillReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).begin()
		r.thrown("a", nil)
		wait.Until(r, "the trash", func() bool { return len(r.node().Status.Trash) == 1 })
		back := r.pull()
		wait.Until(r, "the pool out of reach", func() bool { return r.node().Status.Pools[0].Message != "" })
		n := r.node()
		if all := r.agent.trashStatus(t.Context(), n.Status.Pools, &n.Status); len(all) != 1 || all[0].Name != "a" {
			t.Errorf("the trash is reported as %+v", all)
		}
		r.askBack("a")
		wait.Until(r, "the request", func() bool { return restoreOf(r.agent.nodeObject(), "a") != nil })
		if _, err := r.agent.reconcile(context.Background(), key{v1beta1.SourceVolume, "a"}); err == nil || !strings.Contains(err.Error(), "its disk is missing") {
			t.Errorf("the request was answered with %v", err)
		}
		if n := r.node(); len(n.Spec.Restore) != 1 || n.Spec.Restore[0].Error != "" {
			t.Errorf("requested are %+v", n.Spec.Restore)
		}
		back()
		r.back("a")
		r.answered()
	})
}

func TestTrash_EphemeralVolumesAreNotReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.change = func(c *Config) { c.Foreign = func(v *backend.Volume) bool { return v.Labels["pod"] != "" } }
		r.thrown("pods", map[string]string{"pod": "true"})
		r.thrown("a", nil)
		r.begin()
		wait.Until(r, "the trash", func() bool { return len(r.node().Status.Trash) > 0 })
		if all := r.node().Status.Trash; len(all) != 1 || all[0].Name != "a" {
			t.Errorf("the trash is reported as %+v", all)
		}
	})
}

func TestRestore_ThatIsImpossibleIsAnsweredAndNotRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).begin()
		r.host.set(func() { r.host.refuse["create made"] = fmt.Errorf("%w: not yet", backend.ErrUnavailable) })
		r.ask("made")
		wait.Until(r, "the object", func() bool { v := r.volume("made"); return v != nil && v.Status.Error != nil })
		r.thrown("made", nil)
		check.Got(r.volumes.Create(t.Context(), &v1beta1.Volume{
			ObjectMeta: metav1.ObjectMeta{Name: "moved"}, Spec: v1beta1.VolumeSpec{Name: "moved", Node: "node-b", Size: v1beta1.VolumeSize{Required: size(mib)}},
		}, metav1.CreateOptions{}))(t)
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
		if _, err := r.agent.reconcile(t.Context(), key{v1beta1.SourceVolume, "never"}); err != nil {
			t.Error(err)
		}
		if n := r.host.count("undelete never"); n != 1 || r.host.has("never") || r.host.has("moved") {
			t.Errorf("it was tried %d times", n)
		}
		r.askBack("never")
		r.back("never")
		r.answered()
	})
}

func TestRestore_TransientFailureIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.thrown("a", nil)
		r.host.refuse["undelete a"] = fmt.Errorf("%w: the disk does not answer", backend.ErrUnavailable)
		r.begin()
		r.askBack("a")
		wait.Until(r, "two tries", func() bool { return r.host.count("undelete a") > 1 })
		if q := r.node().Spec.Restore; len(q) != 1 || q[0].Error != "" {
			t.Errorf("the request is %+v", q)
		}
		r.host.set(func() { clear(r.host.refuse) })
		r.back("a")
		r.answered()
	})
}

func TestRestore_BackendWithoutTrashAnswersThatItKeepsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.change = func(c *Config) { c.Backend = struct{ backend.Backend }{r.host} }
		r.begin()
		r.askBack("a")
		wait.Until(r, "the answer", func() bool {
			q := r.node().Spec.Restore
			return len(q) == 1 && strings.Contains(q[0].Error, "keeps no deleted volumes")
		})
	})
}

func TestRestore_OfALostVolumeIsForItsObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).begin()
		v := r.ask("a")
		r.phase("a", v1beta1.PhaseReady)
		r.host.Write("a", []byte("a"))
		if err := r.host.Memory.Delete(t.Context(), "a"); err != nil { // by hand
			t.Fatal(err)
		}
		r.phase("a", v1beta1.PhaseLost)
		r.askBack("a")
		r.phase("a", v1beta1.PhaseReady)
		r.answered()
		if got := string(r.host.Read("a", 100)); got != "a" || r.volume("a").UID != v.UID {
			t.Errorf("it holds %q, and its object is %s, was %s", got, r.volume("a").UID, v.UID)
		}
	})
}

func TestRestore_LeftoverRequestDoesNotRestoreALaterDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).begin()
		r.ask("a")
		r.phase("a", v1beta1.PhaseReady)
		r.stop() // right after the volume was restored, before the request was taken away
		r.askBack("a")
		r.deleteForGood("a")
		r.begin()
		r.gone("a")
		r.answered()
		r.withVolumes("z")
		if r.host.has("a") || r.host.count("undelete a") != 0 || len(r.trash()) != 1 {
			t.Error("it came back")
		}
	})
}

func TestRestore_LeftoverRequestDoesNotKeepAVolumeThatWasGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).begin()
		r.stop()
		r.stored(backend.VolumeSpec{Name: "a"})
		r.askBack("a")
		r.giveUp(discard(v1beta1.SourceVolume, "a", "u1"))
		r.begin()
		r.discarded()
		r.answered()
		r.withVolumes("z")
		if r.host.has("a") || r.volume("a") != nil {
			t.Error("what was given up is there")
		}
	})
}

func TestRestore_RestoredVolumeIsNotRemovedForAnObjectThatTheCacheStillShows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := refusing(t, "a")
		r.host.Write("a", []byte("a"))
		r.remove("a")
		r.phase("a", v1beta1.PhaseDeleting)
		check.OK(t, r.host.Memory.Delete(t.Context(), "a"))
		r.askBack("a")
		wait.Until(r, "the request in the cache of the agent", func() bool { return restoreOf(r.agent.nodeObject(), "a") != nil })
		r.unseenEnd("a")
		if _, err := r.agent.reconcile(t.Context(), key{v1beta1.SourceVolume, "a"}); err != nil {
			t.Error(err)
		}
		if n := r.host.count("undelete a"); n != 1 || !r.host.has("a") {
			t.Errorf("it was restored %d times, and is on the disk: %t", n, r.host.has("a"))
		}
		r.begin()
		r.back("a")
	})
}

func TestRestore_RestoredVolumeIsNotDiscardedForItsEarlierLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).begin()
		r.stop() // after it had discarded the volume, before it had taken that off the list
		r.thrown("a", nil)
		r.giveUp(discard(v1beta1.SourceVolume, "a", "u1"))
		r.askBack("a")
		r.begin()
		r.discarded()
		r.answered()
		r.back("a")
		r.restart()
		r.withVolumes("z")
		r.back("a")
	})
}

func TestRestore_RestoredVolumeIsNotDiscardedByAStaleCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
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
		check.Got(r.host.Memory.Undelete(t.Context(), "a"))(t)
		r.host.set(func() { r.host.broken = nil })
		check.OK(t, r.agent.discard(t.Context(), k, (*v1beta1.Volume)(nil), false))
		if n := r.host.count("delete a"); n != 0 || !r.host.has("a") {
			t.Errorf("it was discarded %d times", n)
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
	m := newMortal(r.host, at, true)
	r.change = m.config(r.api.Config())
	r.begin()
	first := r.stop
	var next sync.WaitGroup
	next.Go(func() {
		select {
		case <-m.Died():
		case <-t.Context().Done():
			return
		}
		first()
		r.change = nil
		r.begin()
	})
	t.Cleanup(next.Wait)
	r.back("a")
	r.answered()
	if m.IsDead() {
		next.Wait()
	}
	steps, last := m.Steps()
	t.Logf("killed: %t, %s, after %d steps", m.IsDead(), last, steps)
	if n := len(r.trash()); n != 0 || r.host.count("delete a") != 0 {
		t.Errorf("%d volumes are in the trash, and it was deleted %d times", n, r.host.count("delete a"))
	}
	return m.IsDead()
}
