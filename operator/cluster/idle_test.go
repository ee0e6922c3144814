package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// Kubelets write the heartbeats of nodes, and agents those of their own; all watch the nodes.
func TestIdle_AMinuteCostsTheLeaderNoRequestWithTenNodesAndWithAThousand(t *testing.T) {
	for _, nodes := range []int{10, 1000} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, _ := inMemory(t)
				k := &kubelets{rig: r, nodes: nodes}
				k.each(k.join)
				r.create("holdfast", func(s *v1beta1.StorageClusterSpec) { s.NodeSelectorTerms = terms(simulated, core.NodeSelectorOpExists) })
				r.reconciled("holdfast")
				k.runAll()
				wait.Until(r, "all nodes being ready", func() bool {
					s := r.cluster("holdfast").Status
					return s.Phase == v1beta1.ClusterRunning && s.ReadyNodes == int32(nodes)
				})
				<-time.After(5 * time.Minute) // what follows a change
				r.traffic.take()
				for range 2 {
					k.each(k.heartbeat)
					<-time.After(30 * time.Second)
				}
				if all := r.traffic.take(); len(all) > 0 {
					t.Errorf("a minute of heartbeats of %d nodes cost %d requests: %q", nodes, len(all), all)
				}
			})
		})
	}
}

// runAll plays the controllers of workloads: it makes the pod of each node, and reports all as ready.
func (k *kubelets) runAll() {
	k.Helper()
	set := check.Got(k.theirs.AppsV1().DaemonSets(namespace).Get(k.Context(), v1beta1.NodeName, metav1.GetOptions{}))(k)
	k.each(func(ctx context.Context, name string) error {
		p := &core.Pod{ObjectMeta: *set.Spec.Template.ObjectMeta.DeepCopy(), Spec: *set.Spec.Template.Spec.DeepCopy()}
		p.Name, p.Spec.NodeName = "pod-of-"+name, name
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, apps.SchemeGroupVersion.WithKind("DaemonSet"))}
		made, err := k.theirs.CoreV1().Pods(namespace).Create(ctx, p, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		return k.see(ctx, made)
	})
	n := int32(k.nodes)
	set.Status = apps.DaemonSetStatus{ObservedGeneration: set.Generation, DesiredNumberScheduled: n, CurrentNumberScheduled: n, UpdatedNumberScheduled: n, NumberReady: n, NumberAvailable: n}
	check.Got(k.theirs.AppsV1().DaemonSets(namespace).UpdateStatus(k.Context(), set, metav1.UpdateOptions{}))(k)
	d := check.Got(k.theirs.AppsV1().Deployments(namespace).Get(k.Context(), v1beta1.ControllerName, metav1.GetOptions{}))(k)
	d.Status = apps.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2, AvailableReplicas: 2}
	check.Got(k.theirs.AppsV1().Deployments(namespace).UpdateStatus(k.Context(), d, metav1.UpdateOptions{}))(k)
}

// heartbeat is what a kubelet and an agent write while nothing happens.
func (k *kubelets) heartbeat(ctx context.Context, name string) error {
	alive, err := json.Marshal(map[string]any{"status": core.NodeStatus{Conditions: []core.NodeCondition{{
		Type: core.NodeReady, Status: core.ConditionTrue, Reason: "Simulated", LastHeartbeatTime: metav1.Now(),
	}}}})
	if err != nil {
		return err
	}
	if _, err := k.theirs.CoreV1().Nodes().PatchStatus(ctx, name, alive); err != nil {
		return err
	}
	renewed := fmt.Appendf(nil, `{"spec":{"renewTime":%q}}`, time.Now().UTC().Format(metav1.RFC3339Micro))
	_, err = k.theirs.CoordinationV1().Leases(core.NamespaceNodeLease).Patch(ctx, name, types.MergePatchType, renewed, metav1.PatchOptions{})
	return err
}

// Every agent reads the StorageCluster again whenever its status changes.
func TestStatus_IsAsLongForAThousandNodesAsForTen(t *testing.T) {
	long := func(s *situation) int { return len(check.Got(json.Marshal(s.status()))(t)) }
	if few, many := long(healthy(10)), long(healthy(1000)); many-few > len("1000")*4 { // the counts
		t.Errorf("the status of 10 nodes has %d bytes, and that of 1,000 has %d", few, many)
	}
	silent := func(nodes int) int {
		s := healthy(nodes)
		for name := range s.storageNodes {
			silentAgent(name)(s)
		}
		return long(s)
	}
	if hundred, all := silent(100), silent(1000); all > hundred*11/10 {
		t.Errorf("the status of 100 silent nodes has %d bytes, and that of 1,000 has %d", hundred, all)
	}
}
