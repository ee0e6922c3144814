package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apps "k8s.io/api/apps/v1"
	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	listers "github.com/holdfast-storage/holdfast/api/client/listers/api/v1beta1"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	volumes "github.com/holdfast-storage/holdfast/backend/cluster"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/operator/volume"
	"github.com/holdfast-storage/holdfast/test/rig/alongside"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// Kubelets write the heartbeats of nodes, and agents those of their own; all watch the nodes.
func TestIdle_AMinuteCostsTheLeaderItsLeaseAloneWithTenNodesAndWithAThousand(t *testing.T) {
	for _, nodes := range []int{10, 1000} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { beIdle(t, nodes) })
		})
	}
}

func beIdle(t *testing.T, nodes int) {
	r, _ := inMemory(t)
	k := &kubelets{rig: r, nodes: nodes}
	k.each(k.join)
	r.create("holdfast", func(s *v1beta1.StorageClusterSpec) { s.NodeSelectorTerms = terms(simulated, core.NodeSelectorOpExists) })
	r.reconciled("holdfast")
	k.runAll()
	k.each(k.store)
	r.leads()
	wait.Until(r, "all nodes being ready, with their volumes", func() bool {
		s := r.cluster("holdfast").Status
		return s.Phase == v1beta1.ClusterRunning && s.ReadyNodes == int32(nodes) && s.Volumes == int32(nodes*volumesEach)
	})
	<-time.After(5 * time.Minute) // what follows a change
	synctest.Wait()
	walked := &walks{VolumeLister: r.controller.volumes}
	r.controller.volumes = walked
	r.traffic.take()
	for range 2 {
		k.each(k.heartbeat)
		<-time.After(30 * time.Second)
	}
	var renewals, all []string
	for _, request := range r.traffic.take() {
		if request == "PUT /apis/coordination.k8s.io/v1/namespaces/"+namespace+"/leases/"+v1beta1.ControllerName {
			renewals = append(renewals, request)
		} else {
			all = append(all, request)
		}
	}
	if len(all) > 0 || len(renewals) == 0 || len(renewals) > 12 {
		t.Errorf("a minute of heartbeats of %d nodes cost %d renewals and %d requests: %q", nodes, len(renewals), len(all), all)
	}
	// Two passes, in each of which the StorageCluster is observed twice.
	for _, debug := range []bool{true, false} {
		r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.Debug = debug })
		r.reconciled("holdfast")
	}
	if n := walked.n.Load(); n > 0 {
		t.Errorf("without a change of a volume, all were walked %d times", n)
	}
	r.volumeIn("another", k.name(0), "default", v1beta1.PhaseReady)
	wait.Until(r, "the new volume", func() bool { return r.cluster("holdfast").Status.Volumes == int32(nodes*volumesEach+1) })
	if n := walked.n.Load(); n != 1 {
		t.Errorf("for a new volume, all were walked %d times", n)
	}
}

// walks counts how often all volumes are walked.
type walks struct {
	listers.VolumeLister
	n atomic.Int32
}

func (w *walks) List(s labels.Selector) ([]*v1beta1.Volume, error) {
	w.n.Add(1)
	return w.VolumeLister.List(s)
}

// leads runs what leads beside the cluster's controller. Its watches are its own: those of that have begun.
func (r *rig) leads() {
	r.Helper()
	c := r.controller
	watches := kube.NewWatches(r.Context(), c.Client, c.Kubernetes, namespace)
	storage := check.Got(volumes.New(volumes.Config{Client: c.Client, Kubernetes: c.Kubernetes, Watches: watches, Namespace: namespace, Driver: c.Driver, Log: c.Log}))(r)
	lost := check.Got(volume.New(volume.Config{Storage: storage, Events: r.events}))(r)
	check.OK(r, storage.Start(r.Context()))
	ctx, cancel := context.WithCancel(context.Background())
	lease := kube.Lease{Client: c.Kubernetes.CoordinationV1(), Namespace: namespace, Name: v1beta1.ControllerName, Holder: "a", Lasts: 30 * time.Second}
	alongside.Run(ctx, r, cancel, func(ctx context.Context) error { return lease.Lead(ctx, lost.Run) })
}

// volumesEach is how many volumes a simulated node has.
const volumesEach = 3

// store makes the volumes of a node, each of a claim, and the Lease of its agent, which lasts for an hour.
func (k *kubelets) store(ctx context.Context, node string) error {
	lease := &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: v1beta1.LeasePrefix + node}}
	lease.Spec = coordination.LeaseSpec{HolderIdentity: &node, LeaseDurationSeconds: new(int32(3600)), RenewTime: new(metav1.NowMicro())}
	if _, err := k.theirs.CoordinationV1().Leases(namespace).Create(ctx, lease, metav1.CreateOptions{}); err != nil {
		return err
	}
	for i := range volumesEach {
		name := fmt.Sprintf("pvc-%s-%d", node, i)
		v := &v1beta1.Volume{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{v1beta1.AgentFinalizer}}, Spec: v1beta1.VolumeSpec{
			Name: name, Node: node, Pool: "default", ClaimRef: v1beta1.ReferenceTo("shop/" + name),
			Labels: map[string]string{v1beta1.ClaimNameLabel: name, v1beta1.ClaimNamespaceLabel: "shop", v1beta1.PersistentVolumeLabel: name},
		}}
		v, err := k.ours.HoldfastV1beta1().Volumes().Create(ctx, v, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		v.Status.Phase, v.Status.Pool, v.Status.CreationTime = v1beta1.PhaseReady, "default", new(metav1.NowMicro())
		if _, err := k.ours.HoldfastV1beta1().Volumes().UpdateStatus(ctx, v, metav1.UpdateOptions{}); err != nil {
			return err
		}
		pv := &core.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
		pv.Spec.CSI = &core.CSIPersistentVolumeSource{Driver: k.controller.Driver, VolumeHandle: name}
		pv.Spec.ClaimRef = &core.ObjectReference{Namespace: "shop", Name: name}
		if _, err := k.theirs.CoreV1().PersistentVolumes().Create(ctx, pv, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
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
	if _, err := k.theirs.CoordinationV1().Leases(namespace).Patch(ctx, v1beta1.LeasePrefix+name, types.MergePatchType, renewed, metav1.PatchOptions{}); err != nil {
		return err
	}
	_, err = k.theirs.CoordinationV1().Leases(core.NamespaceNodeLease).Patch(ctx, name, types.MergePatchType, renewed, metav1.PatchOptions{})
	return err
}

// The status is written up to once a second, and sent to the controller's replicas, the NFS servers and the agents of Ceph
// pools. Of what each node has, it names only that it holds volumes: by that, the API server refuses to leave it out.
func TestStatus_IsAsLongForAThousandNodesAsForTen(t *testing.T) {
	long := func(s *situation) int { return len(check.Got(json.Marshal(s.status()))(t)) }
	holding := func(nodes int) *situation {
		s := healthy(nodes)
		p := v1beta1.HeldPool{Name: "default", Path: "/p", Engine: v1beta1.EngineImage, Volumes: int32(10 * nodes), Snapshots: int32(nodes)}
		for _, n := range s.nodes {
			p.Nodes = append(p.Nodes, n.Name)
		}
		s.volumes, s.snapshots, s.held = 10*nodes, nodes, []v1beta1.HeldPool{p}
		return s
	}
	names := (1000 - 10) * len(`"node1000",`)
	if few, many := long(holding(10)), long(holding(1000)); many-few > names+len("1000")*8 { // the counts
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
