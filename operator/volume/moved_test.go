package volume_test

import (
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/inmemory"
)

func TestMoved_VolumeIsReleasedWhenItsPoolAppearsOnAnotherNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t).started()
		w.Puppet("a", gib)
		w.Puppet("b", gib)
		// A node without a Node object that was never heard of is forgotten.
		w.Until("the Leases of both", func() bool { return !w.Backend.LastHeardOf("a").IsZero() && !w.Backend.LastHeardOf("b").IsZero() })
		w.leads()
		o := &v1beta1.Volume{ObjectMeta: metav1.ObjectMeta{Name: "v", Finalizers: []string{v1beta1.AgentFinalizer}}, Spec: v1beta1.VolumeSpec{Name: "v", Node: "a"}}
		if _, err := w.Volumes().Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.Answer("v", func(v *v1beta1.Volume) {
			inmemory.Made(v)
			v.Status.PoolID = "disk"
		})
		w.Beat("a", 1)
		w.Until("the end of the node", func() bool { return w.Volume("v").Status.Phase == v1beta1.PhaseUnreachable })
		b, err := w.Nodes().Get(t.Context(), "b", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		b.Status.Pools[0].ID, b.Status.Pools[0].Generation = "disk", 1
		if _, err := w.Nodes().UpdateStatus(t.Context(), b, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.Gone("v")
		w.ExpectEvent(v1beta1.ReasonPoolMoved)
	})
}
