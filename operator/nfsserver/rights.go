package nfsserver

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/deploy"
	"github.com/holdfast-storage/holdfast/kube/apply"
	"github.com/holdfast-storage/holdfast/operator/render"
)

// rightsName is the name of the roles of all servers, of their bindings, and of the account in each namespace with
// servers. With one name, the controller needs the right to change only roles and accounts of that name.
const rightsName = "holdfast-nfs"

// securityContextConstraints are OpenShift's.
var securityContextConstraints = schema.GroupKind{Group: "security.openshift.io", Kind: "SecurityContextConstraints"}

// A server has rights that the author of the NFSServer may lack: its account writes PersistentVolumes, and its pod mounts
// file systems. So the administrator lists the namespaces that may have servers; elsewhere nothing is created.
//
// A server that has rights already keeps them and its volumes, but gets no new volumes: it is from a release that did not
// check the list, or its namespace was removed from it. The Role in the namespace of Holdfast records its rights; only
// accounts that are trusted with these rights anyway can write that Role.

// entitled says whether a server gets its rights and objects.
func (c *Controller) entitled(s *v1beta1.NFSServer, cluster *v1beta1.StorageCluster) bool {
	return cluster.AllowsNFSServers(s.Namespace, c.Namespace) || c.hasRights(s)
}

func (c *Controller) hasRights(s *v1beta1.NFSServer) bool {
	if _, given := c.given.Load(s.UID); given {
		return true
	}
	role := apply.Typed[rbac.Role](c.Owned.Get(apply.RefTo(rbac.GroupName, "Role", c.Namespace, rightsName)))
	own := leasesOf(s)[0]
	return role != nil && slices.ContainsFunc(role.Rules, func(rule rbac.PolicyRule) bool { return slices.Contains(rule.ResourceNames, own) })
}

func rightsOf(servers []*v1beta1.NFSServer, namespace string, openshift bool) []*unstructured.Unstructured {
	clusterRole, clusterBinding, role, binding := &rbac.ClusterRole{}, &rbac.ClusterRoleBinding{}, &rbac.Role{}, &rbac.RoleBinding{}
	render.Read(deploy.NFSRBAC, rightsName, clusterRole, clusterBinding, role, binding)
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
	return []*unstructured.Unstructured{shared(clusterRole), shared(role), shared(clusterBinding), shared(binding)}
}

func inOrder(servers []*v1beta1.NFSServer) []*v1beta1.NFSServer {
	return slices.SortedFunc(slices.Values(servers), func(a, b *v1beta1.NFSServer) int { return cmp.Compare(keyOf(a).String(), keyOf(b).String()) })
}

func account(namespace string) *unstructured.Unstructured {
	o := render.Manifest[core.ServiceAccount](deploy.NFS, rightsName)
	o.Namespace = namespace
	return shared(o)
}

// shared sets no instance label, so that pruning for one StorageCluster or one server leaves these objects alone.
func shared(o object) *unstructured.Unstructured {
	o.SetLabels(map[string]string{
		v1beta1.NameLabel: v1beta1.AppName, v1beta1.PartOfLabel: v1beta1.AppName, v1beta1.ComponentLabel: serverComponent, apply.ManagedByLabel: apply.FieldManager,
	})
	return render.Unstructured(o)
}

// accountPolicy limits the accounts of servers to their own objects.
const (
	accountPolicy   = "holdfast-nfs-account"
	policyKind      = "ValidatingAdmissionPolicy"
	serversVariable = "servers" // has their addresses
)

// limitsOf returns the policies that limit the rights of servers, and who mounts from them. addresses are those of the
// servers, by NAMESPACE/NAME.
func limitsOf(servers []*v1beta1.NFSServer, addresses map[string]string, spec *v1beta1.NFSSpec, namespace string) (finished []*unstructured.Unstructured) {
	var known []string
	for _, s := range inOrder(servers) {
		key := keyOf(s).String()
		if _, err := netip.ParseAddr(addresses[key]); err == nil { // headless, or not there yet
			known = append(known, strconv.Quote(key)+": "+strconv.Quote(addresses[key]))
		}
	}
	all := render.Policies(deploy.NFSAccountPolicies, namespace)
	render.SetVariable(all, accountPolicy, serversVariable, "{"+strings.Join(known, ", ")+"}")
	render.SetVariable(all, render.MountsPolicy, "allowed", render.CELList(append([]string{namespace}, spec.InlineVolumeNamespaces...)))
	for _, o := range all {
		finished = append(finished, shared(o))
	}
	return finished
}

// limits returns the policies for the servers; none if the API server has no such kind.
func (c *Controller) limits(servers []*v1beta1.NFSServer) []*unstructured.Unstructured {
	if !render.HasPolicies(c.Owned.Has) {
		return nil
	}
	addresses := map[string]string{}
	for _, s := range servers {
		addresses[keyOf(s).String()] = c.serviceAddress(s)
	}
	return limitsOf(servers, addresses, &c.cluster().Spec.NFS, c.Namespace)
}

// unlimited names the policies and bindings that are missing, or have other rules. What servers there are is not compared: it is
// written with the rights of each.
func (c *Controller) unlimited(spec *v1beta1.NFSSpec) (missing []string) {
	for _, wanted := range limitsOf(nil, nil, spec, c.Namespace) {
		live := c.Owned.Get(apply.RefOf(wanted))
		if live != nil && live.GetDeletionTimestamp() == nil {
			live = live.DeepCopy()
			if wanted.GetKind() == policyKind && wanted.GetName() == accountPolicy {
				render.ReplaceVariable(live, serversVariable, "{}") // one without it has other rules
			}
			if render.SameRules(live, wanted) {
				continue
			}
		}
		missing = append(missing, apply.RefOf(wanted).String())
	}
	return missing
}

// grant gives all entitled servers their rights, and one its account, which may not be cached yet. All servers share one
// set of these objects, so the lock is held while they are observed, planned and applied.
func (c *Controller) grant(ctx context.Context, one *v1beta1.NFSServer) apply.Outcome {
	c.rights.Lock()
	defer c.rights.Unlock()
	others := c.entitledBut(keyOf(one))
	c.given.Store(one.UID, true)
	return c.Servers.Apply(ctx, []*unstructured.Unstructured{account(one.Namespace)}).And(c.applyRights(ctx, append(others, one)))
}

// applyRights applies the limits before the rights, and no rights if that fails.
func (c *Controller) applyRights(ctx context.Context, servers []*v1beta1.NFSServer) apply.Outcome {
	out := c.Owned.Apply(ctx, c.limits(servers))
	if len(out.Failures) > 0 {
		return out
	}
	return out.And(c.Owned.Apply(ctx, rightsOf(servers, c.Namespace, c.Owned.Has(securityContextConstraints))))
}

// entitledBut returns the existing servers, except one, that have rights or get them. A server that is being deleted may still
// need its rights.
func (c *Controller) entitledBut(one types.NamespacedName) []*v1beta1.NFSServer {
	cluster := c.cluster()
	return slices.DeleteFunc(c.all(), func(s *v1beta1.NFSServer) bool {
		leaves := s.DeletionTimestamp != nil && !slices.Contains(c.written.Newest(s).Finalizers, v1beta1.OperatorFinalizer)
		return keyOf(s) == one || leaves || !c.entitled(s, cluster)
	})
}

// revoke revokes the rights of a server that is deleted or being deleted, and removes the shared objects after the last.
func (c *Controller) revoke(ctx context.Context, gone types.NamespacedName, there bool) error {
	c.rights.Lock()
	defer c.rights.Unlock()
	but := types.NamespacedName{}
	if there {
		but = gone
	}
	servers := c.entitledBut(but)
	if !slices.ContainsFunc(servers, func(s *v1beta1.NFSServer) bool { return s.Namespace == gone.Namespace }) {
		if err := removeFrom(ctx, c.Servers, account(gone.Namespace)); err != nil {
			return err
		}
	}
	if len(servers) > 0 {
		return c.applyRights(ctx, servers).Err()
	}
	objects := append(c.limits(nil), rightsOf(nil, c.Namespace, false)...)
	slices.Reverse(objects)
	return removeFrom(ctx, c.Owned, objects...)
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

// accountAnnotation, on the template of a server's pod, is the UID of the account for which the pod was replaced. The
// token of a pod is bound to the account that it started with: if that is deleted and recreated with the same name, the
// API server refuses the token. The pod then still serves NFS, but can read and write no objects.
const accountAnnotation = v1beta1.GroupName + "/account"

// renewed returns the desired accountAnnotation: it changes if the pod is older than its account.
func (r *round) renewed() string {
	if r.account != nil {
		since := r.account.GetCreationTimestamp()
		if slices.ContainsFunc(r.pods, func(p *core.Pod) bool { return p.CreationTimestamp.Before(&since) }) {
			return string(r.account.GetUID())
		}
	}
	if r.set == nil {
		return ""
	}
	return r.set.Spec.Template.Annotations[accountAnnotation]
}
