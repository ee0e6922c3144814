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
func (p *plan) nodeRights() ([]object, error) {
	rights, err := deploy.Objects(deploy.NodeRBAC)
	if err != nil {
		return nil, err
	}
	var objects []object
	for _, o := range rights {
		if strings.HasSuffix(o.GetKind(), "Binding") {
			if err := p.bindHere(o); err != nil {
				return nil, err
			}
		}
		o.SetLabels(map[string]string{v1beta1.ComponentLabel: v1beta1.NodeComponent})
		objects = append(objects, o)
	}
	return append(objects, p.privilegedOnOpenShift(v1beta1.NodeName, v1beta1.NodeComponent)...), nil
}

// loopSetRights returns the account of pods that only allocate loop devices, and its rights.
func (p *plan) loopSetRights() ([]object, error) {
	objects, err := p.accountAndRights(deploy.LoopSets)
	return append(objects, p.privilegedOnOpenShift(loopSetsName, v1beta1.LoopSetsComponent)...), err
}

// accountAndRights returns all objects of a manifest except its workload.
func (p *plan) accountAndRights(file string) ([]object, error) {
	all, err := deploy.Objects(file)
	if err != nil {
		return nil, err
	}
	var objects []object
	for _, o := range all {
		switch {
		case o.GetKind() == "DaemonSet" || o.GetKind() == "Deployment":
			continue
		case strings.HasSuffix(o.GetKind(), "Binding"):
			if err := p.bindHere(o); err != nil {
				return nil, err
			}
		}
		objects = append(objects, o)
	}
	return objects, nil
}

// bindHere makes the accounts of a binding those of the namespace.
func (p *plan) bindHere(binding *unstructured.Unstructured) error {
	typed := &rbac.RoleBinding{} // a ClusterRoleBinding has the same fields
	if err := decode(binding, typed); err != nil {
		return err
	}
	subjects := make([]any, 0, len(typed.Subjects))
	for _, s := range typed.Subjects {
		subjects = append(subjects, map[string]any{"kind": s.Kind, "name": s.Name, "namespace": p.Namespace})
	}
	return unstructured.SetNestedSlice(binding.Object, subjects, "subjects")
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
