package volume_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/inmemory"
)

// heard waits until the Leases of nodes are known.
func (w *world) heard(nodes ...string) {
	w.Helper()
	for _, n := range nodes {
		w.Until("the Lease of "+n, func() bool { return !w.Backend.LastHeardOf(n).IsZero() })
	}
}

// inPool makes a volume in a pool of a node, as its agent does.
func (w *world) inPool(name, node, id string) {
	w.Helper()
	o := &v1beta1.Volume{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{v1beta1.AgentFinalizer}}}
	o.Spec.Name, o.Spec.Node = name, node
	check.Got(w.Volumes().Create(w.Context(), o, metav1.CreateOptions{}))(w)
	w.Answer(name, func(v *v1beta1.Volume) {
		inmemory.Made(v)
		v.Status.PoolID = id
	})
}

func TestMoved_VolumeIsReleasedWhenItsPoolAppearsOnAnotherNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t).started()
		w.Puppet("a", gib)
		w.Puppet("b", gib)
		// A node without a Node object that was never heard of is forgotten.
		w.heard("a", "b")
		w.leads()
		w.inPool("v", "a", "disk")
		w.Beat("a", 1)
		w.Until("the end of the node", func() bool { return w.Volume("v").Status.Phase == v1beta1.PhaseUnreachable })
		b := check.Got(w.Nodes().Get(t.Context(), "b", metav1.GetOptions{}))(t)
		b.Status.Pools[0].ID, b.Status.Pools[0].Generation = "disk", 1
		check.Got(w.Nodes().UpdateStatus(t.Context(), b, metav1.UpdateOptions{}))(t)
		w.Gone("v")
		w.ExpectEvent(v1beta1.ReasonPoolMoved)
	})
}

// Otherwise its volumes would be handed over to a node that only says it has their pool.
func TestMoved_PoolCountsOnlyWhereItsNodeIsGoneAndAnotherHasItOpenSince(t *testing.T) {
	opened := v1beta1.Pool{Name: "memory", ID: "disk", Generation: 4}
	damaged, before, copied := opened, opened, opened
	damaged.Message, before.Generation, copied.ID = "damaged", 3, "other"
	taint := core.Taint{Key: core.TaintNodeOutOfService, Effect: core.TaintEffectNoExecute}
	for name, test := range map[string]struct {
		node   *core.NodeSpec // of the node that had it; nil where that was deleted
		alive  bool           // its agent
		now    v1beta1.Pool   // that of another node
		reason string         // of the condition of a volume
		moved  bool
	}{
		"gone, and opened since":           {nil, false, opened, "", true},
		"its Node is there":                {&core.NodeSpec{}, false, opened, v1beta1.ReasonNodeDown, false},
		"its Node is there, and shut down": {&core.NodeSpec{Taints: []core.Taint{taint}}, false, opened, v1beta1.ReasonNodeGone, false},
		"its agent is alive":               {nil, true, opened, "", false},
		"opened before":                    {nil, false, before, v1beta1.ReasonNodeGone, false},
		"not open":                         {nil, false, damaged, v1beta1.ReasonNodeGone, false},
		"another pool":                     {nil, false, copied, v1beta1.ReasonNodeGone, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t).started()
				if test.node != nil {
					n := &core.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: *test.node}
					check.Got(w.Theirs.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}))(t)
				}
				for node, pool := range map[string]v1beta1.Pool{"a": before, "b": test.now} {
					w.Puppet(node, gib)
					n := check.Got(w.Nodes().Get(t.Context(), node, metav1.GetOptions{}))(t)
					n.Status.Pools = []v1beta1.Pool{pool}
					check.Got(w.Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{}))(t)
				}
				w.heard("a", "b")
				w.leads()
				w.inPool("v", "a", before.ID)
				if !test.alive {
					w.Beat("a", 1)
				}
				if test.moved {
					w.Gone("v")
					w.ExpectEvent(v1beta1.ReasonPoolMoved, "volume v is on node b now", "node a is gone")
					return
				}
				<-time.After(10 * time.Minute)
				v := w.Volume("v")
				if v == nil || len(v.Finalizers) != 1 {
					t.Fatalf("it is handed over: %+v", v)
				}
				if _, reason := w.Readiness(v.Status.Conditions); reason != test.reason {
					t.Errorf("the condition of the volume is %s", reason)
				}
				for len(w.Events.Events) > 0 {
					if e := <-w.Events.Events; strings.Contains(e, v1beta1.ReasonPoolMoved) {
						t.Errorf("there is an event: %s", e)
					}
				}
			})
		})
	}
}
