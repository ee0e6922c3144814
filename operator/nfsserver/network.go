package nfsserver

import (
	"cmp"
	"slices"
	"strconv"

	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/deploy"
	"github.com/holdfast-storage/holdfast/operator/render"
)

// Cilium does not match addresses of nodes in a NetworkPolicy: its own kind of policy admits nodes.
var (
	networkPolicy = schema.GroupKind{Group: networking.GroupName, Kind: "NetworkPolicy"}
	ciliumPolicy  = schema.GroupKind{Group: "cilium.io", Kind: "CiliumNetworkPolicy"}
	ciliumNode    = schema.GroupKind{Group: "cilium.io", Kind: "CiliumNode"}
)

const metricsPort = 9090

// closing restricts a server to its clients.
type closing struct {
	on      bool     // the addresses of all nodes are known, or were once
	clients []string // the nodes
	policy  bool     // a NetworkPolicy is made
	cilium  bool     // beside it, one of Cilium
}

func (r *round) closing() closing {
	c := closing{clients: r.clients(), on: r.isShut() || r.knowsNodes()}
	if c.on && ptr.Deref(r.cluster.Spec.NFS.NetworkPolicies, true) && r.kinds[networkPolicy] {
		c.cilium = r.kinds[ciliumPolicy]
		c.policy = c.cilium || !r.kinds[ciliumNode] // else it is Cilium with that kind taken away, and a policy would shut out the nodes
	}
	return c
}

// isShut says whether a server is new or was restricted before: an unknown new node does not open it again.
func (r *round) isShut() bool {
	return r.shut || r.set == nil || slices.ContainsFunc(r.set.Spec.Template.Spec.Containers, func(c core.Container) bool {
		return slices.ContainsFunc(c.Env, func(e core.EnvVar) bool { return e.Name == clientsVariable })
	})
}

// service is created before the pod, which gets its address.
func service(in input) *unstructured.Unstructured {
	o := render.Manifest[core.Service](deploy.NFS, manifestName)
	spec := in.server.Spec.Service
	o.Annotations = spec.Annotations
	o.Spec.Ports[0].Port = in.server.Spec.Port()
	o.Spec.Type = cmp.Or(spec.Type, core.ServiceTypeClusterIP)
	o.Spec.Selector = selector(in.server)
	// A Service that a user deleted gets the same address again, which volumes have.
	o.Spec.ClusterIP = cmp.Or(spec.ClusterIP, in.address)
	return belonging(o, in.server)
}

func network(in input) (objects []*unstructured.Unstructured) {
	if in.closing.policy {
		objects = append(objects, belonging(in.networkPolicy(), in.server))
	}
	if in.closing.cilium {
		objects = append(objects, belonging(in.ciliumPolicy(), in.server))
	}
	return objects
}

// networkPolicy admits nodes and named clients to NFS, and any client to the metrics and checks.
func (in input) networkPolicy() *networking.NetworkPolicy {
	port := func(n int32) []networking.NetworkPolicyPort {
		return []networking.NetworkPolicyPort{{Protocol: new(core.ProtocolTCP), Port: new(intstr.FromInt32(n))}}
	}
	nfs := networking.NetworkPolicyIngressRule{Ports: port(in.server.Spec.Port())}
	named := in.server.Spec.Exports.Clients
	rules := []networking.NetworkPolicyIngressRule{{Ports: port(metricsPort)}}
	switch clients := slices.Concat(in.closing.clients, named); {
	case slices.ContainsFunc(named, v1beta1.IsEverybody): // no policy can name them
		rules = append(rules, nfs)
	case len(clients) > 0: // a rule without peers admits every client
		for _, client := range slices.Compact(slices.Sorted(slices.Values(clients))) {
			nfs.From = append(nfs.From, networking.NetworkPolicyPeer{IPBlock: &networking.IPBlock{CIDR: blockOf(client)}})
		}
		rules = append(rules, nfs)
	}
	return &networking.NetworkPolicy{Spec: networking.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: selector(in.server)},
		PolicyTypes: []networking.PolicyType{networking.PolicyTypeIngress}, Ingress: rules,
	}}
}

// ciliumPolicy admits the nodes, regardless of their addresses.
func (in input) ciliumPolicy() *unstructured.Unstructured {
	labels := map[string]any{}
	for key, value := range selector(in.server) {
		labels[key] = value
	}
	spec := map[string]any{
		"endpointSelector": map[string]any{"matchLabels": labels},
		"ingress": []any{map[string]any{
			"fromEntities": []any{"host", "remote-node"},
			"toPorts":      []any{map[string]any{"ports": []any{map[string]any{"port": strconv.Itoa(int(in.server.Spec.Port())), "protocol": "TCP"}}}},
		}},
	}
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "cilium.io/v2", "kind": ciliumPolicy.Kind, "metadata": map[string]any{}, "spec": spec}}
}
