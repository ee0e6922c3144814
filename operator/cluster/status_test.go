package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube/apply"
	"github.com/holdfast-storage/holdfast/operator/held"
	"github.com/holdfast-storage/holdfast/operator/render"
	"github.com/holdfast-storage/holdfast/operator/rollout"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// healthy is a cluster of so many nodes in which everything is ready.
func healthy(nodes int) *situation {
	s := &situation{
		cluster:      &v1beta1.StorageCluster{ObjectMeta: metav1.ObjectMeta{Name: "holdfast", Generation: 3}},
		storageNodes: map[string]*v1beta1.StorageNode{}, world: rollout.World{DaemonSet: &apps.DaemonSet{}, Unregistered: map[string]bool{}},
		controllers: []workload{{kind: "Deployment", Workload: rollout.Workload{Available: true, Ready: true}}},
		rollout:     rollout.Result{Done: true, Total: nodes, Updated: nodes},
	}
	for i := range nodes {
		name := fmt.Sprintf("node%d", i+1)
		n := &core.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		n.Status.Conditions = []core.NodeCondition{{Type: core.NodeReady, Status: core.ConditionTrue}}
		s.nodes = append(s.nodes, n)
		p := &core.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod-" + name}, Spec: core.PodSpec{NodeName: name}}
		p.Status.Conditions = []core.PodCondition{{Type: core.PodReady, Status: core.ConditionTrue}}
		s.world.Pods = append(s.world.Pods, p)
		sn := &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
		sn.Status.Version = "v1"
		sn.Status.Pools = []v1beta1.Pool{{Name: "default", Capacity: resource.MustParse("10Gi"), Largest: resource.MustParse("9Gi"), Smallest: resource.MustParse("16Mi")}}
		sn.Status.Conditions = []metav1.Condition{{Type: v1beta1.ReadyCondition, Status: metav1.ConditionTrue}}
		s.storageNodes[name] = sn
	}
	return s
}

// was puts the status that a situation gives before another.
func (s *situation) was(before *situation) *situation {
	s.cluster.Status = before.status()
	return s
}

func (s *situation) with(change func(*situation)) *situation {
	change(s)
	return s
}

func reasons(status v1beta1.StorageClusterStatus) string {
	var all []string
	for _, kind := range []string{v1beta1.AvailableCondition, v1beta1.ProgressingCondition, v1beta1.DegradedCondition} {
		c := meta.FindStatusCondition(status.Conditions, kind)
		all = append(all, string(c.Status[0])+" "+c.Reason)
	}
	if meta.IsStatusConditionTrue(status.Conditions, v1beta1.StalledCondition) {
		all = append(all, "Stalled")
	}
	return strings.Join(all, ", ")
}

func silentAgent(name string) func(*situation) {
	return func(s *situation) {
		s.storageNodes[name].Status.Conditions[0] = metav1.Condition{Type: v1beta1.ReadyCondition, Status: metav1.ConditionUnknown, Reason: v1beta1.ReasonNodeDown, Message: "the agent of node " + name + " was last heard of at 12"}
	}
}

func TestStatus_PhaseAndConditionsFollowTheObservedState(t *testing.T) {
	late := func(s *situation) { s.controllers[0].Ready, s.controllers[0].Waiting = false, "its new pods" }
	rolling := func(s *situation) {
		s.world.Pods[0].Status.Conditions[0].Status = core.ConditionFalse
		s.rollout = rollout.Result{Total: 3, Updated: 2, Node: "node1", Waiting: "node1"}
	}
	brokenBesideCordoned := func(s *situation) {
		s.nodes[0].Spec.Unschedulable, s.nodes[1].Status.Conditions[0].Status = true, core.ConditionUnknown
	}
	foreign := func(s *situation) {
		s.failures = []apply.Failure{{Ref: apply.Ref{GroupKind: schema.GroupKind{Kind: "StorageClass"}, NamespacedName: types.NamespacedName{Name: "x"}}, Err: apply.ErrForeign}}
	}
	for name, test := range map[string]struct {
		s       *situation
		phase   v1beta1.ClusterPhase
		ready   string
		reasons string
	}{
		"all is ready":                         {healthy(3), v1beta1.ClusterRunning, "3/3", "T Available, F UpToDate, F Healthy"},
		"one of three is not there yet":        {healthy(3).with(func(s *situation) { delete(s.storageNodes, "node2") }), v1beta1.ClusterCreating, "2/3", "T Creating, T Creating, F Healthy"},
		"none is there yet":                    {healthy(1).with(func(s *situation) { s.world.Pods = nil }), v1beta1.ClusterCreating, "0/1", "F Creating, T Creating, F Healthy"},
		"one of three is not there any more":   {healthy(3).with(silentAgent("node2")).was(healthy(3)), v1beta1.ClusterDegraded, "2/3", "T Available, F UpToDate, T NodesNotReady"},
		"none of three is there any more":      {healthy(1).with(silentAgent("node1")).was(healthy(1)), v1beta1.ClusterDegraded, "0/1", "F NodesNotReady, F UpToDate, T NodesNotReady"},
		"it was degraded and mends":            {healthy(3).was(healthy(3).with(silentAgent("node2")).was(healthy(3))), v1beta1.ClusterRunning, "3/3", "T Available, F UpToDate, F Healthy"},
		"no node is selected":                  {healthy(0), v1beta1.ClusterPending, "0/0", "F NoNodes, F UpToDate, F Healthy"},
		"without CSI there are no nodes":       {healthy(2).with(func(s *situation) { s.cluster.Spec.CSI.Enabled, s.world.DaemonSet = new(bool), nil }), v1beta1.ClusterRunning, "0/0", "T Available, F UpToDate, F Healthy"},
		"a node is being replaced":             {healthy(3).with(rolling).was(healthy(3)), v1beta1.ClusterRunning, "2/3", "T Available, T RollingOut, F Healthy"},
		"a node is replaced and does not come": {healthy(3).with(rolling).with(func(s *situation) { s.rollout.Stuck = true }).was(healthy(3)), v1beta1.ClusterDegraded, "2/3", "T Available, F RolloutStuck, T RolloutStuck"},
		"the controller is being replaced":     {healthy(1).with(late).was(healthy(1)), v1beta1.ClusterRunning, "1/1", "T Available, T RollingOut, F Healthy"},
		"the new controller has no image":      {healthy(1).with(late).with(unpulled("ErrImagePull")).was(healthy(1)), v1beta1.ClusterRunning, "1/1", "T Available, T ImagePullBackOff, F Healthy"},
		"its registry does not answer":         {healthy(1).with(late).with(unpulled("RegistryUnavailable")).was(healthy(1)), v1beta1.ClusterRunning, "1/1", "T Available, T ImagePullBackOff, F Healthy"},
		"an image is missing for no pod":       {healthy(1).with(unpulled("ErrImagePull")).was(healthy(1)), v1beta1.ClusterRunning, "1/1", "T Available, F UpToDate, F Healthy"},
		"the new controller does not come":     {healthy(1).with(late).with(func(s *situation) { s.controllers[0].Failed = true }).was(healthy(1)), v1beta1.ClusterDegraded, "1/1", "T Available, T RollingOut, T ControllerNotReady"},
		"the spec is invalid from the start":   {healthy(1).with(func(s *situation) { s.invalid, s.world.Pods, s.controllers = errors.New("spec.x"), nil, nil }), v1beta1.ClusterPending, "0/1", "F Creating, F InvalidSpec, T InvalidSpec, Stalled"},
		"the spec becomes invalid":             {healthy(1).with(func(s *situation) { s.invalid = errors.New("spec.x") }).was(healthy(1)), v1beta1.ClusterDegraded, "1/1", "T Available, F InvalidSpec, T InvalidSpec, Stalled"},
		"a secret is missing":                  {healthy(1).with(func(s *situation) { s.invalid = fmt.Errorf("there is no %w x", render.ErrSecret) }), v1beta1.ClusterDegraded, "1/1", "T Available, F InvalidSpec, T InvalidSpec"},
		"it mends":                             {healthy(1).was(healthy(1).with(func(s *situation) { s.invalid = errors.New("spec.x") })), v1beta1.ClusterRunning, "1/1", "T Available, F UpToDate, F Healthy"},
		"a class is foreign":                   {healthy(1).with(foreign), v1beta1.ClusterDegraded, "1/1", "T Available, F NameTaken, T NameTaken, Stalled"},
		"a node is left out with volumes":      {healthy(1).with(func(s *situation) { s.leftOut = []string{"node node2 is no longer selected and has 1 volumes"} }).was(healthy(1)), v1beta1.ClusterDegraded, "1/1", "T Available, F UpToDate, T NodesLeftOut"},
		"a volume is out of reach":             {healthy(1).with(away("v1")).was(healthy(1)), v1beta1.ClusterDegraded, "1/1", "T Available, F UpToDate, T VolumesUnreachable"},
		"it is from the start":                 {healthy(1).with(away("v1")), v1beta1.ClusterDegraded, "1/1", "T Available, F UpToDate, T VolumesUnreachable"},
		"it is with its node":                  {healthy(2).with(away("v1")).with(silentAgent("node2")).was(healthy(2)), v1beta1.ClusterDegraded, "1/2", "T Available, F UpToDate, T NodesNotReady"},
		"it comes back":                        {healthy(1).was(healthy(1).with(away("v1")).was(healthy(1))), v1beta1.ClusterRunning, "1/1", "T Available, F UpToDate, F Healthy"},
		"the spec would hide volumes":          {healthy(1).with(func(s *situation) { s.hidden = []held.Hidden{{Field: "spec.pools"}} }).was(healthy(1)), v1beta1.ClusterDegraded, "1/1", "T Available, F VolumesHidden, T VolumesHidden, Stalled"},
		"it is paused":                         {healthy(1).with(func(s *situation) { s.cluster.Spec.Paused = true }), v1beta1.ClusterPaused, "1/1", "T Available, F Paused, F Healthy"},
		"an upgrade is at work":                {healthy(1).with(upgrading), v1beta1.ClusterUpgrading, "1/1", "T Available, T Upgrading, F Healthy"},
		"it is to go and has volumes":          {healthy(1).with(func(s *situation) { s.cluster.DeletionTimestamp, s.volumes = &metav1.Time{}, 2 }), v1beta1.ClusterTerminating, "1/1", "T Available, F VolumesExist, F Healthy"},
		"it goes":                              {healthy(1).with(func(s *situation) { s.cluster.DeletionTimestamp, s.leaving = &metav1.Time{}, "1 node pod to end" }), v1beta1.ClusterTerminating, "1/1", "F Terminating, T Terminating, F Healthy"},
		"the next release is there":            {healthy(1).with(func(s *situation) { s.handingTo = "v2" }).was(healthy(1)), v1beta1.ClusterRunning, "1/1", "T Available, T Upgrading, F Healthy"},
		"one of three is broken, one cordoned": {
			healthy(3).with(brokenBesideCordoned).was(healthy(3)), v1beta1.ClusterDegraded, "2/3", "T Available, F UpToDate, T NodesNotReady",
		},
		"nodes cannot use a pool in Ceph": {
			healthy(1).with(cephSite(metav1.ConditionTrue)), v1beta1.ClusterDegraded, "1/1", "T Available, F UpToDate, T CephPoolsNotReady",
		},
		"nodes can use a pool in Ceph": {
			healthy(1).with(cephSite(metav1.ConditionFalse)), v1beta1.ClusterRunning, "1/1", "T Available, F UpToDate, F Healthy",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := test.s.status()
			ready := fmt.Sprintf("%d/%d", got.ReadyNodes, got.DesiredNodes)
			if got.Phase != test.phase || ready != test.ready || reasons(got) != test.reasons {
				t.Errorf("got %s %s, %s\nwant %s %s, %s", got.Phase, ready, reasons(got), test.phase, test.ready, test.reasons)
			}
			if got.ObservedGeneration != 3 {
				t.Errorf("observed generation %d", got.ObservedGeneration)
			}
			test.s.cluster.Status = got
			if again := test.s.status(); !equality.Semantic.DeepEqual(again, got) {
				t.Errorf("the same situation gives another status afterwards: %s %s", again.Phase, reasons(again))
			}
		})
	}
}

func TestStatus_SecondStorageClusterIsStalledUntilItIsServed(t *testing.T) {
	second := healthy(1)
	second.cluster.Status = refused(second.cluster, &v1beta1.StorageCluster{})
	if got := reasons(second.cluster.Status); got != "F Refused, F Refused, F Refused, Stalled" {
		t.Errorf("it is %s", got)
	}
	if got := reasons(second.status()); got != "T Available, F UpToDate, F Healthy" {
		t.Errorf("once it is served it is %s", got)
	}
}

// unpulled is an image that a pod of the controller waits for.
func unpulled(reason string) func(*situation) {
	return func(s *situation) {
		p := &core.Pod{ObjectMeta: metav1.ObjectMeta{Name: "controller-2"}}
		p.Status.ContainerStatuses = []core.ContainerStatus{{
			Name: "csi-resizer", Image: "r/none:1", State: core.ContainerState{Waiting: &core.ContainerStateWaiting{Reason: reason}},
		}}
		s.controllerPods = []*core.Pod{{}, p}
	}
}

func upgrading(s *situation) {
	s.cluster.Spec.Paused, s.cluster.Annotations = true, map[string]string{v1beta1.PausedByAnnotation: "to-v2"}
}

// cephSite serves a pool in Ceph, and says whether the user of the nodes is refused.
func cephSite(refused metav1.ConditionStatus) func(*situation) {
	return func(s *situation) {
		cephPools(&s.cluster.Spec)
		site := &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: blockSite}}
		site.Status.Pools = []v1beta1.Pool{{Name: "block"}}
		site.Status.Conditions = []metav1.Condition{
			{Type: v1beta1.ReadyCondition, Status: metav1.ConditionTrue},
			{Type: v1beta1.NodeUserRefusedCondition, Status: refused, Message: "Ceph refuses client.a-node"},
		}
		s.storageNodes[blockSite] = site
	}
}

func TestStatus_ConditionSaysWhy(t *testing.T) {
	late := func(s *situation) {
		s.controllers[0] = workload{kind: "Deployment", Workload: rollout.Workload{Available: true, Waiting: "Deployment x: 0 of 1 replicas"}}
	}
	silent := func(s *situation) {
		for name := range s.storageNodes {
			silentAgent(name)(s)
		}
	}
	const noImage = "waiting for Deployment x: 0 of 1 replicas; pod controller-2: container csi-resizer: its image r/none:1 cannot be pulled"
	lost, without := away("a", "b", "c", "d", "e", "f", "g"), func(s *situation) {
		s.cluster.Spec.NodeSelectorTerms = terms("disk", core.NodeSelectorOpIn, "fast")
	}
	const available, progressing, degraded = v1beta1.AvailableCondition, v1beta1.ProgressingCondition, v1beta1.DegradedCondition
	for name, test := range map[string]struct {
		s            *situation
		kind, reason string
		says         []string // one alone: all that it says
	}{
		"no node is selected": {healthy(0).with(without), available, reasonNoNodes, []string{`"disk"`, `"fast"`, "label a node"}},
		"an upgrade runs":     {healthy(1).with(upgrading), progressing, reasonUpgrading, []string{"StorageUpgrade to-v2 is running"}},
		"nodes are silent":    {healthy(200).with(silent).was(healthy(200)), degraded, reasonNodes, []string{"node", "195 more nodes"}},
		// Between these two reasons the kubelet goes to and fro.
		"no image":       {healthy(1).with(late).with(unpulled("ErrImagePull")), progressing, "ImagePullBackOff", []string{noImage}},
		"no image still": {healthy(1).with(late).with(unpulled("ImagePullBackOff")), progressing, "ImagePullBackOff", []string{noImage}},
		"volumes are lost": {
			healthy(2).with(lost).was(healthy(2)), degraded, reasonUnreachable,
			[]string{"7 volumes out of reach", "a (Unreachable, node node1)", "e (", "and 2 more"},
		},
		"so is a node": {
			healthy(2).with(lost).with(silentAgent("node2")).was(healthy(2)), degraded, reasonNodes, []string{"node2", "7 volumes out of reach"},
		},
		"a user of nodes fails": {
			healthy(1).with(cephSite(metav1.ConditionTrue)), degraded, reasonCephPools,
			[]string{"pool block: nodes cannot use its volumes: Ceph refuses client.a-node"},
		},
	} {
		c := meta.FindStatusCondition(test.s.status().Conditions, test.kind)
		if c.Reason != test.reason || len(c.Message) > 2100 || len(test.says) == 1 && c.Message != test.says[0] {
			t.Errorf("%s: it is %s: %q", name, c.Reason, c.Message)
		}
		for _, part := range test.says {
			if !strings.Contains(c.Message, part) {
				t.Errorf("%s: %q is not in %q", name, part, c.Message)
			}
		}
	}
}

// away are volumes that no pod can use.
func away(names ...string) func(*situation) {
	return func(s *situation) {
		for _, name := range names {
			v := &v1beta1.Volume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.VolumeSpec{Node: "node1"}, Status: v1beta1.VolumeStatus{Phase: v1beta1.PhaseUnreachable}}
			s.unreachable = append(s.unreachable, v)
		}
	}
}

func TestUnreachableVolumes_AreThoseOutOfReachAndThoseLost(t *testing.T) {
	var all []*v1beta1.Volume
	for _, phase := range []v1beta1.Phase{"", v1beta1.PhasePending, v1beta1.PhaseUnreachable, v1beta1.PhaseReady, v1beta1.PhaseLost, v1beta1.PhaseFailed, v1beta1.PhaseDeleting} {
		all = append(all, &v1beta1.Volume{ObjectMeta: metav1.ObjectMeta{Name: "v-" + string(phase)}, Status: v1beta1.VolumeStatus{Phase: phase}})
	}
	got := unreachable(all)
	if len(got) != 2 || got[0].Name != "v-Lost" || got[1].Name != "v-Unreachable" {
		t.Errorf("got %v", got)
	}
	if !volumeMatters(all[3], all[2]) || !volumeMatters(all[2], all[4]) || volumeMatters(all[1], all[3]) {
		t.Error("what shows in the status is not what makes it be looked at")
	}
}

func TestStatus_StatefulSetThatDoesNotBecomeReadyIsAFault(t *testing.T) {
	begun := metav1.Unix(1000, 0)
	pod := func(name, kind string, ready core.ConditionStatus, since metav1.Time) *core.Pod {
		p := &core.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(0, 0)}}
		p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Controller: new(true)}}
		p.Status.Conditions = []core.PodCondition{{Type: core.PodReady, Status: ready, LastTransitionTime: since}}
		p.Status.ContainerStatuses = []core.ContainerStatus{{Name: "holdfast", State: core.ContainerState{
			Terminated: &core.ContainerStateTerminated{ExitCode: 3, Message: "bad flag"},
		}}}
		return p
	}
	late := func(pods ...*core.Pod) *situation {
		s := healthy(1)
		s.cluster.Spec.Controller.Kind = v1beta1.AsStatefulSet
		s.controllers = []workload{{kind: "StatefulSet", Workload: rollout.Workload{Available: true, Waiting: "StatefulSet x: 1 of 2 replicas"}}}
		s.controllerPods = pods
		return s.was(healthy(1))
	}
	s := late(
		pod("holdfast-controller-0", "StatefulSet", core.ConditionTrue, begun), pod("holdfast-controller-1", "StatefulSet", core.ConditionFalse, begun),
		pod("old", "ReplicaSet", core.ConditionFalse, metav1.Unix(0, 0)),
	)
	s.now = begun.Add(startingLasts - time.Second)
	if got := s.status(); got.Phase != v1beta1.ClusterRunning || reasons(got) != "T Available, T RollingOut, F Healthy" || s.controllerLate() != time.Second {
		t.Errorf("at first: %s, %s, again in %s", got.Phase, reasons(got), s.controllerLate())
	}
	s.now = begun.Add(startingLasts)
	got := s.status()
	degraded := meta.FindStatusCondition(got.Conditions, v1beta1.DegradedCondition)
	want := "StatefulSet x: 1 of 2 replicas; pod holdfast-controller-1: container holdfast: it ended with code 3: bad flag"
	if got.Phase != v1beta1.ClusterDegraded || reasons(got) != "T Available, T RollingOut, T ControllerNotReady" || degraded.Message != want || s.controllerLate() != 0 {
		t.Errorf("later: %s, %s: %s", got.Phase, reasons(got), degraded.Message)
	}
	s = late(pod("holdfast-controller-1", "StatefulSet", core.ConditionTrue, begun))
	if s.now = begun.Add(time.Hour); s.status().Phase != v1beta1.ClusterRunning || s.controllerLate() != 0 {
		t.Errorf("with pods that are ready: %s", reasons(s.status()))
	}
}

func TestStatus_NodeAwayTooLongForANewPodCountsAsLost(t *testing.T) {
	begun := time.Unix(1000, 0)
	s := healthy(3).with(silentAgent("node1")).was(healthy(3))
	s.rollout = rollout.Result{Total: 3, Node: "node1", Since: begun, Waiting: "node1"}
	s.now = begun.Add(rollingLasts - time.Second)
	if got := s.status(); got.Phase != v1beta1.ClusterRunning || got.ReadyNodes != 2 {
		t.Errorf("at first: %s %d", got.Phase, got.ReadyNodes)
	}
	s.now = begun.Add(rollingLasts)
	if got := s.status(); got.Phase != v1beta1.ClusterDegraded || !strings.Contains(reasons(got), "T NodesNotReady") {
		t.Errorf("later: %s, %s", got.Phase, reasons(got))
	}
}

func TestStatus_EachFaultOfANodeIsNamed(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*situation)
		want   v1beta1.NodeHealth
		words  string
	}{
		"nothing":           {func(*situation) {}, v1beta1.NodeHealth{Ready: true, Agent: true, Pools: true, Disk: true, Registered: true}, ""},
		"a silent agent":    {silentAgent("node1"), v1beta1.NodeHealth{Pools: true, Disk: true, Registered: true}, "last heard of"},
		"no pod":            {func(s *situation) { s.world.Pods = nil }, v1beta1.NodeHealth{Pools: true, Disk: true, Registered: true}, "no node pod"},
		"no report":         {func(s *situation) { delete(s.storageNodes, "node1") }, v1beta1.NodeHealth{Registered: true}, "not reported"},
		"a kubelet":         {func(s *situation) { s.nodes[0].Status.Conditions = nil }, v1beta1.NodeHealth{Pools: true, Disk: true, Registered: true}, "not ready for Kubernetes"},
		"no registration":   {func(s *situation) { s.world.Unregistered["node1"] = true }, v1beta1.NodeHealth{Agent: true, Pools: true, Disk: true}, "not registered"},
		"no pool":           {func(s *situation) { s.storageNodes["node1"].Status.Pools = nil }, v1beta1.NodeHealth{Agent: true, Registered: true}, "no pool"},
		"a pool that fails": {func(s *situation) { s.storageNodes["node1"].Status.Pools[0].Message = "it is read-only" }, v1beta1.NodeHealth{Agent: true, Disk: true, Registered: true}, "pool default: it is read-only"},
		"a full pool": {func(s *situation) {
			p := &s.storageNodes["node1"].Status.Pools[0]
			p.Largest, p.Promised = resource.Quantity{}, resource.MustParse("10737422336") // of no unit
		}, v1beta1.NodeHealth{Ready: true, Agent: true, Pools: true, Registered: true}, "no room left: 10Gi of 10Gi are promised"},
		"a cordoned node": {func(s *situation) {
			s.nodes[0].Spec.Unschedulable, s.nodes[0].Spec.Taints = true, []core.Taint{{Key: "node.kubernetes.io/unschedulable", Effect: "NoSchedule"}}
		}, v1beta1.NodeHealth{Ready: true, Agent: true, Pools: true, Disk: true, Registered: true}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := healthy(1).with(test.change).health()[0]
			if !strings.Contains(got.Message, test.words) || (got.Message == "") != (test.want.Ready && test.want.Disk) {
				t.Errorf("it says %q", got.Message)
			}
			test.want.Name, test.want.Version, test.want.Message = "node1", got.Version, got.Message
			if got != test.want {
				t.Errorf("got %+v\nwant %+v", got, test.want)
			}
		})
	}
}

func TestStatus_SizeDoesNotGrowWithTheCluster(t *testing.T) {
	sizes := map[int]int{}
	for _, nodes := range []int{150, 1000} {
		s := healthy(nodes)
		for i := range s.nodes {
			s.nodes[i].Status.Conditions[0].Status = core.ConditionUnknown
		}
		got := s.status()
		if int(got.DesiredNodes) != nodes || got.ReadyNodes != 0 {
			t.Errorf("%d of %d nodes are ready", got.ReadyNodes, got.DesiredNodes)
		}
		sizes[nodes] = len(check.Got(json.Marshal(got))(t))
		s = healthy(nodes)
		s.nodes[0].Spec.Unschedulable = true
		if len(s.status().Nodes) > 0 {
			t.Errorf("it lists %d nodes that need no attention", len(s.status().Nodes))
		}
	}
	if sizes[1000] > sizes[150]+100 { // the digits of the counts
		t.Errorf("of 150 nodes it has %d bytes, of 1,000 %d", sizes[150], sizes[1000])
	}
}

func TestStatus_VersionIsTheNewestAndTheOldestIsBesideIt(t *testing.T) {
	for want, found := range map[[2]string][]string{{}: {"", ""}, {"v1.2"}: {"v1.2", "v1.2", ""}, {"v1.10.0", "v1.9.0"}: {"v1.10.0", "v1.9.0", "v1.9.1"}} {
		var all []v1beta1.NodeHealth
		for _, v := range found {
			all = append(all, v1beta1.NodeHealth{Version: v})
		}
		if newest, oldest := versions(all); [2]string{newest, oldest} != want {
			t.Errorf("%q gives %q and %q, want %q", found, newest, oldest, want)
		}
	}
}

func TestStatus_EventIsWrittenOnTransitionsOnly(t *testing.T) {
	well, down := healthy(2).was(healthy(2)).status(), healthy(2).with(silentAgent("node2")).was(healthy(2)).status()
	ill, worse := healthy(2).with(away("a")).was(healthy(2)).status(), healthy(2).with(away("a", "b")).was(healthy(2)).status()
	counted := *down.DeepCopy()
	counted.Volumes, counted.Version = 7, "v9"
	for what, test := range map[string]struct {
		old, next v1beta1.StorageClusterStatus
		want      string
	}{
		"nothing changes":               {well, well, ""},
		"a node is lost":                {well, down, "Warning ChangedStatus"},
		"it is back":                    {down, well, "Normal ChangedStatus"},
		"a number changes":              {down, counted, ""},
		"volumes are out of reach":      {well, ill, "Warning ChangedStatus"},
		"they still are":                {ill, ill, ""},
		"one more is":                   {ill, worse, ""},
		"they are back":                 {ill, well, "Normal ChangedStatus"},
		"the node comes back, not they": {down, ill, "Warning VolumesUnreachable, Warning ChangedStatus"},
	} {
		var got []string
		for _, e := range transitions(&test.old, &test.next) {
			got = append(got, e.kind+" "+e.reason)
		}
		if strings.Join(got, ", ") != test.want {
			t.Errorf("%s: %q", what, got)
		}
	}
	if e := transitions(&well, &down)[0]; !strings.Contains(e.message, "1/2") || !strings.Contains(e.message, "node2") {
		t.Errorf("of a node that is lost it says %q", e.message)
	}
}

func TestStatus_OldestStorageClusterIsServed(t *testing.T) {
	at := func(name string, seconds int64, leaving bool) *v1beta1.StorageCluster {
		c := &v1beta1.StorageCluster{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(seconds, 0)}}
		if leaving {
			c.DeletionTimestamp = &metav1.Time{}
		}
		return c
	}
	for want, all := range map[string][]*v1beta1.StorageCluster{
		"old":     {at("a-new", 2, false), at("old", 1, false)},
		"a":       {at("b", 1, false), at("a", 1, false)},
		"staying": {at("old", 1, true), at("staying", 2, false)},
		"last":    {at("last", 1, true), at("other", 2, true)},
	} {
		if got := v1beta1.Served(all); got == nil || got.Name != want {
			t.Errorf("got %v, want %s", got, want)
		}
	}
	if v1beta1.Served(nil) != nil {
		t.Error("one of none is served")
	}
}

func TestStatus_SaysThatAPoolInCephIsServedByThePodBefore(t *testing.T) {
	s := healthy(1)
	cephPools(&s.cluster.Spec)
	pod := func(name string, ready core.ConditionStatus) *core.Pod {
		p := &core.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1beta1.CephPoolLabel: "block"}}}
		p.Status.Conditions = []core.PodCondition{{Type: core.PodReady, Status: ready}}
		p.Status.ContainerStatuses = []core.ContainerStatus{{Name: "holdfast", State: core.ContainerState{Running: &core.ContainerStateRunning{}}}}
		return p
	}
	old, next := pod("old", core.ConditionTrue), pod("next", core.ConditionFalse)
	s.sitePods = []*core.Pod{next, old}
	next.CreationTimestamp = metav1.NewTime(old.CreationTimestamp.Add(time.Minute))
	s.sites = map[string]rollout.Workload{"block": {Rolling: true, Waiting: "the next pod"}}
	if got := reasons(s.status()); got != "T Available, T RollingOut, F Healthy" {
		t.Errorf("while the next pod tries: %s", got)
	}
	next.Status.ContainerStatuses[0].LastTerminationState.Terminated = &core.ContainerStateTerminated{ExitCode: 1, Message: "Ceph refuses client.b"}
	d := meta.FindStatusCondition(s.status().Conditions, v1beta1.DegradedCondition)
	if d.Reason != reasonCephPools || d.Message != "pool block: pod old goes on as before, since pod next, which is to replace it, cannot: container holdfast: it ended with code 1: Ceph refuses client.b" {
		t.Errorf("once it has ended: %+v", d)
	}
	next.Status.Phase = core.PodFailed // it was evicted
	s.sites["block"] = rollout.Workload{Rolling: true, Failed: true, Waiting: "Deployment: no pod can be made"}
	s.storageNodes[blockSite] = &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: blockSite}}
	if d := meta.FindStatusCondition(s.status().Conditions, v1beta1.DegradedCondition); d.Message != "pool block: it is served as before its last change: Deployment: no pod can be made" {
		t.Errorf("without a next pod: %+v", d)
	}
	next.Status.Phase, s.sitePods = core.PodRunning, []*core.Pod{next}
	if d := meta.FindStatusCondition(s.status().Conditions, v1beta1.DegradedCondition); !strings.HasPrefix(d.Message, "pool block: pod next is not ready: ") {
		t.Errorf("alone: %+v", d)
	}
}

func TestFull_PoolWithoutRoomIsNamedAndTheClusterStaysReady(t *testing.T) {
	for name, so := range map[string]*situation{
		"one that has run":      healthy(2),
		"one that begins so":    healthy(2).with(func(s *situation) { s.cluster.Status.Conditions = nil }),
		"every pool of it":      healthy(1),
		"beside one that fails": healthy(2).with(func(s *situation) { s.storageNodes["node2"].Status.Pools[0].Message = "it is read-only" }),
	} {
		full := &so.storageNodes["node1"].Status.Pools[0]
		full.Largest, full.Promised, full.Capacity = resource.Quantity{}, resource.MustParse("20Gi"), resource.MustParse("20Gi")
		got := so.status()
		c := meta.FindStatusCondition(got.Conditions, v1beta1.PoolsFullCondition)
		if c == nil || c.Reason != reasonNoRoom || !strings.HasSuffix(c.Message, ": pool default of node node1, where 20Gi of 20Gi are promised") {
			t.Errorf("%s: the condition is %+v", name, c)
		}
		if ready := meta.IsStatusConditionTrue(got.Conditions, v1beta1.ReadyCondition); ready != (name != "beside one that fails") {
			t.Errorf("%s: the phase is %s, and it is ready %t: %+v", name, got.Phase, ready, got.Conditions)
		}
		so.cluster.Status = got
		full.Largest = resource.MustParse("1Gi")
		if got = so.status(); meta.FindStatusCondition(got.Conditions, v1beta1.PoolsFullCondition) != nil {
			t.Errorf("%s: with room it says %+v", name, got.Conditions)
		}
	}
}
