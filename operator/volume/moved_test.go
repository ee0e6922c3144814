package volume_test

import (
	"testing"
	"testing/synctest"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/inmemory"
)

// Otherwise its volumes would be handed over to a node that only says it has their pool.
func TestMoved_PoolCountsOnlyWhereItsNodeIsGoneAndAnotherHasItOpenSince(t *testing.T) {
	before, opened := v1beta1.Pool{Name: "memory", ID: "disk", Generation: 3}, v1beta1.Pool{Name: "memory", ID: "disk", Generation: 4}
	another := v1beta1.Pool{Name: "memory", ID: "other", Generation: 4}
	taint := core.Taint{Key: core.TaintNodeOutOfService, Effect: core.TaintEffectNoExecute}
	for name, test := range map[string]struct {
		node   *core.NodeSpec // of the node that had it; nil where that was deleted
		alive  bool           // its agent
		now    v1beta1.Pool   // that of another node, which reports it later
		reason string         // of the condition of a volume
		moved  bool
	}{
		"gone, and opened since":           {nil, false, opened, v1beta1.ReasonNodeGone, true},
		"its Node is there":                {&core.NodeSpec{}, false, opened, v1beta1.ReasonNodeDown, false},
		"its Node is there, and shut down": {&core.NodeSpec{Taints: []core.Taint{taint}}, false, opened, v1beta1.ReasonNodeGone, false},
		"its agent is alive":               {nil, true, opened, "", false},
		"opened before":                    {nil, false, before, v1beta1.ReasonNodeGone, false},
		"another pool of the same name":    {nil, false, another, v1beta1.ReasonNodeGone, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t).started()
				if test.node != nil {
					n := &core.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: *test.node}
					check.Got(w.Theirs.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}))(t)
				}
				has := func(node string, pool v1beta1.Pool) {
					n := check.Got(w.Nodes().Get(t.Context(), node, metav1.GetOptions{}))(t)
					n.Status.Pools = []v1beta1.Pool{pool}
					check.Got(w.Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{}))(t)
				}
				for _, node := range []string{"a", "b"} {
					w.Puppet(node, gib)
					// A node without a Node object that was never heard of is forgotten.
					w.Until("the Lease of "+node, func() bool { return !w.Backend.LastHeardOf(node).IsZero() })
				}
				has("a", before)
				w.leads()
				o := &v1beta1.Volume{ObjectMeta: metav1.ObjectMeta{Name: "v", Finalizers: []string{v1beta1.AgentFinalizer}}}
				o.Spec.Name, o.Spec.Node = "v", "a"
				check.Got(w.Volumes().Create(t.Context(), o, metav1.CreateOptions{}))(t)
				w.Answer("v", func(v *v1beta1.Volume) {
					inmemory.Made(v)
					v.Status.Pool, v.Status.PoolID = before.Name, before.ID
				})
				if !test.alive {
					w.Beat("a", 1)
					w.reason("v", test.reason)
				}
				has("b", test.now)
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
				if written := w.written(); written[v1beta1.ReasonPoolMoved] > 0 {
					t.Errorf("the events are %v", written)
				}
			})
		})
	}
}
