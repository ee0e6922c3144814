package doctor

import (
	"slices"
	"strings"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// enforcers are DaemonSets of networks that hold NetworkPolicies. The API server takes the policies whether or not
// a plugin enforces them, and does not say whether one does.
var enforcers = []string{
	"anetd", "antrea-agent", "azure-npm", "calico-node", "canal", "cilium", "kube-router", "ovnkube-node", "rke2-canal", "romana-agent", "weave-net",
}

func checkNetwork(f *Facts) (found []Finding) {
	if len(f.Servers) == 0 {
		return nil
	}
	for _, s := range f.Servers {
		if slices.ContainsFunc(s.Spec.Exports.Clients, v1beta1.IsEverybody) {
			found = append(found, warn("NFSServer "+s.Namespace+"/"+s.Name, "Leave spec.exports.clients out, which lets the nodes mount, or name fewer networks.",
				"everybody who reaches it reads and writes its volumes: %s", strings.Join(s.Spec.Exports.Clients, ", ")))
		}
	}
	const rest = "NFS servers refuse all that do not come from a node, but every pod can speak to them, and one in the host's network is its node"
	switch c := f.Served(); {
	case c != nil && c.Spec.NFS.NetworkPolicies != nil && !*c.Spec.NFS.NetworkPolicies:
		found = append(found, note("", "Leave spec.nfs.networkPolicies out, if the network knows nodes by their addresses.", "there are no NetworkPolicies of NFS servers: %s", rest))
	case !slices.ContainsFunc(f.DaemonSets, func(name string) bool { return slices.Contains(enforcers, name) }):
		found = append(found, note("", "Ask the administrator of the pod network.", "it is not known whether the network holds NetworkPolicies; if it does not, %s", rest))
	}
	return found
}

// checkNamespacesOfServers names the servers in namespaces that are not allowed.
func checkNamespacesOfServers(f *Facts) (found []Finding) {
	c := f.Served()
	for _, s := range f.Servers {
		if !c.AllowsNFSServers(s.Namespace, f.Namespace) {
			found = append(found, warn("NFSServer "+s.Namespace+"/"+s.Name, "To allow it: "+c.AllowNFSServers(s.Namespace)+". Otherwise delete it when its volumes are gone.",
				"it gets no new volumes: its namespace is not among those that may have NFS servers"))
		}
	}
	return found
}
