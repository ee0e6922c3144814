package render

import (
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-storage/holdfast/deploy"
)

// serversPolicy refuses NFSServers where the StorageCluster allows none.
const serversPolicy = "holdfast-nfs-namespaces"

// nfsPolicies let the API server itself refuse NFSServers where none are allowed, and the deletion of the namespaces of
// those that are in use.
func (p *plan) nfsPolicies() []object {
	if !HasPolicies(p.Has) {
		return nil
	}
	all := Policies(deploy.NFSPolicies, p.Namespace)
	SetVariable(all, serversPolicy, "allowed", p.serverNamespaces())
	return objectsOf(all)
}

// serverNamespaces are those that may have NFS servers, and more, as a list in an expression.
func (p *plan) serverNamespaces(more ...string) string {
	all := slices.Concat([]string{p.Namespace}, p.spec.NFS.Namespaces)
	for _, namespace := range more {
		if !slices.Contains(all, namespace) {
			all = append(all, namespace)
		}
	}
	return CELList(all)
}

// CELList is a list in an expression of a policy.
func CELList(words []string) string {
	quoted := make([]string, 0, len(words))
	for _, word := range words {
		quoted = append(quoted, strconv.Quote(word))
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
