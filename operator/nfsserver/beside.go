package nfsserver

import (
	"context"
	"net/netip"
	"slices"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// Networks that manage addresses by themselves, as Cilium does, give a node an address among those of its pods that its Node does
// not show. It counts while it is in the network of the agent's own pod there, as the API server has that, and no pod has it. While
// that pod is being replaced, or has no address yet, what was let in before stays.

// besideFor is how long what was found of a node counts.
const besideFor = 5 * time.Minute

type beside struct {
	reported, own []string
	found         time.Time
}

// observeBeside finds the addresses of nodes beside those of their pods; before are those that were let in.
func (c *Controller) observeBeside(ctx context.Context, o *observed, before []string) error {
	o.beside = map[string][]string{}
	var pods *core.PodList // of all nodes: the address of a pod elsewhere is no node's either
	for _, n := range o.nodes {
		agent := o.agents[n.Name]
		if agent == nil {
			continue
		}
		shown := addressesOf(n, agent, nil)
		reported := slices.DeleteFunc(onlyAddresses(agent.Status.Addresses), func(a string) bool {
			return slices.Contains(shown, a) || !o.kinds[ciliumNode] && isOfPods(n, a)
		})
		if len(reported) == 0 {
			continue
		}
		known, _ := c.besides.Load(n.Name)
		last, is := known.(beside)
		if !is || !slices.Equal(last.reported, reported) || o.now.Sub(last.found) > besideFor {
			if pods == nil { // from the cache of the API server
				var err error
				if pods, err = c.Kubernetes.CoreV1().Pods("").List(ctx, metav1.ListOptions{ResourceVersion: "0"}); err != nil {
					return err
				}
			}
			own, known := besidePods(n.Name, c.Namespace, pods.Items, reported)
			if !known {
				o.beside[n.Name] = among(reported, before)
				o.unknownBeside = true
				continue
			}
			last = beside{reported, own, o.now}
			c.besides.Store(n.Name, last)
		}
		o.beside[n.Name] = last.own
	}
	return nil
}

// isOfPods says whether an address is among those that the Node has for its pods. Only Cilium takes the node's own from there, and the
// Node shows those of other networks: any other is that of a pod, or will be.
func isOfPods(n *core.Node, address string) bool {
	a, _ := netip.ParseAddr(address)
	return slices.ContainsFunc(n.Spec.PodCIDRs, func(network string) bool {
		p, err := netip.ParsePrefix(network)
		return err == nil && p.Contains(a)
	})
}

// besidePods returns which addresses are in the network of the agent's pod on a node, and no pod's. Networks of pods have at least
// 256 addresses, or 2^64. It is not known while the agent's pod has no address.
func besidePods(node, namespace string, pods []core.Pod, addresses []string) (own []string, known bool) {
	var networks []netip.Prefix
	bits := map[bool]int{false: 24, true: 64} // of a network of IPv4, and of IPv6
	taken := map[netip.Addr]bool{}
	for i := range pods {
		p := &pods[i]
		isAgent := p.Spec.NodeName == node && p.Namespace == namespace && p.Labels[v1beta1.ComponentLabel] == v1beta1.NodeComponent
		if p.Spec.HostNetwork {
			known = known || isAgent
			continue
		}
		for _, ip := range p.Status.PodIPs {
			a, err := netip.ParseAddr(ip.IP)
			if err != nil {
				continue
			}
			taken[a] = true
			if isAgent {
				known = true
				networks = append(networks, netip.PrefixFrom(a, bits[a.Is6()]).Masked())
			}
		}
	}
	for _, text := range addresses {
		a, err := netip.ParseAddr(text)
		if err == nil && !taken[a] && slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(a) }) {
			own = append(own, text)
		}
	}
	return own, known
}
