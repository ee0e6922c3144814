package volume_test

import (
	"os"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
)

func TestMain(m *testing.M) { os.Exit(realapi.Main(m)) }

// TestLoss_NodeIsLostAndReturnsOnARealAPIServer goes through what depends on the server: two writers of one node's
// conditions, deletion held by a finalizer, preconditions.
func TestLoss_NodeIsLostAndReturnsOnARealAPIServer(t *testing.T) {
	w := realWorld(t)
	hostfs.NotInGate(t, "has Leases of seconds in real time")
	w.Lease = 10 * time.Second
	name := "lost-" + rand.String(5)
	w.KubernetesNode(name)
	hosts := w.Hosts(map[string]int64{name: gib})
	w.leads()
	w.made("kept", name, "")
	w.made("given-up", name, backend.DeleteOnNodeLoss)
	w.down(name)
	w.reason("kept", v1beta1.ReasonNodeDown)
	w.deleteNode(name)
	w.Gone("given-up")
	w.Until("the phase", func() bool { return w.Volume("kept").Status.Phase == v1beta1.PhaseUnreachable })
	w.Agent(name, hosts[name])
	w.reason("kept", v1beta1.ReasonReady)
	w.Ready(name)
	w.Until("the disk without what was given up", func() bool { return !hosts[name].Has("given-up") })
	w.Until("the one condition Ready of the node", func() bool {
		n, err := w.Nodes().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false
		}
		status, reason := w.Readiness(n.Status.Conditions)
		ready := 0
		for _, c := range n.Status.Conditions {
			if c.Type == v1beta1.ReadyCondition {
				ready++
			}
		}
		return ready == 1 && status == metav1.ConditionTrue && reason == v1beta1.ReasonReady
	})
}
