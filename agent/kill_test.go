package agent

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	client "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/mortal"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// dying is an agent that dies after so many steps. Leases and the StorageNode are written by the clock, and are none, unless
// what it asks of the StorageNode's spec is one with specs.
func dying(steps int, specs bool) *mortal.Process {
	p := mortal.New(steps + 1)
	p.Counts = func(q *http.Request) bool {
		spec := specs && q.Header.Get("Content-Type") == string(types.MergePatchType)
		return mortal.Changes(q) && (spec || !strings.Contains(q.URL.Path, "storagenodes"))
	}
	return p
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
	return r.killed(dying(at, false), r.story)
}

// killed runs a story with an agent that dies at a step, and the next one from then on. It says whether that step came.
func (r *rig) killed(p *mortal.Process, story func()) bool {
	r.host.dies = p
	r.change = func(c *Config) {
		config := p.Client(r.api.Config())
		c.Client, c.Kubernetes, c.Log = client.NewForConfigOrDie(config), kubernetes.NewForConfigOrDie(config), nil
		c.SurveyEvery = time.Hour // at the start only, so that the steps are the story's
	}
	r.begin()
	first := r.stop
	var next sync.WaitGroup
	next.Go(func() {
		select {
		case <-p.Died():
		case <-r.Context().Done():
			return
		}
		first()
		r.host.set(func() { r.host.dies = nil })
		r.change = nil
		r.begin()
	})
	r.Cleanup(next.Wait)
	story()
	if p.IsDead() {
		next.Wait() // the next agent may be at its start still
	}
	steps, last := p.Steps()
	r.Logf("killed: %t, %s, after %d steps", p.IsDead(), last, steps)
	return p.IsDead()
}

// story makes, grows, copies, forgets and deletes, and checks that nothing is lost on the way or left in the end.
func (r *rig) story() {
	r.Helper()
	written := []byte("written by the user")
	r.withVolumes("a", "b")
	r.host.Write("a", written)
	r.host.Write("b", written)
	r.grow("a", 64*mib)
	wait.Until(r, "the larger size", func() bool { return r.volume("a").Status.Size.Value() == 64*mib })
	r.withSnapshot("s", "a")
	byHand, copyByHand := r.volume("b"), r.snapshot("s")
	r.drop("b")
	r.dropSnapshot("s")
	r.writtenAgain(byHand)
	r.anotherSnapshot(copyByHand)
	members := r.withGroup("g", "a", "b")
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
