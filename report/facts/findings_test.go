package facts

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

var noon = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

func is(kind string, status metav1.ConditionStatus, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Message: message, Reason: "Because"}
}

func meta1(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Generation: 1, CreationTimestamp: metav1.NewTime(noon.Add(-time.Minute))}
}

func roomy(name string) v1beta1.Pool {
	return v1beta1.Pool{Name: name, Capacity: resource.MustParse("100Gi"), Used: resource.MustParse("10Gi"), Available: resource.MustParse("50Gi")}
}

// fine is a cluster in which all is as it should be.
func fine() *Facts {
	return &Facts{
		Now: noon,
		Clusters: []*v1beta1.StorageCluster{{ObjectMeta: meta1("holdfast"), Status: v1beta1.StorageClusterStatus{
			Phase: v1beta1.ClusterRunning, ObservedGeneration: 1, Nodes: []v1beta1.NodeHealth{{Name: "a", Ready: true}},
			Conditions: []metav1.Condition{is(v1beta1.ProtectedCondition, metav1.ConditionTrue, "")},
		}}},
		StorageNodes: []*v1beta1.StorageNode{{ObjectMeta: meta1("a"), Status: v1beta1.StorageNodeStatus{
			Pools: []v1beta1.Pool{roomy("fast")}, Conditions: []metav1.Condition{is(v1beta1.ReadyCondition, metav1.ConditionTrue, "")},
		}}},
		Servers: []*v1beta1.NFSServer{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "files"}, Status: v1beta1.NFSServerStatus{Phase: v1beta1.NFSRunning}}},
		Volumes: []*v1beta1.Volume{{ObjectMeta: meta1("v"), Status: v1beta1.VolumeStatus{Phase: v1beta1.PhaseReady}}},
	}
}

// node gives the node other conditions.
func node(conditions ...metav1.Condition) func(*Facts) {
	return func(f *Facts) {
		for _, c := range conditions {
			meta.SetStatusCondition(&f.StorageNodes[0].Status.Conditions, c)
		}
	}
}

// place adds a Ready one that is no node, with a pool, unless the condition says otherwise.
func place(name, message string, condition metav1.Condition) func(*Facts) {
	return func(f *Facts) {
		pool := roomy("block")
		pool.Message = message
		n := &v1beta1.StorageNode{ObjectMeta: meta1(name), Status: v1beta1.StorageNodeStatus{Pools: []v1beta1.Pool{pool}}}
		n.Status.Conditions = []metav1.Condition{is(v1beta1.ReadyCondition, metav1.ConditionTrue, "")}
		meta.SetStatusCondition(&n.Status.Conditions, condition)
		f.StorageNodes = append(f.StorageNodes, n)
	}
}

// which object it is: NAMESPACE/NAME of an NFS server, NODE/NAME of a pool.
func which(namespace, node, name string) string {
	return strings.TrimPrefix(cmp.Or(namespace, node)+"/"+name, "/")
}

func TestFindings_NameWhatIsWrongAndNothingElse(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Facts)
		want   []string // LEVEL KIND WHICH COUNT: a part of the message
	}{
		"all is well":    {func(*Facts) {}, nil},
		"no cluster":     {func(f *Facts) { f.Clusters = nil }, []string{"problem StorageCluster  1: there is no StorageCluster"}},
		"not looked at":  {func(f *Facts) { f.Clusters[0].Status.Phase = "" }, []string{"problem StorageCluster holdfast 1: no controller has looked at it"}},
		"a change":       {func(f *Facts) { f.Clusters[0].Generation = 2 }, []string{"problem StorageCluster holdfast 1: its last change"}},
		"is created":     {func(f *Facts) { f.Clusters[0].Status.Phase = v1beta1.ClusterCreating }, nil},
		"degraded":       {func(f *Facts) { f.Clusters[0].Status.Phase = v1beta1.ClusterDegraded }, []string{"problem StorageCluster holdfast 1: its conditions say no more"}},
		"not protected":  {func(f *Facts) { f.Clusters[0].Status.Conditions[0].Status = metav1.ConditionFalse }, []string{"warning StorageCluster holdfast 1: "}},
		"unhealthy node": {func(f *Facts) { f.Clusters[0].Status.Nodes[0] = v1beta1.NodeHealth{Name: "a", Message: "no disk"} }, []string{"problem StorageNode a 1: no disk"}},
		"a node without Ceph": {
			node(is(v1beta1.RBDVolumesCondition, "False", "the kernel has no module rbd"), is(v1beta1.CephFSVolumesCondition, "True", "")),
			[]string{"warning StorageNode a 1: the kernel has no module rbd"},
		},
		"a node that cannot be shut out": {
			node(metav1.Condition{Type: v1beta1.FencedCondition, Status: "False", Reason: v1beta1.ReasonNotFenced}),
			[]string{"problem StorageNode a 1: it is lost and cannot be shut out"},
		},
		"a refused key": {
			place("block.ceph.holdfast.dev", "", is(v1beta1.KeyRefusedCondition, "True", "Ceph refuses client.a")),
			[]string{"warning CephPool block 1: it is served over a connection from before"},
		},
		"a refused key of nodes": {
			place("block.ceph.holdfast.dev", "", is(v1beta1.NodeUserRefusedCondition, "True", "Ceph refuses client.a-node")),
			[]string{"warning CephPool block 1: nodes cannot use its volumes: Ceph refuses client.a-node"},
		},
		"a Ceph pool that is out of reach": {
			place("block.ceph.holdfast.dev", "no monitor answers", is(v1beta1.ReadyCondition, "False", "its agent is silent")),
			[]string{"problem CephPool block 1: its agent is silent", "problem CephPool block 1: no monitor answers"},
		},
		"unknown node": {node(is(v1beta1.ReadyCondition, "Unknown", "it is silent")), []string{"problem StorageNode a 1: it is silent"}},
		"ailing node":  {node(is(v1beta1.HealthyCondition, "False", "errors of xfs")), []string{"problem StorageNode a 1: errors of xfs"}},
		"failed restore": {func(f *Facts) {
			f.StorageNodes[0].Spec.Restore = []v1beta1.RestoreRequest{{Name: "old", Error: "it is gone"}}
		}, []string{"warning StorageNode a 1: volume old was not restored: it is gone"}},
		"full pool":      {func(f *Facts) { f.StorageNodes[0].Status.Pools[0].Used = resource.MustParse("99Gi") }, []string{"problem Pool a/fast 1: full to 99%"}},
		"promised pool":  {func(f *Facts) { f.StorageNodes[0].Status.Pools[0].Available = resource.Quantity{} }, []string{"warning Pool a/fast 1: raise overcommit"}},
		"server is down": {func(f *Facts) { f.Servers[0].Status.Phase = v1beta1.NFSDegraded }, []string{"problem NFSServer shop/files 1: say no more"}},
		"ailing server":  {place("shop.files.nfs.holdfast.dev", "", is(v1beta1.HealthyCondition, "False", "errors of ext4")), []string{"problem NFSServer shop/files 1: errors of ext4"}},
		"lost and slow volumes": {func(f *Facts) {
			for i := range 3 {
				f.Volumes = append(f.Volumes, &v1beta1.Volume{ObjectMeta: meta1(fmt.Sprint("lost", i)), Status: v1beta1.VolumeStatus{Phase: v1beta1.PhaseLost, Conditions: []metav1.Condition{is(v1beta1.ReadyCondition, metav1.ConditionFalse, "it vanished")}}})
			}
			slow := meta1("slow")
			slow.CreationTimestamp = metav1.NewTime(noon.Add(-time.Hour))
			f.Volumes = append(f.Volumes, &v1beta1.Volume{ObjectMeta: slow})
		}, []string{"problem Volume  3: it vanished", "warning Volume slow 1: it is being made since"}},
		"unreadable server": {func(f *Facts) { f.Servers[0].DecodeError = "spec.size" }, []string{"problem NFSServer shop/files 1: cannot be read"}},
		"the newest upgrade failed": {func(f *Facts) {
			old := meta1("old")
			old.CreationTimestamp = metav1.NewTime(noon.Add(-time.Hour))
			failed := v1beta1.StorageUpgradeStatus{Phase: v1beta1.UpgradeFailed, Conditions: []metav1.Condition{is(v1beta1.FailedCondition, metav1.ConditionTrue, "no image")}}
			f.Upgrades = []*v1beta1.StorageUpgrade{{ObjectMeta: old, Status: failed}, {ObjectMeta: meta1("new"), Status: failed}}
		}, []string{"warning StorageUpgrade new 1: it has failed: no image"}},
		"a job failed": {func(f *Facts) {
			f.Jobs = []*v1beta1.NodeJob{{ObjectMeta: meta1("j"), Status: v1beta1.NodeJobStatus{Phase: v1beta1.JobFailed}}}
		}, []string{"warning NodeJob j 1: it has failed"}},
	} {
		f := fine()
		test.change(f)
		found := f.Findings()
		if len(found) != len(test.want) {
			t.Errorf("%s: found %+v", name, found)
			continue
		}
		for i, want := range test.want {
			what, message, _ := strings.Cut(want, ": ")
			got := found[i]
			if fmt.Sprint(got.Level, " ", got.Kind, " ", which(got.Namespace, got.Node, got.Name), " ", got.Count) != what || !strings.Contains(got.Message, message) {
				t.Errorf("%s: found %+v, want %s", name, got, want)
			}
		}
	}
}

func TestOperations_AreWhatIsBeingDone(t *testing.T) {
	f := fine()
	if all := f.Operations(); len(all) > 0 {
		t.Errorf("where nothing is done: %+v", all)
	}
	deleted := metav1.NewTime(noon.Add(-time.Second))
	large, size := resource.MustParse("2Gi"), resource.MustParse("1Gi")
	asked := metav1.NewMicroTime(noon)
	going := meta1("going")
	going.DeletionTimestamp = &deleted
	f.Clusters[0].Status.Phase = v1beta1.ClusterCreating
	f.Upgrades = []*v1beta1.StorageUpgrade{
		{ObjectMeta: meta1("up"), Status: v1beta1.StorageUpgradeStatus{Phase: v1beta1.UpgradeRunning, Step: v1beta1.StepNodes, Node: "a", DesiredNodes: 3, UpgradedNodes: 1}},
		{ObjectMeta: meta1("back"), Status: v1beta1.StorageUpgradeStatus{Phase: v1beta1.UpgradeRollingBack}},
		{ObjectMeta: meta1("done"), Status: v1beta1.StorageUpgradeStatus{Phase: v1beta1.UpgradeCompleted}},
	}
	f.Jobs = []*v1beta1.NodeJob{
		{ObjectMeta: meta1("job"), Status: v1beta1.NodeJobStatus{Phase: v1beta1.JobRunning, DesiredNodes: 2, Nodes: []v1beta1.NodeResult{{Name: "b", Phase: v1beta1.JobRunning, Attempts: 2}}}},
		{ObjectMeta: meta1("over"), Status: v1beta1.NodeJobStatus{Phase: v1beta1.JobCompleted}},
	}
	f.Servers[0].Status.Phase = v1beta1.NFSPending
	f.StorageNodes[0].Spec.Restore = []v1beta1.RestoreRequest{{Name: "old", RequestedAt: &asked}, {Name: "gone", Error: "no"}}
	f.StorageNodes[0].Spec.ReplacePools = []v1beta1.PoolReplacement{{Name: "fast", ID: "p1"}}
	f.Volumes = []*v1beta1.Volume{
		{ObjectMeta: meta1("new"), Spec: v1beta1.VolumeSpec{Node: "a", ClaimRef: v1beta1.ReferenceTo("shop/new")}},
		{ObjectMeta: going, Status: v1beta1.VolumeStatus{Phase: v1beta1.PhaseDeleting}},
		{ObjectMeta: meta1("grows"), Spec: v1beta1.VolumeSpec{Size: v1beta1.VolumeSize{Required: &large}}, Status: v1beta1.VolumeStatus{Phase: v1beta1.PhaseReady, Size: &size}},
		{ObjectMeta: meta1("stays"), Spec: v1beta1.VolumeSpec{Size: v1beta1.VolumeSize{Required: &size}}, Status: v1beta1.VolumeStatus{Phase: v1beta1.PhaseReady, Size: &size}},
		{ObjectMeta: meta1("lost"), Spec: v1beta1.VolumeSpec{Size: v1beta1.VolumeSize{Required: &large}}, Status: v1beta1.VolumeStatus{Phase: v1beta1.PhaseLost, Size: &size}},
		{ObjectMeta: meta1("odd"), Decoding: v1beta1.Decoding{DecodeError: "spec"}},
	}
	f.Snapshots = []*v1beta1.Snapshot{{ObjectMeta: meta1("s")}, {ObjectMeta: meta1("ready"), Status: v1beta1.SnapshotStatus{Phase: v1beta1.PhaseReady}}}
	var got []string
	for _, o := range f.Operations() {
		if o.Kind == "Volume" && (o.ClaimRef != nil) != (o.Name == "new") {
			t.Errorf("the claim of %s is %v", o.Name, o.ClaimRef)
		}
		node := o.Node
		if o.Kind != "Pool" {
			node = ""
		}
		got = append(got, fmt.Sprintf("%s %s %s %q %d/%d", o.Verb, o.Kind, which(o.Namespace, node, o.Name), o.Message, o.DoneNodes, o.DesiredNodes))
	}
	want := []string{
		`Create StorageCluster holdfast "" 0/0`, `RollBack StorageUpgrade back "" 0/0`, `Upgrade StorageUpgrade up "Nodes" 1/3`, `Run NodeJob job "attempt 2" 0/2`,
		`Create NFSServer shop/files "it has not served yet: its conditions say no more" 0/0`, `Replace Pool a/fast "pool p1 is given up" 0/0`,
		`Grow Volume grows "from 1Gi to 2Gi" 0/0`, `Create Volume new "" 0/0`, `Create Snapshot s "" 0/0`, `Delete Volume going "" 0/0`, `Restore Volume old "" 0/0`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestEvents_AreThoseOfHoldfastTheNewestFirst(t *testing.T) {
	warn := func(name, component, reason string, count int32, ago time.Duration) *core.Event {
		return &core.Event{
			Type: core.EventTypeWarning, Reason: reason, Message: component, Count: count, LastTimestamp: metav1.NewTime(noon.Add(-ago)),
			InvolvedObject: core.ObjectReference{Kind: "Pod", Namespace: "shop", Name: name}, Source: core.EventSource{Component: component},
		}
	}
	normal := warn("a", "holdfast", "Fine", 1, 0)
	normal.Type = core.EventTypeNormal
	home, about := warn("home", "kubelet", "Home", 1, 2*time.Hour), warn("v", "someone", "About", 1, 3*time.Hour)
	home.Namespace, home.InvolvedObject.Namespace = "holdfast-system", "holdfast-system"
	about.InvolvedObject = core.ObjectReference{APIVersion: "holdfast.dev/v1beta1", Kind: "Volume", Name: "v"}
	f := &Facts{Namespace: "holdfast-system", Warnings: []*core.Event{
		warn("a", "holdfast", "Old", 0, time.Hour), warn("a", "holdfast", "Often", 2, time.Minute), warn("a", "holdfast-agent", "Often", 3, time.Second), warn("a", "kubelet", "Other", 1, 0), normal,
		home, about, warn("a", "csi.holdfast.dev_holdfast-controller-x", "Sidecar", 1, 30*time.Minute),
	}}
	var got []string
	for _, e := range f.Events(9) {
		got = append(got, fmt.Sprint(e.InvolvedObject, " ", e.Reason, " ", e.Count, " of ", e.Message))
	}
	want := "Pod shop/a Often 5 of holdfast-agent, Pod shop/a Sidecar 1 of csi.holdfast.dev_holdfast-controller-x, Pod shop/a Old 1 of holdfast, " +
		"Pod holdfast-system/home Home 1 of kubelet, Volume v About 1 of someone"
	if strings.Join(got, ", ") != want {
		t.Errorf("got %q", got)
	}
	if few := f.Events(1); len(few) != 1 || few[0].Reason != "Often" {
		t.Errorf("%+v", few)
	}
}
