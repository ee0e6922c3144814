package agent

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	client "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/api/convert"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	mortals "github.com/holdfast-storage/holdfast/test/rig/mortal"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// mortal is one agent, which dies at a step. Leases and the StorageNode are written by the clock, and are none.
type mortal struct {
	*host
	*mortals.Process
}

// newMortal returns an agent that dies after so many steps; what it asks of the StorageNode's spec is one with specs.
func newMortal(h *host, steps int, specs bool) *mortal {
	p := mortals.New(steps + 1)
	p.Counts = func(q *http.Request) bool {
		spec := specs && q.Header.Get("Content-Type") == string(types.MergePatchType)
		return mortals.Changes(q) && (spec || !strings.Contains(q.URL.Path, "storagenodes"))
	}
	return &mortal{h, p}
}

func made[T any](m *mortal, what string, f func() (T, error)) (v T, err error) {
	err = m.Do(what, func() error {
		v, err = f()
		return err
	})
	return v, err
}

// config has the agent's clients, which die with it.
func (m *mortal) config(api *rest.Config) func(*Config) {
	config := m.Client(api)
	return func(c *Config) {
		c.Backend, c.Client, c.Kubernetes = m, client.NewForConfigOrDie(config), kubernetes.NewForConfigOrDie(config)
		c.Log = nil
		c.SurveyEvery = time.Hour // at the start only, so that the steps are the story's
	}
}

func (m *mortal) Create(ctx context.Context, spec backend.VolumeSpec) (*backend.Volume, error) {
	return made(m, "create", func() (*backend.Volume, error) { return m.host.Create(ctx, spec) })
}

func (m *mortal) Restore(ctx context.Context, id backend.ID, spec backend.VolumeSpec) (*backend.Volume, error) {
	return made(m, "restore", func() (*backend.Volume, error) { return m.host.Restore(ctx, id, spec) })
}

func (m *mortal) Expand(ctx context.Context, id backend.ID, size backend.Size) (*backend.Volume, error) {
	return made(m, "expand", func() (*backend.Volume, error) { return m.host.Expand(ctx, id, size) })
}

func (m *mortal) Snapshot(ctx context.Context, spec backend.SnapshotSpec) (*backend.Snapshot, error) {
	return made(m, "snapshot", func() (*backend.Snapshot, error) { return m.host.Snapshot(ctx, spec) })
}

func (m *mortal) SnapshotGroup(ctx context.Context, spec backend.GroupSpec) (*backend.Group, error) {
	return made(m, "group", func() (*backend.Group, error) { return m.host.SnapshotGroup(ctx, spec) })
}

func (m *mortal) Delete(ctx context.Context, id backend.ID) error {
	return m.Do("delete", func() error { return m.host.Delete(ctx, id) })
}

func (m *mortal) DeleteSnapshot(ctx context.Context, id backend.ID) error {
	return m.Do("delete snapshot", func() error { return m.host.DeleteSnapshot(ctx, id) })
}

func (m *mortal) DeleteGroup(ctx context.Context, id backend.ID) error {
	return m.Do("delete group", func() error { return m.host.DeleteGroup(ctx, id) })
}

// TestAgent_KilledAtAnyStepIsContinuedByTheNext runs one sequence again and again, with the agent killed at each
// of its steps in turn.
func TestAgent_KilledAtAnyStepIsContinuedByTheNext(t *testing.T) {
	for at, over := 0, false; !over; at++ {
		if at > 500 {
			t.Fatal("the story has no end")
		}
		t.Run(fmt.Sprintf("step %d", at), func(t *testing.T) { over = !killedAt(t, at) })
	}
}

// killedAt says whether the story was long enough for the agent to be killed.
func killedAt(t *testing.T, at int) bool {
	r := newRig(t)
	m := newMortal(r.host, at, false)
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
	r.story()
	if m.IsDead() {
		next.Wait() // the next agent may be at its start still
	}
	steps, last := m.Steps()
	t.Logf("killed: %t, %s, after %d steps", m.IsDead(), last, steps)
	return m.IsDead()
}

// story makes, grows, copies, forgets and deletes, and checks that nothing is lost on the way or left in the end.
func (r *rig) story() {
	r.Helper()
	written := []byte("written by the user")
	for _, name := range []string{"a", "b"} {
		r.ask(name)
		r.phase(name, v1beta1.PhaseReady)
		r.host.Write(backend.ID(name), written)
	}
	r.grow("a", 64*mib)
	wait.Until(r, "the larger size", func() bool { return r.volume("a").Status.Size.Value() == 64*mib })
	r.askSnapshot("s", "a", nil)
	r.readySnapshot("s")
	byHand, copyByHand := r.volume("b"), r.snapshot("s")
	r.drop("b")
	r.dropSnapshot("s")
	r.writtenAgain(byHand)
	wait.Until(r, "another object of the snapshot", func() bool {
		s := r.snapshot("s")
		return s != nil && s.UID != copyByHand.UID && s.Status.Phase == v1beta1.PhaseReady
	})
	members := r.askGroup("g", "a", "b")
	for _, m := range members {
		r.readySnapshot(m)
	}
	r.ask("r", func(v *v1beta1.Volume) {
		v.Spec.SourceRef = &v1beta1.SourceReference{Kind: v1beta1.SourceSnapshot, Name: "s"}
	})
	r.phase("r", v1beta1.PhaseReady)
	for _, id := range []backend.ID{"a", "b", "r"} {
		if got := r.host.Read(id, len(written)); !bytes.Equal(got, written) {
			r.Fatalf("volume %s holds %q: it was created again", id, got)
		}
	}
	for _, name := range append(members, "s") {
		r.removeSnapshot(name)
	}
	for _, name := range []string{"r", "a", "b"} {
		r.remove(name)
	}
	wait.Until(r, "an empty cluster", func() bool {
		volumes, err := r.volumes.List(r.Context(), metav1.ListOptions{})
		snapshots, errSnapshots := r.snapshots.List(r.Context(), metav1.ListOptions{})
		return err == nil && errSnapshots == nil && len(volumes.Items)+len(snapshots.Items) == 0
	})
	left, _ := r.host.Memory.List(r.Context())
	copies, _ := r.host.ListSnapshots(r.Context())
	if len(left)+len(copies) > 0 {
		r.Fatalf("%d volumes and %d snapshots are left on the disk", len(left), len(copies))
	}
}

func (r *rig) readySnapshot(name string) {
	r.Helper()
	wait.Until(r, "snapshot "+name, func() bool { s := r.snapshot(name); return s != nil && s.Status.Phase == v1beta1.PhaseReady })
}

// askGroup writes the members of a group and returns their IDs.
func (r *rig) askGroup(name string, sources ...string) (members []string) {
	r.Helper()
	group := &v1beta1.SnapshotGroup{Name: name, Volumes: sources}
	for _, source := range slices.Sorted(slices.Values(sources)) {
		member := convert.ToGroup(group).Member(backend.ID(source))
		members = append(members, r.askSnapshot(member.Name, source, group).Name)
	}
	return members
}
