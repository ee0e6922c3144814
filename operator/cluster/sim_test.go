package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// simulated is the label of nodes that are only objects.
const simulated = "holdfast.test/simulated"

// atOnce is how many things the simulation does at the same time.
const atOnce = 16

// kubelets are those of nodes that are only objects: they say of each pod that it runs and is ready, and of each node
// pod that its agent reports and its driver is registered. Of the cluster's own controllers all is real.
type kubelets struct {
	*rig
	work   chan *core.Pod
	stop   context.CancelFunc
	ended  sync.WaitGroup
	nodes  int
	agents sync.Map // nodes that have reported
}

// simulate makes so many nodes, which stay until the test ends. No other pod is scheduled to them.
func (r *rig) simulate(nodes int) *kubelets {
	r.Helper()
	k := &kubelets{rig: r, nodes: nodes, work: make(chan *core.Pod, 10_000)}
	r.Cleanup(k.remove)
	k.cordonReal(true)
	k.each(k.join)
	ctx, stop := context.WithCancel(background)
	k.stop = stop
	factory := kubeinformers.NewSharedInformerFactoryWithOptions(r.theirs, 0, kubeinformers.WithNamespace(namespace))
	hear := func(o any) {
		if p := o.(*core.Pod); strings.HasPrefix(p.Spec.NodeName, "sim-") {
			k.work <- p
		}
	}
	check.Got(factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: hear, UpdateFunc: func(_, o any) { hear(o) },
	}))(r)
	factory.StartWithContext(ctx)
	k.ended.Go(func() { k.beat(ctx) })
	for range atOnce {
		k.ended.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case p := <-k.work:
					if err := k.see(ctx, p); err != nil && ctx.Err() == nil && !passes(err) {
						r.Errorf("pod %s: %v", p.Name, err)
					}
				}
			}
		})
	}
	return k
}

// passes says whether an error is that something has just gone or changed.
func passes(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
}

func (k *kubelets) name(i int) string { return fmt.Sprintf("sim-%03d", i) }

// each does something for all nodes.
func (k *kubelets) each(do func(ctx context.Context, name string) error) {
	k.Helper()
	group, ctx := errgroup.WithContext(background)
	group.SetLimit(atOnce)
	for i := range k.nodes {
		group.Go(func() error { return do(ctx, k.name(i)) })
	}
	check.Report(k, group.Wait())
}

// join makes a node with the Lease by which Kubernetes knows that it lives.
func (k *kubelets) join(ctx context.Context, name string) error {
	room := core.ResourceList{"cpu": resource.MustParse("64"), "memory": resource.MustParse("256Gi"), "pods": resource.MustParse("100")}
	n := &core.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		core.LabelOSStable: "linux", core.LabelHostname: name, simulated: "",
	}}}
	if _, err := k.theirs.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{}); err != nil {
		return err
	}
	now := metav1.Now()
	status, err := json.Marshal(map[string]any{"status": core.NodeStatus{Capacity: room, Allocatable: room, Conditions: []core.NodeCondition{{
		Type: core.NodeReady, Status: core.ConditionTrue, Reason: "Simulated", LastHeartbeatTime: now, LastTransitionTime: now,
	}}}})
	if err != nil {
		return err
	}
	if _, err := k.theirs.CoreV1().Nodes().PatchStatus(ctx, name, status); err != nil {
		return err
	}
	_, err = k.theirs.CoordinationV1().Leases(core.NamespaceNodeLease).Create(ctx, &coordination.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       coordination.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: new(int32(40)), RenewTime: new(metav1.NowMicro())},
	}, metav1.CreateOptions{})
	return err
}

// beat renews the Leases, or Kubernetes would count the nodes as lost.
func (k *kubelets) beat(ctx context.Context) {
	tick := time.NewTicker(15 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			patch := fmt.Appendf(nil, `{"spec":{"renewTime":%q}}`, now.UTC().Format(metav1.RFC3339Micro))
			k.each(func(_ context.Context, name string) error {
				_, err := k.theirs.CoordinationV1().Leases(core.NamespaceNodeLease).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
				if ctx.Err() != nil {
					err = nil // it is over
				}
				return err
			})
		}
	}
}

// see does what a kubelet does with a pod.
func (k *kubelets) see(ctx context.Context, p *core.Pod) error {
	pods := k.theirs.CoreV1().Pods(namespace)
	if p.DeletionTimestamp != nil {
		return pods.Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
	}
	if p.Status.Phase == core.PodRunning {
		return nil
	}
	if p.Labels[v1beta1.ComponentLabel] == v1beta1.NodeComponent {
		if err := k.report(ctx, p.Spec.NodeName); err != nil && !passes(err) {
			return err
		}
	}
	p = p.DeepCopy()
	p.Status.Phase, p.Status.StartTime = core.PodRunning, new(metav1.Now())
	for _, kind := range []core.PodConditionType{core.PodScheduled, core.PodInitialized, core.ContainersReady, core.PodReady} {
		p.Status.Conditions = append(p.Status.Conditions, core.PodCondition{Type: kind, Status: core.ConditionTrue, LastTransitionTime: metav1.Now()})
	}
	_, err := pods.UpdateStatus(ctx, p, metav1.UpdateOptions{})
	return err
}

// report is what the agent of a node and its kubelet write when the node pod begins.
func (k *kubelets) report(ctx context.Context, node string) error {
	if _, done := k.agents.LoadOrStore(node, true); done {
		return nil
	}
	if _, err := k.theirs.StorageV1().CSINodes().Create(ctx, &storage.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: node},
		Spec:       storage.CSINodeSpec{Drivers: []storage.CSINodeDriver{{Name: "csi.holdfast.dev", NodeID: node}}},
	}, metav1.CreateOptions{}); err != nil {
		return err
	}
	made, err := k.ours.HoldfastV1beta1().StorageNodes().Create(ctx, &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	made.Status = v1beta1.StorageNodeStatus{
		Version:    "v1",
		Pools:      []v1beta1.Pool{{Name: "default", Capacity: resource.MustParse("10Gi"), Largest: resource.MustParse("9Gi"), Smallest: resource.MustParse("16Mi")}},
		Conditions: []metav1.Condition{{Type: v1beta1.ReadyCondition, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonReady, LastTransitionTime: metav1.Now()}},
	}
	_, err = k.ours.HoldfastV1beta1().StorageNodes().UpdateStatus(ctx, made, metav1.UpdateOptions{})
	return err
}

// remove takes the nodes away, and what is on them. The controllers must be at rest.
func (k *kubelets) remove() {
	k.sweep()
	pods := k.theirs.CoreV1().Pods(namespace)
	wait.Until(k, "the pods being gone", func() bool {
		all, err := pods.List(background, metav1.ListOptions{})
		return err == nil && len(all.Items) == 0
	})
	if k.stop != nil {
		k.stop()
		k.ended.Wait()
	}
	k.each(func(ctx context.Context, name string) error {
		for _, gone := range []error{
			k.theirs.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}),
			k.theirs.StorageV1().CSINodes().Delete(ctx, name, metav1.DeleteOptions{}),
			k.theirs.CoordinationV1().Leases(core.NamespaceNodeLease).Delete(ctx, name, metav1.DeleteOptions{}),
		} {
			if gone != nil && !apierrors.IsNotFound(gone) {
				return gone
			}
		}
		return nil
	})
	k.cordonReal(false)
}
