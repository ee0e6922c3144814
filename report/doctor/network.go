package doctor

import (
	"context"
	"net/netip"
	"slices"
	"strings"
)

// enforcers are DaemonSets of networks that hold NetworkPolicies. The API server takes the policies whether or not
// somebody holds them, and says nothing of it.
var enforcers = []string{
	"anetd", "antrea-agent", "azure-npm", "calico-node", "canal", "cilium", "kube-router", "ovnkube-node", "rke2-canal", "romana-agent", "weave-net",
}

func (g *gathering) network(ctx context.Context) {
	if list, err := g.Kubernetes.AppsV1().DaemonSets("").List(ctx, all); g.read(daemonSets, err) {
		for _, d := range list.Items {
			g.DaemonSets = append(g.DaemonSets, d.Name)
		}
	}
}

func lookAtNetwork(f *Facts) (found []Finding) {
	if len(f.Servers) == 0 {
		return nil
	}
	for i := range f.Servers {
		s := &f.Servers[i]
		if slices.ContainsFunc(s.Spec.Exports.Clients, isEverybody) {
			found = append(found, warn("NFSServer "+s.Namespace+"/"+s.Name, "Leave spec.exports.clients out, which lets the nodes mount, or name fewer networks.",
				"everybody who reaches it reads and writes its volumes: %s", strings.Join(s.Spec.Exports.Clients, ", ")))
		}
	}
	const rest = "NFS servers refuse all that do not come from a node, but every pod can speak to them, and one in the host's network is its node"
	switch c := f.served(); {
	case c != nil && c.Spec.NFS.NetworkPolicies != nil && !*c.Spec.NFS.NetworkPolicies:
		found = append(found, note("", "Leave spec.nfs.networkPolicies out, if the network knows nodes by their addresses.", "there are no NetworkPolicies of NFS servers: %s", rest))
	case !slices.ContainsFunc(f.DaemonSets, func(name string) bool { return slices.Contains(enforcers, name) }):
		found = append(found, note("", "Ask whoever runs the network of the pods.", "it is not known whether the network holds NetworkPolicies; if it does not, %s", rest))
	}
	return found
}

func isEverybody(client string) bool {
	p, err := netip.ParsePrefix(client)
	return err == nil && p.Bits() == 0
}

// lookAtNamespacesOfServers names the servers that nobody has allowed.
func lookAtNamespacesOfServers(f *Facts) (found []Finding) {
	c := f.served()
	for i := range f.Servers {
		s := &f.Servers[i]
		if !c.AllowsNFSServers(s.Namespace, f.Namespace) {
			found = append(found, warn("NFSServer "+s.Namespace+"/"+s.Name, "To allow it: "+c.AllowNFSServers(s.Namespace)+". Otherwise delete it when its volumes are gone.",
				"it gets no new volumes: its namespace is not among those that may have NFS servers"))
		}
	}
	return found
}
