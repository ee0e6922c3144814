package nfsserver

import (
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
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
		if err := checkClient(c); err != nil {
			t.Errorf("%s %v", c, err)
		}
	}
}

// letIn are the blocks that a policy lets reach NFS; all is every address.
func letIn(t *testing.T, in input) (blocks []string, all bool) {
	t.Helper()
	objects := check.Got(network(in))(t)
	p := as[networking.NetworkPolicy](t, objects, "NetworkPolicy")
	if !slices.Equal(p.Spec.PolicyTypes, []networking.PolicyType{"Ingress"}) || p.Spec.PodSelector.MatchLabels[Label] != in.server.Name || p.Name != "nfs-data" || len(p.OwnerReferences) != 1 {
		t.Errorf("it is %+v", p)
	}
	for _, rule := range p.Spec.Ingress {
		if len(rule.Ports) != 1 || *rule.Ports[0].Protocol != core.ProtocolTCP {
			t.Fatalf("a rule has the ports %+v", rule.Ports)
		}
		if rule.Ports[0].Port.IntValue() != 2049 {
			continue
		}
		all = all || len(rule.From) == 0
		for _, from := range rule.From {
			blocks = append(blocks, from.IPBlock.CIDR)
		}
	}
	return blocks, all
}

func TestClients_NetworkPolicyAdmitsNodesAndNamedClients(t *testing.T) {
	for what, test := range map[string]struct {
		nodes, named []string
		want         string
		all          bool
	}{
		"the nodes":                {[]string{"10.0.0.7", "100.64.0.0/16", "fd00::7"}, nil, "10.0.0.7/32 100.64.0.0/16 fd00::7/128", false},
		"no nodes, so no clients":  {nil, nil, "", false},
		"clients beside them":      {[]string{"10.0.0.7"}, []string{"192.168.0.0/16", "10.0.0.7"}, "10.0.0.7/32 192.168.0.0/16", false},
		"everybody":                {[]string{"10.0.0.7"}, []string{"0.0.0.0/0", "::/0"}, "", true},
		"everybody, of one family": {[]string{"10.0.0.7"}, []string{"0.0.0.0/0"}, "", true},
	} {
		in := asked(func(s *v1beta1.NFSServerSpec) { s.Exports.Clients = test.named })
		in.closing = closing{on: true, clients: test.nodes, policies: []schema.GroupKind{networkPolicy}}
		blocks, all := letIn(t, in)
		if strings.Join(blocks, " ") != test.want || all != test.all {
			t.Errorf("%s: %v, all %v", what, blocks, all)
		}
	}
	in := asked(nil)
	in.closing = closing{on: true, clients: []string{"10.0.0.7"}, policies: []schema.GroupKind{networkPolicy, ciliumPolicy}}
	objects, err := network(in)
	if err != nil || len(objects) != 2 {
		t.Fatal(objects, err)
	}
	rules, _, err := unstructured.NestedSlice(objects[1].Object, "spec", "ingress")
	if err != nil || objects[1].GetKind() != "CiliumNetworkPolicy" || len(rules) != 1 {
		t.Fatalf("of Cilium it is %+v, %v", objects[1], err)
	}
	entities, _, _ := unstructured.NestedStringSlice(rules[0].(map[string]any), "fromEntities")
	if !slices.Equal(entities, []string{"host", "remote-node"}) {
		t.Errorf("it lets in %v", entities)
	}
}

func TestClients_OnlyNodesMayMountUnlessClientsAreNamed(t *testing.T) {
	for _, test := range []struct{ closed, named, want bool }{{true, false, true}, {true, true, false}, {false, false, false}} {
		in := asked(func(s *v1beta1.NFSServerSpec) {
			if test.named {
				s.Exports.Clients = []string{"10.0.0.0/8"}
			}
		})
		in.closing.on = test.closed
		set := slices.Contains(in.container(t).Env, core.EnvVar{Name: clientsVariable, Value: clientsOfStatus})
		if set != test.want {
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

func TestClients_FollowNodesThatComeAndGo(t *testing.T) {
	r := newRig(t)
	r.create("data", nil)
	r.serve("data")
	has := func(address string, want bool) {
		t.Helper()
		wait.Until(r, address, func() bool { return r.admits("data", address) == [2]bool{want, want} })
	}
	before := r.pod("data").UID
	name := "node-of-" + r.namespace
	nodes := r.theirs.CoreV1().Nodes()
	t.Cleanup(func() {
		_ = nodes.Delete(background, name, metav1.DeleteOptions{})
		_ = r.ours.HoldfastV1beta1().StorageNodes().Delete(background, name, metav1.DeleteOptions{})
	})
	check.Got(nodes.Create(t.Context(), &core.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: core.NodeSpec{PodCIDR: "198.51.100.64/28", PodCIDRs: []string{"198.51.100.64/28"}}}, metav1.CreateOptions{}))(t)
	status := []byte(`{"status":{"addresses":[{"type":"InternalIP","address":"192.0.2.9"}]}}`)
	check.Got(nodes.Patch(t.Context(), name, types.MergePatchType, status, metav1.PatchOptions{}, "status"))(t)
	has("192.0.2.9", true)
	agents := r.ours.HoldfastV1beta1().StorageNodes()
	check.Got(agents.Create(t.Context(), &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))(t)
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
	nodes, storageNodes := r.theirs.CoreV1().Nodes(), r.ours.HoldfastV1beta1().StorageNodes()
	t.Cleanup(func() {
		_ = nodes.Delete(background, name, metav1.DeleteOptions{})
		_ = storageNodes.Delete(background, name, metav1.DeleteOptions{})
	})
	spec := core.NodeSpec{PodCIDR: "198.51.100.64/28", PodCIDRs: []string{"198.51.100.64/28"}}
	check.Got(nodes.Create(t.Context(), &core.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{}))(t)
	check.Got(storageNodes.Create(t.Context(), &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))(t)
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

func TestClients_OlderServerIsRestrictedWhenAllNodesAreKnown(t *testing.T) {
	r := newRig(t)
	name := "old-" + r.namespace
	nodes, agents := r.theirs.CoreV1().Nodes(), r.ours.HoldfastV1beta1().StorageNodes()
	t.Cleanup(func() {
		_ = nodes.Delete(background, name, metav1.DeleteOptions{})
		_ = agents.Delete(background, name, metav1.DeleteOptions{})
	})
	check.Got(nodes.Create(t.Context(), &core.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))(t)
	check.Got(agents.Create(t.Context(), &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))(t)
	r.create("data", nil)
	r.serve("data")
	shut := func() bool {
		return slices.ContainsFunc(r.statefulSet("data").Spec.Template.Spec.Containers[0].Env, func(e core.EnvVar) bool { return e.Name == clientsVariable })
	}
	if !shut() {
		t.Error("a new server is open")
	}
	// As the release before has left it.
	r.stop()
	sets := r.theirs.AppsV1().StatefulSets(r.namespace)
	wait.Modify(r, sets.Get, sets.Update, "nfs-data", func(set *apps.StatefulSet) {
		env := &set.Spec.Template.Spec.Containers[0].Env
		*env = slices.DeleteFunc(*env, func(e core.EnvVar) bool { return e.Name == clientsVariable })
	})
	check.OK(t, r.theirs.NetworkingV1().NetworkPolicies(r.namespace).Delete(t.Context(), "nfs-data", metav1.DeleteOptions{}))
	r.start()
	r.change("data", func(s *v1beta1.NFSServerSpec) { s.MaxExports = 3 })
	r.argument("data", "--max-exports=3")
	if _, err := r.theirs.NetworkingV1().NetworkPolicies(r.namespace).Get(t.Context(), "nfs-data", metav1.GetOptions{}); err == nil || shut() {
		t.Errorf("who mounts from an address that is not known yet is shut out: %v, %v", err, shut())
	}
	wait.Modify(r, agents.Get, agents.UpdateStatus, name, func(agent *v1beta1.StorageNode) { agent.Status.Addresses = []string{"198.51.100.1"} })
	wait.Until(r, "it being shut", shut)
}
