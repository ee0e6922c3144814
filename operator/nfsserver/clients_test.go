package nfsserver

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	typed "github.com/holdfast-storage/holdfast/api/client/clientset/typed/api/v1beta1"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/deploy"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func nodeAt(name string, annotations map[string]string, addresses ...string) *core.Node {
	n := &core.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}, Spec: core.NodeSpec{PodCIDRs: []string{"10.244.3.0/24", "fd10:3::/64"}}}
	n.Status.Addresses = []core.NodeAddress{{Type: core.NodeHostName, Address: name}, {Type: core.NodeExternalIP, Address: "203.0.113.7"}}
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, core.NodeAddress{Type: core.NodeInternalIP, Address: a})
	}
	return n
}

func TestClients_AreTheAddressesOfTheNodes(t *testing.T) {
	agent := func(addresses ...string) map[string]*v1beta1.StorageNode {
		gone := v1beta1.StorageNodeStatus{Addresses: []string{"10.0.0.99"}, Conditions: []metav1.Condition{{Type: v1beta1.ReadyCondition, Reason: v1beta1.ReasonNodeGone}}}
		return map[string]*v1beta1.StorageNode{"a": {Status: v1beta1.StorageNodeStatus{Addresses: addresses}}, "gone": {Status: gone}}
	}
	deleted := map[string]*v1beta1.StorageNode{"b": {Status: v1beta1.StorageNodeStatus{Addresses: []string{"10.0.0.98", "10.244.5.9", "10.0.0.0/8"}}}}
	before := []string{"10.0.0.98", "10.0.0.0/8"} // let in before
	ovn := map[string]string{"k8s.ovn.org/node-subnets": `{"default":["10.128.2.0/23","fd01:0:0:3::/64"]}`}
	for what, test := range map[string]struct {
		node    *core.Node
		agents  map[string]*v1beta1.StorageNode
		further []string
		want    string
	}{
		"one":                      {nodeAt("a", nil, "10.0.0.7"), nil, nil, "10.0.0.7"},
		"of two families":          {nodeAt("a", nil, "10.0.0.7", "fd00::7"), nil, nil, "10.0.0.7 fd00::7"},
		"several addresses":        {nodeAt("a", nil, "10.0.0.7", "192.168.0.7", "10.0.0.7"), nil, nil, "10.0.0.7 192.168.0.7"},
		"without one":              {nodeAt("a", nil), nil, nil, ""},
		"its bridges and tunnels":  {nodeAt("a", nil, "10.0.0.7"), agent("10.0.0.7", "10.244.3.1", "fd10:3::1"), nil, "10.0.0.7 10.244.3.1 fd10:3::1"},
		"of a pod of the node":     {nodeAt("a", nil, "10.0.0.7"), agent("10.0.0.7", "10.244.3.2", "fd10:3::2"), nil, "10.0.0.7"},
		"of a pod of another":      {nodeAt("a", nil, "10.0.0.7"), agent("10.0.0.7", "10.244.9.1"), nil, "10.0.0.7"},
		"of another node":          {nodeAt("a", nil, "10.0.0.7"), agent("10.0.0.7", "10.0.0.8"), nil, "10.0.0.7"},
		"outside of the cluster":   {nodeAt("a", nil, "10.0.0.7"), agent("10.0.0.7", "198.51.100.4"), nil, "10.0.0.7"},
		"an agent that is forged":  {nodeAt("a", nil, "10.0.0.7"), agent("0.0.0.0/0", "10.0.0.0/8", "127.0.0.1", "::", "169.254.1.1", "x"), nil, "10.0.0.7"},
		"deleted, still running":   {nodeAt("a", nil, "10.0.0.7"), deleted, nil, "10.0.0.7 10.0.0.98"},
		"of flannel":               {nodeAt("a", map[string]string{"flannel.alpha.coreos.com/backend-type": "vxlan"}, "10.0.0.7"), nil, nil, "10.0.0.7 10.244.3.0 10.244.3.1 fd10:3:: fd10:3::1"},
		"of Calico":                {nodeAt("a", map[string]string{"projectcalico.org/IPv4IPIPTunnelAddr": "10.244.9.64", "projectcalico.org/IPv4Address": "10.0.0.0/8"}, "10.0.0.7"), nil, nil, "10.0.0.7 10.244.9.64"},
		"of Cilium":                {nodeAt("a", map[string]string{"network.cilium.io/ipv4-cilium-host": "10.244.3.77"}, "10.0.0.7"), nil, nil, "10.0.0.7 10.244.3.77"},
		"of OVN":                   {nodeAt("a", map[string]string{"k8s.ovn.org/node-subnets": "{}"}, "10.0.0.7"), nil, nil, "10.0.0.7 100.64.0.0/16 fd98::/64"},
		"the port of OVN":          {nodeAt("a", ovn, "10.0.0.7"), agent("10.128.2.2", "fd01:0:0:3::2", "10.128.2.3"), nil, "10.0.0.7 10.128.2.2 100.64.0.0/16 fd01:0:0:3::2 fd98::/64"},
		"and what is said further": {nodeAt("a", nil, "10.0.0.7"), nil, []string{"192.168.9.1/24", "10.0.0.7", "nonsense", "fd00::/120"}, "10.0.0.7 192.168.9.0/24"},
	} {
		if got := strings.Join(clientsOf([]*core.Node{test.node}, test.agents, nil, test.further, before), " "); got != test.want {
			t.Errorf("%s: %s, not %s", what, got, test.want)
		}
	}
	// What each of them is, a server can export to.
	for _, c := range clientsOf([]*core.Node{nodeAt("a", map[string]string{"flannel.alpha.coreos.com/x": "", "k8s.ovn.org/x": ""}, "10.0.0.7", "fd00::7")}, nil, nil, nil, nil) {
		if _, can := parseClient(c); !can {
			t.Errorf("%s cannot be exported to", c)
		}
	}
}

func TestClients_NetworkPolicyAdmitsNodesAndNamedClients(t *testing.T) {
	for what, test := range map[string]struct {
		port         int32
		nodes, named []string
		want         string // who is admitted to each port; without an address, that is everyone
	}{
		"the nodes":                {2049, []string{"10.0.0.7", "100.64.0.0/16", "fd00::7"}, nil, "9090, 2049 10.0.0.7/32 100.64.0.0/16 fd00::7/128"},
		"to another port":          {3049, []string{"10.0.0.7"}, nil, "9090, 3049 10.0.0.7/32"},
		"no nodes, so no clients":  {2049, nil, nil, "9090"},
		"clients beside them":      {2049, []string{"10.0.0.7"}, []string{"192.168.0.0/16", "10.0.0.7"}, "9090, 2049 10.0.0.7/32 192.168.0.0/16"},
		"everybody":                {2049, []string{"10.0.0.7"}, []string{"0.0.0.0/0", "::/0"}, "9090, 2049"},
		"everybody, of one family": {2049, []string{"10.0.0.7"}, []string{"0.0.0.0/0"}, "9090, 2049"},
	} {
		in := asked(func(s *v1beta1.NFSServerSpec) { s.Service.Port, s.Exports.Clients = test.port, test.named })
		in.closing = closing{on: true, clients: test.nodes, policy: true, cilium: true}
		objects := network(in)
		p := as[networking.NetworkPolicy](t, objects, "NetworkPolicy")
		if !slices.Equal(p.Spec.PolicyTypes, []networking.PolicyType{"Ingress"}) || p.Spec.PodSelector.MatchLabels[Label] != in.server.Name ||
			p.Name != "nfs-data" || len(p.OwnerReferences) != 1 {
			t.Errorf("%s: it is %+v", what, p)
		}
		var admitted []string
		for _, rule := range p.Spec.Ingress {
			if len(rule.Ports) != 1 || *rule.Ports[0].Protocol != core.ProtocolTCP {
				t.Fatalf("%s: a rule has the ports %+v", what, rule.Ports)
			}
			one := rule.Ports[0].Port.String()
			for _, from := range rule.From {
				one += " " + from.IPBlock.CIDR
			}
			admitted = append(admitted, one)
		}
		if got := strings.Join(admitted, ", "); got != test.want {
			t.Errorf("%s: %s, want %s", what, got, test.want)
		}
		rules, _, _ := unstructured.NestedSlice(objects[len(objects)-1].Object, "spec", "ingress")
		only := fmt.Sprintf("[map[fromEntities:[host remote-node] toPorts:[map[ports:[map[port:%d protocol:TCP]]]]]]", test.port)
		if got := fmt.Sprint(rules); len(objects) != 2 || objects[1].GetKind() != "CiliumNetworkPolicy" || got != only {
			t.Errorf("%s: of Cilium it is %+v, and lets in %s", what, objects[1], got)
		}
	}
}

func TestClients_OnlyNodesMayMountUnlessClientsAreNamed(t *testing.T) {
	for _, test := range []struct {
		closed bool
		named  []string
		want   bool
	}{{true, nil, true}, {true, []string{"10.0.0.0/8"}, false}, {false, nil, false}} {
		in := asked(func(s *v1beta1.NFSServerSpec) { s.Exports.Clients = test.named })
		in.closing.on = test.closed
		if set := slices.Contains(in.container(t).Env, core.EnvVar{Name: clientsVariable, Value: clientsOfStatus}); set != test.want {
			t.Errorf("%+v: %v", test, set)
		}
	}
}

// blocks are those that the NetworkPolicy of a server admits; nil without one.
func (r *rig) blocks(server string) (blocks []string) {
	p, err := r.theirs.NetworkingV1().NetworkPolicies(r.namespace).Get(background, "nfs-"+server, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	for _, rule := range p.Spec.Ingress {
		for _, from := range rule.From {
			blocks = append(blocks, from.IPBlock.CIDR)
		}
	}
	return blocks
}

// admits says whether a client is among those of the exports of a server, and of its NetworkPolicy.
func (r *rig) admits(server, client string) [2]bool {
	return [2]bool{slices.Contains(r.server(server).Status.AllowedClients, client), slices.Contains(r.blocks(server), blockOf(client))}
}

// makeNode makes a node, whose pods have addresses from 198.51.100.64 on, and the object of its agent.
func (r *rig) makeNode(name string) (typedcore.NodeInterface, typed.StorageNodeInterface) {
	r.Helper()
	nodes, agents := r.theirs.CoreV1().Nodes(), r.ours.HoldfastV1beta1().StorageNodes()
	r.Cleanup(func() {
		_ = nodes.Delete(background, name, metav1.DeleteOptions{})
		_ = agents.Delete(background, name, metav1.DeleteOptions{})
	})
	named, spec := metav1.ObjectMeta{Name: name}, core.NodeSpec{PodCIDR: "198.51.100.64/28", PodCIDRs: []string{"198.51.100.64/28"}}
	check.Got(nodes.Create(r.Context(), &core.Node{ObjectMeta: named, Spec: spec}, metav1.CreateOptions{}))(r)
	check.Got(agents.Create(r.Context(), &v1beta1.StorageNode{ObjectMeta: named}, metav1.CreateOptions{}))(r)
	return nodes, agents
}

func TestClients_FollowNodesThatComeAndGo(t *testing.T) {
	r := newRig(t)
	r.create("data", nil)
	r.serve("data")
	has := func(address string, want bool) {
		t.Helper()
		wait.Until(r, address, func() bool { return r.admits("data", address) == [2]bool{want, want} })
	}
	before, name := r.pod("data").UID, "node-of-"+r.namespace
	nodes, agents := r.makeNode(name)
	status := []byte(`{"status":{"addresses":[{"type":"InternalIP","address":"192.0.2.9"}]}}`)
	check.Got(nodes.Patch(t.Context(), name, types.MergePatchType, status, metav1.PatchOptions{}, "status"))(t)
	has("192.0.2.9", true)
	wait.Modify(r, agents.Get, agents.UpdateStatus, name, func(agent *v1beta1.StorageNode) { agent.Status.Addresses = []string{"198.51.100.64"} })
	has("198.51.100.64", true)
	r.changeCluster(func(s *v1beta1.StorageClusterSpec) { s.NFS.NodeNetworks = []string{"203.0.113.0/24"} })
	has("203.0.113.0/24", true)
	check.OK(t, r.theirs.NetworkingV1().NetworkPolicies(r.namespace).Delete(t.Context(), "nfs-data", metav1.DeleteOptions{}))
	has("192.0.2.9", true) // what is deleted by hand is made again
	check.OK(t, nodes.Delete(t.Context(), name, metav1.DeleteOptions{}))
	has("192.0.2.9", false)
	has("198.51.100.64", true) // its agent runs, and so may pods
	wait.Modify(r, agents.Get, agents.UpdateStatus, name, func(agent *v1beta1.StorageNode) {
		agent.Status.Conditions = []metav1.Condition{{Type: v1beta1.ReadyCondition, Status: metav1.ConditionUnknown, Reason: v1beta1.ReasonNodeGone, LastTransitionTime: metav1.Now()}}
	})
	has("198.51.100.64", false)
	if r.pod("data").UID != before {
		t.Error("its pod was recreated for it")
	}
	r.changeCluster(func(s *v1beta1.StorageClusterSpec) { s.NFS.NetworkPolicies = new(false) })
	wait.Until(r, "no policy", func() bool { return r.blocks("data") == nil })
}

func TestToken_OfANodePodOpensNoServerToOtherHostsOrPods(t *testing.T) {
	const policy, agents = "holdfast-node-account", "holdfast-node"
	r := newRig(t)
	r.create("data", nil)
	r.serve("data")
	realapi.Install(t, r.config, deploy.NodeRBAC, deploy.AccountPolicies)
	name, pods := "agent-of-"+r.namespace, r.theirs.CoreV1().Pods(realapi.Namespace)
	r.makeNode(name)
	realapi.PodOn(t, r.config, realapi.Namespace, agents, name, name)
	labels := []byte(`{"metadata":{"labels":{"` + v1beta1.ComponentLabel + `":"` + v1beta1.NodeComponent + `"}}}`)
	status := []byte(`{"status":{"podIP":"198.51.100.66","podIPs":[{"ip":"198.51.100.66"}]}}`)
	check.Got(pods.Patch(t.Context(), name, types.MergePatchType, labels, metav1.PatchOptions{}))(t)
	check.Got(pods.Patch(t.Context(), name, types.MergePatchType, status, metav1.PatchOptions{}, "status"))(t)

	token := realapi.WithToken(t, r.config, realapi.Namespace, agents, name)
	agent := holdfast.NewForConfigOrDie(token).HoldfastV1beta1().StorageNodes()
	const bridge, host, pod = "198.51.100.64", "203.0.113.9", "198.51.100.67"
	write := func(node string) error {
		body := `{"apiVersion":"holdfast.dev/v1beta1","kind":"StorageNode"}`
		return realapi.Attempt{Verb: "apply", What: ofNodes, Name: node, Body: body}.Try(t.Context(), token)
	}
	wait.Until(r, "the policy", func() bool { return realapi.RefusedBy(policy, write("another")) })
	check.OK(t, write(name))
	reported := []byte(text(t, map[string]any{"status": map[string]any{"addresses": []string{host, pod, bridge}}}))
	check.Got(agent.Patch(t.Context(), name, types.MergePatchType, reported, metav1.PatchOptions{}, "status"))(t)
	wait.Until(r, "what was reported being read", func() bool { return r.admits("data", bridge) == [2]bool{true, true} })
	for what, address := range map[string]string{"of another host": host, "that the Node has for pods": pod} {
		if got := r.admits("data", address); got != [2]bool{} {
			t.Errorf("an address %s is a client of the exports and of the NetworkPolicy: %v", what, got)
		}
	}
}
