package render

import (
	"strings"

	rbac "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/deploy"
)

// securityContextConstraints are OpenShift's.
var securityContextConstraints = schema.GroupKind{Group: "security.openshift.io", Kind: "SecurityContextConstraints"}

// nodeRights returns the account of the nodes and its rights.
func (p *plan) nodeRights() []object {
	objects := p.accountAndRights(deploy.NodeRBAC)
	for _, o := range objects {
		o.SetLabels(map[string]string{v1beta1.ComponentLabel: v1beta1.NodeComponent})
	}
	return append(objects, p.privilegedOnOpenShift(v1beta1.NodeName, v1beta1.NodeComponent)...)
}

// accountAndRights returns all objects of a manifest except its workload.
func (p *plan) accountAndRights(file string) (objects []object) {
	for _, o := range deploy.Objects(file) {
		switch {
		case o.GetKind() == "DaemonSet" || o.GetKind() == "Deployment":
			continue
		case strings.HasSuffix(o.GetKind(), "Binding"):
			p.bindHere(o)
		}
		objects = append(objects, o)
	}
	return objects
}

// bindHere makes the accounts of a binding those of the namespace.
func (p *plan) bindHere(binding *unstructured.Unstructured) {
	for _, subject := range binding.Object["subjects"].([]any) {
		subject.(map[string]any)["namespace"] = p.Namespace
	}
}

// privilegedOnOpenShift allows the pods of an account on OpenShift. Its own Role does not depend on roles of the cluster.
func (p *plan) privilegedOnOpenShift(account, component string) []object {
	if !isDistro(p.spec.Distribution, openshift) && !isDistro(p.spec.Distribution, "okd") && !p.Has(securityContextConstraints) {
		return nil
	}
	meta := metav1.ObjectMeta{Name: account + "-scc", Labels: map[string]string{v1beta1.ComponentLabel: component}}
	return []object{
		&rbac.Role{ObjectMeta: meta, Rules: []rbac.PolicyRule{{
			APIGroups: []string{securityContextConstraints.Group}, Resources: []string{"securitycontextconstraints"},
			ResourceNames: []string{"privileged"}, Verbs: []string{"use"},
		}}},
		&rbac.RoleBinding{
			ObjectMeta: meta,
			RoleRef:    rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "Role", Name: meta.Name},
			Subjects:   []rbac.Subject{{Kind: rbac.ServiceAccountKind, Name: account, Namespace: p.Namespace}},
		},
	}
}
