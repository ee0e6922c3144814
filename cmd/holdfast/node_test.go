package main

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-storage/holdfast/agent/nodepools"
	typed "github.com/holdfast-storage/holdfast/api/client/clientset/typed/api/v1beta1"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// machine runs the node process as a host does, again and again.
type machine struct {
	*testing.T
	dir   string // short, for the socket
	kube  kubernetes.Interface
	ours  typed.HoldfastV1beta1Interface
	stop  context.CancelFunc
	ended chan error
}

func newMachine(t *testing.T, labels map[string]string, chosen ...v1beta1.PoolSpec) *machine {
	t.Helper()
	hostfs.RequireRoot(t)
	dir := check.Got(os.MkdirTemp("", "node"))(t)
	api := newCluster(t)
	m := &machine{T: t, dir: dir, kube: kubernetes.NewForConfigOrDie(api.Config()), ours: kindsOf(api)}
	t.Cleanup(func() {
		for _, p := range chosen {
			m.unmount(p.Name)
		}
		os.RemoveAll(dir)
	})
	m.write("kubeconfig", onlyServer(api.URL()))
	m.write("node.json", string(check.Got(json.Marshal(v1beta1.NodeConfig{Pools: chosen}))(t)))
	node := &core.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a", Labels: labels}}
	check.Got(m.kube.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}))(t)
	return m
}

func (m *machine) write(name, content string) {
	m.Helper()
	check.OK(m, os.WriteFile(filepath.Join(m.dir, name), []byte(content), 0o600))
}

func (m *machine) state() string { return filepath.Join(m.dir, "state") }

func (m *machine) place(pool string) string { return filepath.Join(m.state(), "pools", pool) }

func (m *machine) unmount(pool string) {
	m.Helper()
	check.Report(m, nodeops.Unmount(context.Background(), m.place(pool)))
}

func (m *machine) start() {
	m.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	m.stop, m.ended = stop, ended
	m.Cleanup(m.end)
	go func() {
		defer close(ended)
		ended <- run(ctx, []string{
			"node", "--node-name=node-a", "--config=" + filepath.Join(m.dir, "node.json"), "--kubeconfig=" + filepath.Join(m.dir, "kubeconfig"),
			"--state-dir=" + m.state(), "--endpoint=unix://" + filepath.Join(m.dir, "csi.sock"), "--kubelet-registration-dir=", "--log-level=error",
		}, m.Output())
	}()
}

// end stops the process, if it runs.
func (m *machine) end() {
	m.Helper()
	m.stop()
	for err := range m.ended {
		if err != nil {
			m.Errorf("the process ended with %v", err)
		}
	}
}

// status is what the node says; nothing before it says something.
func (m *machine) status() v1beta1.StorageNodeStatus {
	n, err := m.ours.StorageNodes().Get(m.Context(), "node-a", metav1.GetOptions{})
	if err != nil {
		return v1beta1.StorageNodeStatus{}
	}
	return n.Status
}

// says waits until the node reports the pools as PoolsUsable/All.
func (m *machine) says(usable string) v1beta1.StorageNodeStatus {
	m.Helper()
	wait.Until(m.T, "the report of pools "+usable, func() bool { return m.status().Columns.Pools == usable })
	return m.status()
}

// onSSD is a pool of the nodes that have the label.
var onSSD = v1beta1.PoolSpec{Name: "fast", NodeSelectorTerms: []core.NodeSelectorTerm{{
	MatchExpressions: []core.NodeSelectorRequirement{{Key: "disk", Operator: core.NodeSelectorOpIn, Values: []string{"ssd"}}},
}}}

func TestNode_ServesThePoolsOfTheFileThatAreForIt(t *testing.T) {
	m := newMachine(t, nil, v1beta1.PoolSpec{Name: "default"}, onSSD)
	m.start()
	s := m.says("1/1")
	if s.Pools[0].Name != "default" || s.Pools[0].Path != m.place("default") || s.Pools[0].Engine != v1beta1.EngineImage {
		t.Errorf("it says %+v", s.Pools)
	}
	n := check.Got(m.kube.CoreV1().Nodes().Get(t.Context(), "node-a", metav1.GetOptions{}))(t)
	n.Labels = map[string]string{"disk": "ssd"}
	check.Got(m.kube.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}))(t)
	if err := <-m.ended; !errors.Is(err, nodepools.ErrOthers) {
		t.Fatalf("it ended with %v", err)
	}
	m.start()
	m.says("2/2")
}

func TestNode_WithoutPoolsServesTheDriverAndReportsIt(t *testing.T) {
	m := newMachine(t, nil, onSSD)
	m.start()
	s := m.says("0/0")
	if c := meta.FindStatusCondition(s.Conditions, v1beta1.ReadyCondition); c == nil || c.Status != metav1.ConditionFalse || c.Reason != v1beta1.ReasonNoPool {
		t.Errorf("it says %+v", s.Conditions)
	}
	wait.Until(t, "the driver's socket", func() bool {
		_, err := os.Stat(filepath.Join(m.dir, "csi.sock"))
		return err == nil
	})
}

// Its status changes whenever something does in the cluster, and each change would be sent to every node.
func TestNode_NeitherReadsNorWatchesTheStorageCluster(t *testing.T) {
	api := newCluster(t)
	check.Got(coreOf(api).Nodes().Create(t.Context(), &core.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{}))(t)
	startProcess(t, "node", api.URL(), "--kubelet-registration-dir=")
	asked := map[string]int{}
	wait.Until(t, "the report of the node", func() bool {
		maps.Copy(asked, api.Requests())
		return asked["apply storagenodes/status"] > 0
	})
	for what := range asked {
		if strings.HasSuffix(what, " storageclusters") {
			t.Errorf("it asked to %s", what)
		}
	}
	if asked["watch volumes"] == 0 {
		t.Errorf("of what it watches, only %v was counted", asked)
	}
}

func TestNode_PoolOnAMissingDiskLosesNothingAndBlocksNoOther(t *testing.T) {
	device := hostfs.Disk(t, 400<<20)
	fast := v1beta1.PoolSpec{Name: "fast", Devices: &v1beta1.DeviceSelector{Paths: []string{device}}, Reserved: "0%"}
	m := newMachine(t, nil, v1beta1.PoolSpec{Name: "default"}, fast)
	m.start()
	s := m.says("2/2")
	if s.Pools[1].Path != m.place("fast") || s.Pools[1].Capacity.Value() < 300<<20 {
		t.Errorf("it says %+v", s.Pools[1])
	}
	size := resource.MustParse("16Mi")
	v := &v1beta1.Volume{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Finalizers: []string{v1beta1.AgentFinalizer}},
		Spec:       v1beta1.VolumeSpec{Name: "a", Node: "node-a", Pool: "fast", Mode: v1beta1.ModeBlock, Size: v1beta1.VolumeSize{Required: &size}},
	}
	check.Got(m.ours.Volumes().Create(t.Context(), v, metav1.CreateOptions{}))(t)
	becomes := func(phase v1beta1.Phase, want metav1.ConditionStatus, reason string) {
		t.Helper()
		wait.Until(t, "the volume to be "+reason, func() bool {
			v, err := m.ours.Volumes().Get(t.Context(), "a", metav1.GetOptions{})
			if err != nil {
				return false
			}
			c := meta.FindStatusCondition(v.Status.Conditions, v1beta1.ReadyCondition)
			return v.Status.Phase == phase && c != nil && c.Status == want && c.Reason == reason
		})
	}
	becomes(v1beta1.PhaseReady, metav1.ConditionTrue, v1beta1.ReasonReady)

	m.end()
	m.unmount("fast")
	file := hostfs.Detach(t, device)
	m.start()
	s = m.says("1/2")
	if !strings.Contains(s.Pools[1].Message, "its disk is missing") || s.Pools[1].Capacity.Value() < 300<<20 || s.Pools[0].Message != "" {
		t.Errorf("it says %+v", s.Pools)
	}
	becomes(v1beta1.PhaseUnreachable, metav1.ConditionFalse, string(backend.NotMounted))
	if entries, err := os.ReadDir(m.place("fast")); err != nil || len(entries) > 0 {
		t.Errorf("the bare directory holds %v, %v", entries, err)
	}

	m.end()
	if back := hostfs.Attach(t, file); back != device {
		hostfs.Skip(t, "own-loops", "another took "+device)
	}
	m.start()
	m.says("2/2")
	becomes(v1beta1.PhaseReady, metav1.ConditionTrue, v1beta1.ReasonReady)
}
