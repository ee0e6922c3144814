package nfsserver

import (
	"slices"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// agentOn is a pod of the agent on a node.
func agentOn(node string, ips ...string) *core.Pod {
	p := podOn(node, "ours", false, ips...)
	p.Name, p.Labels = "agent", map[string]string{v1beta1.ComponentLabel: v1beta1.NodeComponent}
	return &p
}

func podOn(node, namespace string, host bool, ips ...string) core.Pod {
	p := core.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}, Spec: core.PodSpec{NodeName: node, HostNetwork: host}}
	for _, ip := range ips {
		p.Status.PodIPs = append(p.Status.PodIPs, core.PodIP{IP: ip})
	}
	return p
}

func reporting(addresses ...string) map[string]*v1beta1.StorageNode {
	return map[string]*v1beta1.StorageNode{"a": {Status: v1beta1.StorageNodeStatus{Addresses: addresses}}}
}

func TestClients_AnAddressBesideThePodsOfANodeIsItsOwnUnlessAPodHasIt(t *testing.T) {
	agent, inHost, forged := *agentOn("a", "10.0.3.14", "fd00:3::14"), *agentOn("a", "10.0.3.14"), *agentOn("a", "10.0.3.14")
	inHost.Spec.HostNetwork, forged.Namespace = true, "shop"
	for name, test := range map[string]struct {
		pods     []core.Pod
		reported []string
		want     []string
		unknown  bool
	}{
		"a router's":                 {[]core.Pod{agent}, []string{"10.0.3.77", "fd00:3::77"}, []string{"10.0.3.77", "fd00:3::77"}, false},
		"of another network":         {[]core.Pod{agent}, []string{"10.0.4.77", "198.51.100.4", "fd00:4::1"}, nil, false},
		"of a pod":                   {[]core.Pod{agent, podOn("a", "shop", false, "10.0.3.77")}, []string{"10.0.3.77", "10.0.3.78"}, []string{"10.0.3.78"}, false},
		"of a pod elsewhere":         {[]core.Pod{agent, podOn("b", "shop", false, "10.0.3.77")}, []string{"10.0.3.77", "10.0.3.78"}, []string{"10.0.3.78"}, false},
		"its own pod's":              {[]core.Pod{agent}, []string{"10.0.3.14"}, nil, false},
		"a pod in the node's":        {[]core.Pod{agent, podOn("a", "shop", true, "10.0.3.77")}, []string{"10.0.3.77"}, []string{"10.0.3.77"}, false},
		"the agent in the node's":    {[]core.Pod{inHost}, []string{"10.0.3.77"}, nil, false},
		"of another node":            {[]core.Pod{*agentOn("b", "10.0.3.14")}, []string{"10.0.3.77"}, nil, true},
		"a pod that calls itself so": {[]core.Pod{forged}, []string{"10.0.3.77"}, nil, true},
		"no agent yet":               {nil, []string{"10.0.3.77"}, nil, true},
	} {
		if got, known := besidePods("a", "ours", test.pods, test.reported); !slices.Equal(got, test.want) || known == test.unknown {
			t.Errorf("%s: %v, known: %t, want %v", name, got, known, test.want)
		}
	}
	n := nodeAt("a", nil, "192.168.0.7")
	n.Spec.PodCIDRs = nil
	if got := clientsOf([]*core.Node{n}, reporting("10.0.3.77", "10.0.3.78"), map[string][]string{"a": {"10.0.3.77"}}, nil, nil); !slices.Equal(got, []string{"10.0.3.77", "192.168.0.7"}) {
		t.Errorf("let in are %v", got)
	}
}

// The token of an agent reports what it likes: the address that a pod is given next, too.
func TestClients_AnAddressForPodsIsNoNodesUnlessCiliumMayHaveTakenIt(t *testing.T) {
	n := nodeAt("a", nil, "192.168.0.7")
	n.Spec.PodCIDRs = []string{"10.0.3.0/24", "fd00:3::/64"}
	agent := agentOn("a", "10.0.3.14", "10.0.9.14", "fd00:3::14")
	for cilium, want := range map[bool][]string{
		false: {"10.0.3.1", "10.0.9.77", "192.168.0.7"},
		true:  {"10.0.3.1", "10.0.3.77", "10.0.9.77", "192.168.0.7", "fd00:3::77"},
	} {
		c := &Controller{Config: Config{Kubernetes: fake.NewClientset(agent), Namespace: "ours"}}
		o := observed{now: time.Now(), nodes: []*core.Node{n}, kinds: map[schema.GroupKind]bool{ciliumNode: cilium}}
		o.agents = reporting("10.0.3.1", "10.0.3.77", "10.0.9.77", "192.168.0.7", "fd00:3::77")
		check.OK(t, c.observeBeside(t.Context(), &o, nil))
		if got := clientsOf(o.nodes, o.agents, o.beside, nil, nil); !slices.Equal(got, want) {
			t.Errorf("with Cilium (%t) let in are %v, want %v", cilium, got, want)
		}
	}
}

// An update replaces the agents one after the other, and mounts must outlive that.
func TestClients_AnAddressStaysLetInWhileTheAgentsPodIsReplaced(t *testing.T) {
	n, agent := nodeAt("a", nil, "192.168.0.7"), agentOn("a")
	kubernetes := fake.NewClientset(agent)
	c := &Controller{Config: Config{Kubernetes: kubernetes, Namespace: "ours"}}
	o := observed{now: time.Now(), nodes: []*core.Node{n}, agents: reporting("192.168.0.7", "10.0.3.77", "10.0.3.78")}
	see := func(when string, unknown bool, want ...string) {
		t.Helper()
		o.unknownBeside = false
		check.OK(t, c.observeBeside(t.Context(), &o, []string{"10.0.3.77"}))
		if got := o.beside["a"]; !slices.Equal(got, want) || o.unknownBeside != unknown {
			t.Errorf("%s: %v, not known: %t, want %v", when, got, o.unknownBeside, want)
		}
	}
	see("without an address of the agent's pod", true, "10.0.3.77")
	agent.Status.PodIPs = []core.PodIP{{IP: "10.0.3.14"}}
	check.Got(kubernetes.CoreV1().Pods("ours").UpdateStatus(t.Context(), agent, metav1.UpdateOptions{}))(t)
	see("with one", false, "10.0.3.77", "10.0.3.78")
	check.OK(t, kubernetes.CoreV1().Pods("ours").Delete(t.Context(), "agent", metav1.DeleteOptions{}))
	see("a moment later", false, "10.0.3.77", "10.0.3.78")
	o.now = o.now.Add(2 * besideFor)
	see("while it is replaced", true, "10.0.3.77")
}
