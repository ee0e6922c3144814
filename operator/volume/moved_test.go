package volume_test

import (
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
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
		check.Got(w.Volumes().Create(t.Context(), o, metav1.CreateOptions{}))(t)
		w.Answer("v", func(v *v1beta1.Volume) {
			inmemory.Made(v)
			v.Status.PoolID = "disk"
		})
		w.Beat("a", 1)
		w.Until("the end of the node", func() bool { return w.Volume("v").Status.Phase == v1beta1.PhaseUnreachable })
		b := check.Got(w.Nodes().Get(t.Context(), "b", metav1.GetOptions{}))(t)
		b.Status.Pools[0].ID, b.Status.Pools[0].Generation = "disk", 1
		check.Got(w.Nodes().UpdateStatus(t.Context(), b, metav1.UpdateOptions{}))(t)
		w.Gone("v")
		w.ExpectEvent(v1beta1.ReasonPoolMoved)
	})
}
