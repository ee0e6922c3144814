package nfsserver

import (
	"maps"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/kube/apply"
)

// Label has the name of the server that an object of its namespace belongs to.
const Label = "holdfast.dev/nfs-server"

const (
	nameLabel      = "app.kubernetes.io/name"
	componentLabel = "app.kubernetes.io/component"
	partOfLabel    = "app.kubernetes.io/part-of"

	holdfastName    = "holdfast"
	serverComponent = "nfs-server"

	// prefix begins the names of all that is made for a server.
	prefix = "nfs-"
)

// objectName is that of each object of a server.
func objectName(s *v1.NFSServer) string { return prefix + s.Name }

// serverOf says to which server an object belongs, by its name.
func serverOf(object types.NamespacedName) (types.NamespacedName, bool) {
	name, is := strings.CutPrefix(object.Name, prefix)
	return types.NamespacedName{Namespace: object.Namespace, Name: name}, is
}

// isPodOf says whether a pod is of the StatefulSet of a server. The pods of a copy of that have its labels too.
func isPodOf(s *v1.NFSServer, pod string) bool {
	ordinal, is := strings.CutPrefix(pod, objectName(s)+"-")
	_, err := strconv.ParseUint(ordinal, 10, 31)
	return is && err == nil
}

// selector finds the pods of a server in its namespace.
func selector(s *v1.NFSServer) map[string]string {
	return map[string]string{nameLabel: holdfastName, componentLabel: serverComponent, Label: s.Name}
}

// labelsOf are on all that is made for a server.
func labelsOf(s *v1.NFSServer) map[string]string {
	all := map[string]string{partOfLabel: holdfastName, apply.ManagedByLabel: apply.FieldManager}
	maps.Copy(all, selector(s))
	return all
}

// claimName is the claim that a server uses, "" if none.
func claimName(s *v1.NFSServer) string {
	switch {
	case s.Spec.Publish != nil:
		return s.Spec.Publish.ClaimName
	case s.Spec.Storage == nil || s.Spec.Storage.HostPath != "":
		return ""
	case s.Spec.Storage.ClaimName != "":
		return s.Spec.Storage.ClaimName
	}
	return objectName(s)
}

// makesClaim says whether the claim is made for the server.
func makesClaim(s *v1.NFSServer) bool { return s.Spec.Storage != nil && s.Spec.Storage.Size != nil }

// provisionerLease is that of package provisioner, whose names the operator does not import.
const provisionerLease = "holdfast-nfs-provisioner-"

// leasesOf are the names of the Leases of a server: it holds one while it lives, and one while it provisions.
func leasesOf(s *v1.NFSServer) []string {
	return []string{v1.LeasePrefix + s.NodeName(), provisionerLease + s.Namespace + "." + s.Name}
}
