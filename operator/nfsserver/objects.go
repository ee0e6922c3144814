package nfsserver

import (
	"maps"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube/apply"
	"github.com/holdfast-storage/holdfast/operator/render"
)

// Label names the server that an object in its namespace belongs to.
const Label = "holdfast.dev/nfs-server"

const (
	serverComponent = "nfs-server"

	// prefix begins the names of all objects of a server.
	prefix = "nfs-"
)

func objectName(s *v1beta1.NFSServer) string { return prefix + s.Name }

// serverOf returns the server that an object belongs to, by its name.
func serverOf(object types.NamespacedName) (types.NamespacedName, bool) {
	name, is := strings.CutPrefix(object.Name, prefix)
	return types.NamespacedName{Namespace: object.Namespace, Name: name}, is
}

// isPodOf says whether a pod belongs to the StatefulSet of a server. Labels do not prove it: the pods of a copy of the
// StatefulSet have them too.
func isPodOf(s *v1beta1.NFSServer, pod string) bool {
	ordinal, is := strings.CutPrefix(pod, objectName(s)+"-")
	_, err := strconv.ParseUint(ordinal, 10, 31)
	return is && err == nil
}

// selector finds the pods of a server in its namespace.
func selector(s *v1beta1.NFSServer) map[string]string {
	return map[string]string{v1beta1.NameLabel: v1beta1.AppName, v1beta1.ComponentLabel: serverComponent, Label: s.Name}
}

func labelsOf(s *v1beta1.NFSServer) map[string]string {
	all := map[string]string{v1beta1.PartOfLabel: v1beta1.AppName, apply.ManagedByLabel: apply.FieldManager}
	maps.Copy(all, selector(s))
	return all
}

// claimName returns the claim that a server uses, "" if none.
func claimName(s *v1beta1.NFSServer) string {
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

func makesClaim(s *v1beta1.NFSServer) bool {
	return s.Spec.Storage != nil && s.Spec.Storage.Size != nil
}

// provisionerLease is provisioner.LeasePrefix: the operator does not import that package.
const provisionerLease = "holdfast-nfs-provisioner-"

// leasesOf returns the names of the Leases of a server: that of its agent, and that of its provisioner.
func leasesOf(s *v1beta1.NFSServer) []string {
	return []string{v1beta1.LeasePrefix + s.NodeName(), provisionerLease + s.Namespace + "." + s.Name}
}

// manifestName is the name of the objects in deploy.NFS that each server has.
const manifestName = "nfs"

type object interface {
	metav1.Object
	runtime.Object
}

// belonging sets the namespace, labels and owner that an object of a server has.
func belonging(o object, s *v1beta1.NFSServer) *unstructured.Unstructured {
	o.SetNamespace(s.Namespace)
	o.SetName(objectName(s))
	labels := labelsOf(s)
	maps.Copy(labels, o.GetLabels())
	o.SetLabels(labels)
	if s.UID != "" {
		owner := metav1.NewControllerRef(s, v1beta1.SchemeGroupVersion.WithKind("NFSServer"))
		owner.BlockOwnerDeletion = new(false)
		o.SetOwnerReferences([]metav1.OwnerReference{*owner})
	}
	return render.Unstructured(o)
}
