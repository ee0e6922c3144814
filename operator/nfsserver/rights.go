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

func rightsOf(servers []*v1beta1.NFSServer, namespace string, openshift bool) ([]*unstructured.Unstructured, error) {
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

func inOrder(servers []*v1beta1.NFSServer) []*v1beta1.NFSServer {
	return slices.SortedFunc(slices.Values(servers), func(a, b *v1beta1.NFSServer) int { return cmp.Compare(keyOf(a).String(), keyOf(b).String()) })
}

func account(namespace string) (*unstructured.Unstructured, error) {
	o := render.Manifest[core.ServiceAccount](deploy.NFS, rightsName)
	o.Namespace = namespace
	return shared(o)
}

// shared sets no instance label, so that pruning for one StorageCluster or one server leaves these objects alone.
func shared(o object) (*unstructured.Unstructured, error) {
	o.SetLabels(map[string]string{
		v1beta1.NameLabel: v1beta1.AppName, v1beta1.PartOfLabel: v1beta1.AppName, v1beta1.ComponentLabel: serverComponent, apply.ManagedByLabel: apply.FieldManager,
	})
	return render.Unstructured(o), nil
}

// accountPolicy limits the accounts of servers to their own objects.
const (
	accountPolicy   = "holdfast-nfs-account"
	policyKind      = "ValidatingAdmissionPolicy"
	serversVariable = "servers" // has their addresses
)

// limitsOf returns the policies that limit the rights of servers, and who mounts from them. addresses are those of the
// servers, by NAMESPACE/NAME.
func limitsOf(servers []*v1beta1.NFSServer, addresses map[string]string, spec *v1beta1.NFSSpec, namespace string) (finished []*unstructured.Unstructured, err error) {
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
		u, err := shared(o)
		if err != nil {
			return nil, err
		}
		finished = append(finished, u)
	}
	return finished, nil
}

// limits returns the policies for the servers; none if the API server has no such kind.
func (c *Controller) limits(servers []*v1beta1.NFSServer) ([]*unstructured.Unstructured, error) {
	if !render.HasPolicies(c.Owned.Has) {
		return nil, nil
	}
	addresses := map[string]string{}
	for _, s := range servers {
		addresses[keyOf(s).String()] = c.serviceAddress(s)
	}
	return limitsOf(servers, addresses, &c.cluster().Spec.NFS, c.Namespace)
}

// unlimited names the policies and bindings that are missing, or have other rules. What servers there are is not compared: it is
// written with the rights of each.
func (c *Controller) unlimited(spec *v1beta1.NFSSpec) (missing []string, err error) {
	rules, err := limitsOf(nil, nil, spec, c.Namespace)
	for _, wanted := range rules {
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
	return missing, err
}

// grant gives all entitled servers their rights, and one its account, which may not be cached yet. All servers share one
// set of these objects, so the lock is held while they are observed, planned and applied.
func (c *Controller) grant(ctx context.Context, one *v1beta1.NFSServer) apply.Outcome {
	c.rights.Lock()
	defer c.rights.Unlock()
	o, err := account(one.Namespace)
	if err != nil {
		return failed(err)
	}
	others := c.entitledBut(keyOf(one))
	c.given.Store(one.UID, true)
	return c.Servers.Apply(ctx, []*unstructured.Unstructured{o}).And(c.applyRights(ctx, append(others, one)))
}

func failed(err error) apply.Outcome { return apply.Outcome{Failures: []apply.Failure{{Err: err}}} }

// applyRights applies the limits before the rights, and no rights if that fails.
func (c *Controller) applyRights(ctx context.Context, servers []*v1beta1.NFSServer) apply.Outcome {
	limits, err := c.limits(servers)
	if err != nil {
		return failed(err)
	}
	out := c.Owned.Apply(ctx, limits)
	if len(out.Failures) > 0 {
		return out
	}
	objects, err := rightsOf(servers, c.Namespace, c.Owned.Has(securityContextConstraints))
	if err != nil {
		return failed(err)
	}
	return out.And(c.Owned.Apply(ctx, objects))
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
		o, err := account(gone.Namespace)
		if err != nil {
			return err
		}
		if err := removeFrom(ctx, c.Servers, o); err != nil {
			return err
		}
	}
	if len(servers) > 0 {
		return c.applyRights(ctx, servers).Err()
	}
	objects, err := rightsOf(nil, c.Namespace, false)
	if err != nil {
		return err
	}
	limits, err := c.limits(nil)
	if err != nil {
		return err
	}
	objects = append(limits, objects...)
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
