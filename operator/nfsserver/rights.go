package nfsserver

import (
	"context"
	"fmt"
	"slices"

	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/deploy"
	"github.com/holdfast-storage/holdfast/kube/apply"
	"github.com/holdfast-storage/holdfast/operator/render"
)

// rightsName is that of the roles of all servers, of their bindings, and of the account in each namespace that has servers.
// One name for all lets the controller change roles and accounts of this name alone.
const rightsName = "holdfast-nfs"

// securityContextConstraints are OpenShift's.
var securityContextConstraints = schema.GroupKind{Group: "security.openshift.io", Kind: "SecurityContextConstraints"}

// rightsOf are the roles of all servers and their bindings, for the servers that there are.
func rightsOf(servers []*v1.NFSServer, namespace string, openshift bool) ([]*unstructured.Unstructured, error) {
	clusterRole, err := manifest[rbac.ClusterRole](deploy.NFSRBAC, "ClusterRole")
	if err != nil {
		return nil, err
	}
	clusterBinding, err := manifest[rbac.ClusterRoleBinding](deploy.NFSRBAC, "ClusterRoleBinding")
	if err != nil {
		return nil, err
	}
	role, err := manifest[rbac.Role](deploy.NFSRBAC, "Role")
	if err != nil {
		return nil, err
	}
	binding, err := manifest[rbac.RoleBinding](deploy.NFSRBAC, "RoleBinding")
	if err != nil {
		return nil, err
	}
	var accounts []rbac.Subject
	leases := &role.Rules[len(role.Rules)-1].ResourceNames
	for _, s := range inOrder(servers) {
		if a := (rbac.Subject{Kind: rbac.ServiceAccountKind, Namespace: s.Namespace, Name: rightsName}); !slices.Contains(accounts, a) {
			accounts = append(accounts, a)
		}
		*leases = append(*leases, leasesOf(s)...)
	}
	clusterBinding.Subjects, binding.Subjects = accounts, accounts
	role.Namespace, binding.Namespace = namespace, namespace
	if openshift {
		clusterRole.Rules = append(clusterRole.Rules, rbac.PolicyRule{
			APIGroups: []string{securityContextConstraints.Group}, Resources: []string{"securitycontextconstraints"},
			ResourceNames: []string{"privileged"}, Verbs: []string{"use"},
		})
	}
	var finished []*unstructured.Unstructured
	for _, o := range []object{clusterRole, role, clusterBinding, binding} {
		u, err := shared(o)
		if err != nil {
			return nil, err
		}
		finished = append(finished, u)
	}
	return finished, nil
}

func inOrder(servers []*v1.NFSServer) []*v1.NFSServer {
	return slices.SortedFunc(slices.Values(servers), func(a, b *v1.NFSServer) int { return compare(keyOf(a).String(), keyOf(b).String()) })
}

// account is that of the servers of a namespace.
func account(namespace string) (*unstructured.Unstructured, error) {
	o, err := manifest[core.ServiceAccount](deploy.NFS, "ServiceAccount")
	if err != nil {
		return nil, err
	}
	o.Namespace = namespace
	return shared(o)
}

// shared has no label of an instance: it is pruned with no StorageCluster and with no server alone.
func shared(o object) (*unstructured.Unstructured, error) {
	o.SetLabels(map[string]string{
		nameLabel: holdfastName, partOfLabel: holdfastName, componentLabel: serverComponent, apply.ManagedByLabel: apply.FieldManager,
	})
	return render.Unstructured(o)
}

// seeToRights gives all servers their rights that are entitled to them, and one its account, which a cache may not have
// yet.
func (r *Controller) seeToRights(ctx context.Context, one *v1.NFSServer) (all []apply.Outcome) {
	r.rights.Lock()
	defer r.rights.Unlock()
	o, err := account(one.Namespace)
	if err != nil {
		return []apply.Outcome{{Failures: []apply.Failure{{Err: err}}}}
	}
	others, err := r.onlyEntitled(r.held(keyOf(one)))
	if err != nil {
		return []apply.Outcome{{Failures: []apply.Failure{{Err: err}}}}
	}
	r.given.Store(one.UID, true)
	return []apply.Outcome{
		r.Servers.Apply(ctx, []*unstructured.Unstructured{o}),
		r.applyRights(ctx, append(others, one)),
	}
}

func (r *Controller) applyRights(ctx context.Context, servers []*v1.NFSServer) apply.Outcome {
	limits := r.applyLimits(ctx, servers)
	if len(limits.Failures) > 0 {
		return limits
	}
	objects, err := rightsOf(servers, r.Namespace, r.Owned.Has(securityContextConstraints))
	if err != nil {
		return apply.Outcome{Failures: []apply.Failure{{Err: err}}}
	}
	return limits.And(r.Owned.Apply(ctx, objects))
}

// held are the servers but one that are not gone yet: while one is being deleted, its pod may still need its rights.
func (r *Controller) held(but types.NamespacedName) []*v1.NFSServer {
	return slices.DeleteFunc(slices.Clone(r.all()), func(s *v1.NFSServer) bool {
		return keyOf(s) == but || s.DeletionTimestamp != nil && !slices.Contains(r.written.Newest(s).Finalizers, v1.OperatorFinalizer)
	})
}

// accountAnnotation, on the template of a server's pod, is the UID of the account for which the pod was replaced. The token of
// a pod is that of the account that it began with: when this is deleted, and made again under the same name, the API server
// knows the pod no more. It serves its clients, and nothing else.
const accountAnnotation = v1.GroupName + "/account"

// renewed is the accountAnnotation that a server is to have: as it is, unless its pod is older than its account.
func (r *Controller) renewed(s *v1.NFSServer) string {
	now := ""
	if live := r.Servers.Get(refTo(s, "apps", "StatefulSet")); live != nil {
		now, _, _ = unstructured.NestedString(live.Object, "spec", "template", "metadata", "annotations", accountAnnotation)
	}
	account := r.Servers.Get(apply.Ref{
		GroupKind:      schema.GroupKind{Kind: rbac.ServiceAccountKind},
		NamespacedName: types.NamespacedName{Namespace: s.Namespace, Name: rightsName},
	})
	if account == nil {
		return now
	}
	since := account.GetCreationTimestamp()
	if slices.ContainsFunc(r.podsOf(s), func(p *core.Pod) bool { return p.CreationTimestamp.Before(&since) }) {
		return string(account.GetUID())
	}
	return now
}

// removeRights takes the rights from a server that is gone, or that goes, and removes what the last one leaves.
func (r *Controller) removeRights(ctx context.Context, gone types.NamespacedName, there bool) error {
	r.rights.Lock()
	defer r.rights.Unlock()
	but := types.NamespacedName{}
	if there {
		but = gone
	}
	servers, err := r.onlyEntitled(r.held(but))
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(servers, func(s *v1.NFSServer) bool { return s.Namespace == gone.Namespace }) {
		o, err := account(gone.Namespace)
		if err != nil {
			return err
		}
		if err := removeFrom(ctx, r.Servers, o); err != nil {
			return err
		}
	}
	if len(servers) > 0 {
		return r.applyRights(ctx, servers).Err()
	}
	objects, err := rightsOf(nil, r.Namespace, false)
	if err != nil {
		return err
	}
	limits, err := r.limits(nil)
	if err != nil {
		return err
	}
	objects = append(limits, objects...)
	slices.Reverse(objects)
	return removeFrom(ctx, r.Owned, objects...)
}

func removeFrom(ctx context.Context, set *apply.Set, objects ...*unstructured.Unstructured) error {
	for _, o := range objects {
		live := set.Get(apply.RefOf(o))
		if live == nil || live.GetDeletionTimestamp() != nil {
			continue
		}
		if err := set.Delete(ctx, live); err != nil {
			return fmt.Errorf("removing %s: %w", apply.RefOf(o), err)
		}
	}
	return nil
}

func refTo(s *v1.NFSServer, group, kind string) apply.Ref {
	return apply.Ref{
		GroupKind:      schema.GroupKind{Group: group, Kind: kind},
		NamespacedName: types.NamespacedName{Namespace: s.Namespace, Name: objectName(s)},
	}
}
