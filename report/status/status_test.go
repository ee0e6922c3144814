package status

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	testclient "k8s.io/client-go/testing"

	ourfake "github.com/holdfast-storage/holdfast/api/client/clientset/fake"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/report/facts"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

const home = "holdfast-system"

func cluster(phase v1beta1.ClusterPhase) *v1beta1.StorageCluster {
	return &v1beta1.StorageCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "holdfast", Generation: 1},
		Status: v1beta1.StorageClusterStatus{
			Phase: phase, DesiredNodes: 1, ReadyNodes: 1, Version: "v1.2.3", ObservedGeneration: 1,
			Nodes: []v1beta1.NodeHealth{{Name: "a", Ready: true, Version: "v1.2.3"}},
			Conditions: []metav1.Condition{
				{Type: v1beta1.DegradedCondition, Status: metav1.ConditionTrue, Message: "node b is gone"},
				{Type: v1beta1.AvailableCondition, Status: metav1.ConditionTrue, Message: "volumes can be made"},
			},
		},
	}
}

func node(name string) *v1beta1.StorageNode {
	q := func(n int64) resource.Quantity { return *resource.NewQuantity(n<<30, resource.BinarySI) }
	return &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1beta1.StorageNodeStatus{
		Version: "v1.2.3", Columns: v1beta1.StorageNodeColumns{Volumes: 3},
		Conditions: []metav1.Condition{{Type: v1beta1.ReadyCondition, Status: metav1.ConditionTrue}},
		Pools:      []v1beta1.Pool{{Name: "default", Engine: v1beta1.EngineImage, Capacity: q(100), Promised: q(40), Used: q(20), Available: q(60), Volumes: 3}},
	}}
}

func volume(name string, phase v1beta1.Phase, conditions ...metav1.Condition) *v1beta1.Volume {
	return &v1beta1.Volume{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Now()}, Spec: v1beta1.VolumeSpec{ClaimRef: v1beta1.ReferenceTo("shop/" + name), Node: "a", Pool: "default"},
		Status: v1beta1.VolumeStatus{Phase: phase, Conditions: conditions},
	}
}

func event(name, namespace, component string, age time.Duration) *core.Event {
	return &core.Event{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Type: core.EventTypeWarning, Reason: "Because", Message: "of\n" + name, Count: 3,
		InvolvedObject: core.ObjectReference{Kind: "Pod", Namespace: namespace, Name: name}, Source: core.EventSource{Component: component},
		LastTimestamp: metav1.NewTime(time.Now().Add(-age)),
	}
}

func server(name string, phase v1beta1.NFSPhase) *v1beta1.NFSServer {
	return &v1beta1.NFSServer{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Status: v1beta1.NFSServerStatus{
		Phase: phase, Endpoint: "10.96.0.7:2049", Node: "a", Exports: 4, Clients: 2,
		Conditions: []metav1.Condition{{Type: v1beta1.AvailableCondition, Status: metav1.ConditionFalse, Message: "no room for its claim"}},
	}}
}

func look(t *testing.T, ours []runtime.Object, theirs ...runtime.Object) *Report {
	t.Helper()
	return check.Got(ask(t, ourfake.NewSimpleClientset(ours...), fake.NewSimpleClientset(theirs...)))(t)
}

func ask(t *testing.T, ours *ourfake.Clientset, theirs *fake.Clientset) (*Report, error) {
	t.Helper()
	f, err := facts.OfHoldfast(t.Context(), facts.Clients{Holdfast: ours, Kubernetes: theirs}, home)
	if err != nil {
		return nil, err
	}
	return Look(f)
}

func TestAClusterThatRunsIsWell(t *testing.T) {
	var warnings []runtime.Object // which do not make it unwell for an hour
	for i := range warningsKept + 1 {
		warnings = append(warnings, event(fmt.Sprint("w", i), home, "kubelet", time.Minute))
	}
	for _, phase := range []v1beta1.ClusterPhase{v1beta1.ClusterRunning, v1beta1.ClusterUpgrading, v1beta1.ClusterPaused} {
		r := look(t, []runtime.Object{cluster(phase), node("a"), volume("v", v1beta1.PhaseReady)}, warnings...)
		if !r.Well || len(r.Why) > 0 || r.Volumes != 1 || len(r.Pools) != 1 || r.Pools[0].Available != 60<<30 || r.Nodes[0].Volumes != 3 || len(r.Warnings) != warningsKept {
			t.Errorf("%s: %+v", phase, r)
		}
	}
}

func TestWhatIsWrongWithAPlaceIsInItsLine(t *testing.T) {
	up := server("up", v1beta1.NFSRunning)
	n, of, lost := node("a"), node(up.NodeName()), node("b")
	n.Status.Pools[0].Used = resource.MustParse("96Gi")
	for _, o := range []*v1beta1.StorageNode{n, of} {
		o.Status.Conditions = append(o.Status.Conditions, metav1.Condition{Type: v1beta1.HealthyCondition, Status: metav1.ConditionFalse, Message: "errors of xfs"})
	}
	lost.Status.CephClients = []v1beta1.CephClient{{FSID: "f", ID: "client.4711"}}
	lost.Status.Conditions = append(lost.Status.Conditions, metav1.Condition{Type: v1beta1.FencedCondition, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonFenced, Message: "its 1 clients are shut out"})
	r := look(t, []runtime.Object{cluster(v1beta1.ClusterRunning), up, n, of, lost})
	if r.Nodes[0].Message != "errors of xfs" || r.Servers[0].Message != "errors of xfs" || r.Pools[0].Message != "its file system is full to 96%" && r.Pools[1].Message != "its file system is full to 96%" {
		t.Errorf("%+v", r)
	}
	if fenced := r.Nodes[1].Message; !strings.Contains(fenced, "its 1 clients are shut out") || !strings.Contains(fenced, "client.4711") {
		t.Errorf("the node that is shut out: %s", fenced)
	}
	if r := look(t, []runtime.Object{cluster(v1beta1.ClusterRunning), lost}); r.Well {
		t.Errorf("it is well: %+v", r)
	}
}

func TestAnNFSServerIsNoNode(t *testing.T) {
	up, down := server("up", v1beta1.NFSRunning), server("down", v1beta1.NFSPending)
	r := look(t, []runtime.Object{cluster(v1beta1.ClusterRunning), node("a"), up, node(up.NodeName())})
	if !r.Well || len(r.Nodes) != 1 || len(r.Pools) != 2 || len(r.Servers) != 1 || r.Servers[0].Namespace != "shop" || r.Servers[0].Name != "up" || r.Servers[0].Message != "" {
		t.Errorf("%+v", r)
	}
	silent := node(down.NodeName())
	silent.Status.Conditions[0].Status = metav1.ConditionUnknown
	r = look(t, []runtime.Object{cluster(v1beta1.ClusterRunning), node("a"), up, down, silent})
	if r.Well || len(r.Nodes) != 1 || r.Why[0] != "1 of 2 NFS servers are not running" || r.Servers[0].Message != "it has not served yet: no room for its claim" {
		t.Errorf("%+v", r)
	}
}

func TestWhatIsNotWellIsSaid(t *testing.T) {
	unready := cluster(v1beta1.ClusterRunning)
	unready.Status.Nodes = append(unready.Status.Nodes, v1beta1.NodeHealth{Name: "b", Message: "no pod"})
	unseen := cluster(v1beta1.ClusterRunning)
	unseen.Generation = 2
	alone := node("alone")
	alone.Status.Conditions[0] = metav1.Condition{Type: v1beta1.ReadyCondition, Status: metav1.ConditionUnknown, Message: "not heard of"}
	changed := server("files", v1beta1.NFSRunning)
	changed.Generation = 2
	full := node("a")
	full.Status.Pools[0].Used = resource.MustParse("96Gi")
	broken := node("a")
	broken.Status.Pools[0].Message = "it is not mounted"
	ailing := node("a")
	ailing.Status.Conditions = append(ailing.Status.Conditions, metav1.Condition{Type: v1beta1.HealthyCondition, Status: metav1.ConditionFalse, Message: "errors of xfs"})
	silent := node("a")
	silent.Status.Conditions[0].Status = metav1.ConditionUnknown
	for name, test := range map[string]struct {
		there []runtime.Object
		want  string
	}{
		"a server not looked at": {[]runtime.Object{cluster(v1beta1.ClusterRunning), changed}, "last change of 1 of 1 NFS servers"},
		"a full pool":            {[]runtime.Object{cluster(v1beta1.ClusterRunning), full}, "1 of 1 pools are full or cannot be used"},
		"a pool out of use":      {[]runtime.Object{cluster(v1beta1.ClusterRunning), broken}, "1 of 1 pools are full or cannot be used"},
		"a pool with errors":     {[]runtime.Object{cluster(v1beta1.ClusterRunning), ailing}, "file systems of 1 of 1 nodes and NFS servers have met errors"},
		"an agent just silent":   {[]runtime.Object{cluster(v1beta1.ClusterRunning), silent}, "1 of 1 nodes"},
		"an unreadable job":      {[]runtime.Object{cluster(v1beta1.ClusterRunning), &v1beta1.NodeJob{ObjectMeta: metav1.ObjectMeta{Name: "j"}, Decoding: v1beta1.Decoding{DecodeError: "spec.timeout"}}}, "NodeJob j: its object cannot be read"},
		"no cluster":             {nil, "no StorageCluster"},
		"degraded":               {[]runtime.Object{cluster(v1beta1.ClusterDegraded)}, "holdfast is Degraded"},
		"pending":                {[]runtime.Object{cluster(v1beta1.ClusterPending)}, "Pending"},
		"creating":               {[]runtime.Object{cluster(v1beta1.ClusterCreating)}, "Creating"},
		"going":                  {[]runtime.Object{cluster(v1beta1.ClusterTerminating)}, "Terminating"},
		"never looked at":        {[]runtime.Object{cluster("")}, "no controller has looked at StorageCluster holdfast yet"},
		"not looked at again":    {[]runtime.Object{unseen}, "last change"},
		"a node less":            {[]runtime.Object{unready}, "1 of 2 nodes"},
		"a node with no agent":   {[]runtime.Object{cluster(v1beta1.ClusterRunning), alone}, "1 of 2 nodes"},
		"one out of reach":       {[]runtime.Object{cluster(v1beta1.ClusterRunning), volume("v", v1beta1.PhaseUnreachable)}, "1 volumes or snapshots"},
		"a lost volume":          {[]runtime.Object{cluster(v1beta1.ClusterRunning), volume("v", v1beta1.PhaseLost)}, "1 volumes or snapshots"},
		"a failed snapshot":      {[]runtime.Object{cluster(v1beta1.ClusterRunning), &v1beta1.Snapshot{Status: v1beta1.SnapshotStatus{Phase: v1beta1.PhaseFailed}}}, "1 volumes or snapshots"},
	} {
		r := look(t, test.there)
		if r.Well || !strings.Contains(strings.Join(r.Why, "; "), test.want) {
			t.Errorf("%s: well %t, %q", name, r.Well, r.Why)
		}
	}
	if m := look(t, []runtime.Object{cluster(v1beta1.ClusterDegraded)}).Cluster.Message; m != "node b is gone" {
		t.Errorf("the message is %q", m)
	}
}

func TestWhatMayNotBeReadIsHiddenOrAnError(t *testing.T) {
	refuse := func(testclient.Action) (bool, runtime.Object, error) { return true, nil, errors.New("not for you") }
	theirs := fake.NewSimpleClientset()
	theirs.PrependReactor("list", "events", refuse)
	r, err := ask(t, ourfake.NewSimpleClientset(cluster(v1beta1.ClusterRunning)), theirs)
	if err != nil || !r.Well || len(r.Hidden) != 1 || !strings.Contains(r.Hidden[0], "not for you") {
		t.Errorf("events: %v, %+v", err, r)
	}
	for _, kind := range []string{"storageclusters", "storagenodes", "volumes", "snapshots"} {
		ours := ourfake.NewSimpleClientset()
		ours.PrependReactor("list", kind, refuse)
		if _, err := ask(t, ours, fake.NewSimpleClientset()); err == nil || !strings.Contains(err.Error(), "not for you") {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func TestText_HasAllThatTheReportHas(t *testing.T) {
	c := cluster(v1beta1.ClusterDegraded)
	c.Status.Upgrade = "to-v2"
	r := look(t, []runtime.Object{c, node("a"), server("files", v1beta1.NFSDegraded), volume("v", v1beta1.PhaseLost, metav1.Condition{Type: v1beta1.ReadyCondition, Status: metav1.ConditionFalse, Message: "the disk is gone"})},
		event("e", home, "kubelet", 10*time.Minute))
	r.Hidden = []string{"something"}
	got := strings.Join(strings.Fields(strings.Join(drawn(t, r, Style{}), " ")), " ")
	expects(t, got,
		"StorageCluster holdfast: Degraded, 1/1 nodes ready, version v1.2.3, 1 volumes, 0 snapshots", "StorageUpgrade to-v2 is at work", "node b is gone",
		"NODE READY VERSION VOLUMES MESSAGE a yes v1.2.3 3 -",
		"NFS SERVER PHASE TARGET ON EXPORTS CLIENTS MESSAGE shop/files Degraded 10.96.0.7:2049 a 4 2 no room for its claim",
		"# USED = PROMISED USED PROMISED AVAILABLE CAPACITY VOLUMES MESSAGE default a ######======.................. 20Gi 40Gi 60Gi 100Gi 3 -",
		"volume/v shop/v a default Lost the disk is gone", "10m Pod holdfast-system/e Because 3 of e",
		"Not looked at: something", "Not well: StorageCluster holdfast is Degraded; 1 of 1 NFS servers are not running; 1 volumes or snapshots are not well. holdfast doctor",
	)
	if well := drawn(t, look(t, []runtime.Object{cluster(v1beta1.ClusterRunning)}), Style{}); well[len(well)-1] != "All is well." {
		t.Errorf("%q", well)
	}
}

func TestTheJSONHasNoListThatIsMissing(t *testing.T) {
	data := check.Got(json.Marshal(look(t, nil)))(t)
	var got map[string]any
	check.OK(t, json.Unmarshal(data, &got))
	for _, field := range []string{"why", "nodes", "nfsServers", "cephPools", "pools", "unwell", "warnings", "hidden"} {
		if _, ok := got[field].([]any); !ok {
			t.Errorf("%s: %v", field, got[field])
		}
	}
}

func TestSizesAreShort(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 5000: "5000", 100 << 30: "100Gi", 1 << 30: "1024Mi", 11 << 40: "11Ti", 1<<63 - 1: "8191Pi"} {
		if got := size(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
}

func TestCephPoolsAreNoNodes(t *testing.T) {
	pool := node("block.ceph.holdfast.dev")
	pool.Status.Conditions = []metav1.Condition{{Type: v1beta1.ReadyCondition, Status: metav1.ConditionFalse, Message: "no monitor answers"}}
	r := look(t, []runtime.Object{cluster(v1beta1.ClusterRunning), node("a"), pool})
	if len(r.Nodes) != 1 || len(r.CephPools) != 1 || r.CephPools[0].Name != "block" || r.CephPools[0].Ready || r.CephPools[0].Volumes != 3 {
		t.Errorf("nodes %+v, Ceph pools %+v", r.Nodes, r.CephPools)
	}
	if len(r.Pools) != 2 || r.Pools[0].CephPool != "" || r.Pools[1].CephPool != "block" {
		t.Errorf("pools %+v", r.Pools)
	}
	text := strings.Join(drawn(t, r, Style{}), "\n")
	expects(t, text, "CEPH POOL", "no monitor answers", "1 of 1 Ceph pools are not ready")
}
