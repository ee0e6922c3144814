package render

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/deploy"
)

var (
	admissionPolicyKind  = schema.GroupKind{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicy"}
	admissionBindingKind = schema.GroupKind{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicyBinding"}
)

// LoopSetsPolicy is the policy without which no loop devices are allocated, and its binding.
const LoopSetsPolicy = "holdfast-loop-sets"

// MountsPolicy is the policy without which pods mount the volumes of NFS servers by themselves, and its binding.
const MountsPolicy = "holdfast-nfs-mounts"

// fencingPolicy limits which pods and VolumeAttachments the controller may delete.
const fencingPolicy = "holdfast-fencing"

// Limits are the policies, each with a binding of its name, that limit the accounts of a StorageCluster to what is theirs, loop
// devices to the pods that may have them, and deletion to what has no data.
func Limits(spec *v1beta1.StorageClusterSpec) []string {
	all := []string{
		"holdfast-applications", "holdfast-cascade", "holdfast-claims", "holdfast-deletion", fencingPolicy, "holdfast-node-account", "holdfast-node-clients", "holdfast-node-requests",
		"holdfast-population", "holdfast-snapshot-controller", "holdfast-uninstall", LoopSetsPolicy,
	}
	if len(cephSites(spec)) > 0 {
		all = append(all, cephPolicy)
	}
	return all
}

// ServerLimits are those for the accounts of NFS servers and for pods that mount NFS, which exist as long as there are servers.
func ServerLimits() []string {
	return []string{"holdfast-nfs-account", "holdfast-nfs-claims", "holdfast-nfs-classes", MountsPolicy}
}

// LimitsOf returns the policies of Limits and their bindings for a StorageCluster.
func LimitsOf(in Input) (limits []*unstructured.Unstructured) {
	p := &plan{Input: in, spec: in.Cluster.Spec}
	names := Limits(&p.spec)
	for _, o := range slices.Concat(p.policies(), p.cephPolicies()) {
		if slices.Contains(names, o.GetName()) {
			limits = append(limits, Unstructured(o))
		}
	}
	return limits
}

// WithoutPolicies says what is possible for anyone if the API server has no policies.
const WithoutPolicies = "ValidatingAdmissionPolicy is switched off in the API server (see its flags --runtime-config and --disable-admission-plugins): with the token of one node pod the Volumes of " +
	"every node can be written, with that of an NFS server every PersistentVolume and claim, each pod can mount what NFS servers export, and no loop devices are allocated, which NFS servers with the engine Image need. " +
	"Switch it on; until then give NFS servers the engine Directory, and allow no access to the node pods"

// policies make the API server enforce what neither schemas nor RBAC can. An older one has no such kind.
func (p *plan) policies() []object {
	if !HasPolicies(p.Has) {
		return nil
	}
	var all []*unstructured.Unstructured
	for _, file := range []string{deploy.Policies, deploy.AccountPolicies, deploy.LoopSetPolicies} {
		all = append(all, Policies(file, p.Namespace)...)
	}
	setParameters(all)
	SetVariable(all, LoopSetsPolicy, "allowed", p.serverNamespaces(p.Served...))
	SetVariable(all, fencingPolicy, "pods", strconv.Quote(string(p.spec.Fencing.Pods)))
	return objectsOf(all)
}

// HasPolicies says whether the API server knows policies, as Kubernetes has since 1.30.
func HasPolicies(has func(schema.GroupKind) bool) bool {
	return has(admissionPolicyKind) && has(admissionBindingKind)
}

// Policies returns those of a file of package deploy, for a Holdfast in a namespace.
func Policies(file, namespace string) []*unstructured.Unstructured {
	all := deploy.Objects(file)
	for _, o := range all {
		inNamespace(o.Object, namespace)
	}
	return all
}

// SetVariable writes into a policy what the StorageCluster says. A policy with a parameter would refuse the requests of all, also of
// those whom its conditions spare, while there is no parameter, or the API server has just started and does not know its kind.
func SetVariable(objects []*unstructured.Unstructured, name, variable, expression string) {
	for _, o := range objects {
		if o.GetName() == name && o.GetKind() == admissionPolicyKind.Kind && ReplaceVariable(o, variable, expression) {
			return
		}
	}
	panic(fmt.Sprintf("there is no policy %s with the variable %s", name, variable)) // they are compiled in
}

// ReplaceVariable replaces the expression of a variable of a policy, and returns whether it has one of that name.
func ReplaceVariable(policy *unstructured.Unstructured, name, expression string) bool {
	variables, _, _ := unstructured.NestedSlice(policy.Object, "spec", "variables")
	for _, v := range variables {
		if variable, is := v.(map[string]any); is && variable["name"] == name {
			variable["expression"] = expression
			return unstructured.SetNestedSlice(policy.Object, variables, "spec", "variables") == nil
		}
	}
	return false
}

// inNamespace replaces the namespace of Holdfast in the expressions of the manifests.
func inNamespace(value any, namespace string) any {
	switch value := value.(type) {
	case string:
		return strings.ReplaceAll(value, deploy.Namespace, namespace)
	case map[string]any:
		for key, inner := range value {
			value[key] = inNamespace(inner, namespace)
		}
	case []any:
		for i, inner := range value {
			value[i] = inNamespace(inner, namespace)
		}
	}
	return value
}
