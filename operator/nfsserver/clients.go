package nfsserver

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// A volume is mounted by the kernel of a node, and a server sees the node by the address over which its packets leave:
// one of those in its Node, or of a bridge or tunnel of the pod network. The agents report all that their hosts have, of which
// those count that the Node shows too, or that are beside its pods; for tunnels there are the annotations of known networks.

// The addresses of flannel and OVN are derived from other annotations.
const (
	flannelPrefix = "flannel.alpha.coreos.com/"
	ovnPrefix     = "k8s.ovn.org/"
	ovnSubnets    = ovnPrefix + "node-subnets" // as {"default":["10.128.0.0/23"]}
)

// tunnelAnnotations hold one address each.
var tunnelAnnotations = []string{
	"projectcalico.org/IPv4IPIPTunnelAddr", "projectcalico.org/IPv4VXLANTunnelAddr", "projectcalico.org/IPv6VXLANTunnelAddr",
	"projectcalico.org/IPv4WireguardInterfaceAddr", "projectcalico.org/IPv6WireguardInterfaceAddr",
	"network.cilium.io/ipv4-cilium-host", "network.cilium.io/ipv6-cilium-host",
	"io.cilium.network.ipv4-cilium-host", "io.cilium.network.ipv6-cilium-host",
}

// ovnJoin are the networks by which OVN, unless configured otherwise, joins nodes. No pod has an address in them.
var ovnJoin = []string{"100.64.0.0/16", "fd98::/64"}

// isGone says whether a node was deleted and its agent does not answer. Before that its pods may still run, and write to
// their mounts what they have in memory.
func isGone(agent *v1beta1.StorageNode) bool {
	ready := meta.FindStatusCondition(agent.Status.Conditions, v1beta1.ReadyCondition)
	return ready != nil && ready.Reason == v1beta1.ReasonNodeGone
}

// clientsOf returns the source addresses and networks of nodes, sorted and without duplicates. Of a deleted node that is not gone it
// keeps those that were let in before, since nothing but its agent says whose they are.
func clientsOf(nodes []*core.Node, agents map[string]*v1beta1.StorageNode, beside map[string][]string, further, before []string) (texts []string) {
	texts = slices.Clone(further)
	known := map[string]bool{}
	for _, n := range nodes {
		known[n.Name] = true
		texts = append(texts, addressesOf(n, agents[n.Name], beside[n.Name])...)
	}
	for name, agent := range agents {
		if !known[name] && !isGone(agent) {
			texts = append(texts, among(agent.Status.Addresses, before)...)
		}
	}
	var all []netip.Prefix
	for _, text := range texts {
		if p, ok := parseClient(text); ok {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	texts = nil
	for _, p := range slices.Compact(all) {
		if p.IsSingleIP() {
			texts = append(texts, p.Addr().String())
		} else {
			texts = append(texts, p.String())
		}
	}
	return texts
}

// among returns the addresses that are among others.
func among(texts, others []string) []string {
	return slices.DeleteFunc(onlyAddresses(texts), func(text string) bool { return !slices.Contains(others, text) })
}

// longestPrefix is the longest IPv6 prefix that NFS-Ganesha parses: two digits.
const longestPrefix = 99

// parseClient accepts addresses and networks that a server can export to.
func parseClient(text string) (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(text)
	if a, notAddress := netip.ParseAddr(text); notAddress == nil && a.Zone() == "" && a.IsGlobalUnicast() {
		p, err = netip.PrefixFrom(a, a.BitLen()), nil
	}
	if err != nil || p.Addr().Is4In6() || p.Bits() > longestPrefix && !p.IsSingleIP() {
		return netip.Prefix{}, false
	}
	return p.Masked(), true
}

// addressesOf returns those of one node; beside are those beside its pods.
func addressesOf(n *core.Node, agent *v1beta1.StorageNode, beside []string) (all []string) {
	for _, a := range n.Status.Addresses {
		if a.Type == core.NodeInternalIP {
			all = append(all, a.Address)
		}
	}
	if agent != nil {
		all = append(all, slices.DeleteFunc(onlyAddresses(agent.Status.Addresses), func(text string) bool { return !isOf(n, text) && !slices.Contains(beside, text) })...)
	}
	for _, key := range tunnelAnnotations {
		all = append(all, onlyAddresses([]string{n.Annotations[key]})...)
	}
	annotated := func(prefix string) bool {
		return slices.ContainsFunc(slices.Collect(maps.Keys(n.Annotations)), func(key string) bool { return strings.HasPrefix(key, prefix) })
	}
	if annotated(flannelPrefix) { // the address of its tunnel, and that of the bridge
		for _, network := range n.Spec.PodCIDRs {
			if p, err := netip.ParsePrefix(network); err == nil && !p.IsSingleIP() {
				first := p.Masked().Addr()
				all = append(all, first.String(), first.Next().String())
			}
		}
	}
	if annotated(ovnPrefix) {
		all = append(all, ovnJoin...)
	}
	return all
}

// isOf says whether the Node shows that an address is the node's own: who has the token of its agent must not open the servers to
// pods or to other hosts. Bridges have the first address of the node's pods, the port of OVN the second.
func isOf(n *core.Node, address string) bool {
	a, _ := netip.ParseAddr(address)
	within := func(networks []string, last int) bool {
		return slices.ContainsFunc(networks, func(network string) bool {
			p, err := netip.ParsePrefix(network)
			if err != nil || p.IsSingleIP() {
				return false
			}
			own := p.Masked().Addr()
			for range last {
				if own == a {
					return true
				}
				own = own.Next()
			}
			return own == a
		})
	}
	ovn := strings.FieldsFunc(n.Annotations[ovnSubnets], func(r rune) bool { return strings.ContainsRune(`"[]{}, `, r) })
	return within(n.Spec.PodCIDRs, 1) || within(ovn, 2)
}

func onlyAddresses(texts []string) []string {
	return slices.DeleteFunc(slices.Clone(texts), func(text string) bool { _, err := netip.ParseAddr(text); return err != nil })
}

func (r *round) clients() []string {
	return clientsOf(r.nodes, r.agents, r.beside, r.cluster.Spec.NFS.NodeNetworks, r.server.Status.AllowedClients)
}

// knowsNodes says whether the addresses of all nodes are known. Agents of the previous release do not report theirs:
// until they are replaced, a server of that release stays as open as it was, so that no client loses access to its
// mounts.
func (r *round) knowsNodes() bool {
	return !slices.ContainsFunc(r.nodes, func(n *core.Node) bool { a := r.agents[n.Name]; return a != nil && len(a.Status.Addresses) == 0 })
}

func nodeAddressesChanged(old, now any) bool {
	a, b := old.(*core.Node), now.(*core.Node)
	return !slices.Equal(addressesOf(a, nil, nil), addressesOf(b, nil, nil)) || !slices.Equal(a.Spec.PodCIDRs, b.Spec.PodCIDRs) || a.Annotations[ovnSubnets] != b.Annotations[ovnSubnets]
}

// reportedAddressesChanged says whether the addresses that an agent reports have changed, or whether it is gone.
func reportedAddressesChanged(old, now any) bool {
	a, b := old.(*v1beta1.StorageNode), now.(*v1beta1.StorageNode)
	return !equality.Semantic.DeepEqual(a.Status.Addresses, b.Status.Addresses) || isGone(a) != isGone(b)
}

func blockOf(client string) string {
	if a, err := netip.ParseAddr(client); err == nil {
		return netip.PrefixFrom(a, a.BitLen()).String()
	}
	return client
}

// clientsVariable is set in the server's pod if the clients are those in the status of the NFSServer. The previous
// release does not read it.
const (
	clientsVariable = "HOLDFAST_NFS_CLIENTS"
	clientsOfStatus = "status"
)
