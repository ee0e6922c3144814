package render

import (
	"strconv"
	"strings"

	"github.com/holdfast-storage/holdfast/deploy"
)

// nfsPolicies let the API server itself refuse NFSServers where the StorageCluster allows none.
func (p *plan) nfsPolicies() ([]object, error) {
	if !HasPolicies(p.Has) {
		return nil, nil
	}
	all, err := Policies(deploy.NFSPolicies, p.Namespace)
	if err != nil {
		return nil, err
	}
	var objects []object
	for _, o := range all {
		if o.GetKind() == admissionPolicyKind.Kind {
			if err := SetVariable(o, "allowed", p.serverNamespaces()); err != nil {
				return nil, err
			}
		}
		objects = append(objects, o)
	}
	return objects, nil
}

// serverNamespaces are those that may have NFS servers, as a list in an expression.
func (p *plan) serverNamespaces() string {
	quoted := []string{strconv.Quote(p.Namespace)}
	for _, namespace := range p.spec.NFS.Namespaces {
		quoted = append(quoted, strconv.Quote(namespace))
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
