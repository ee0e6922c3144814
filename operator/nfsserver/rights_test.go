package nfsserver

import (
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
)

func named(namespace, name string) *v1.NFSServer {
	s := server(nil)
	s.Namespace, s.Name = namespace, name
	return s
}

func TestEveryServerHasTheRightsAndOnlyItsOwnLeases(t *testing.T) {
	objects, err := rightsOf([]*v1.NFSServer{named("b", "two"), named("a", "three"), named("a", "one")}, "ours", false)
	if err != nil {
		t.Fatal(err)
	}
	binding, role := as[rbac.ClusterRoleBinding](t, objects, "ClusterRoleBinding"), as[rbac.Role](t, objects, "Role")
	want := []rbac.Subject{
		{Kind: "ServiceAccount", Namespace: "a", Name: rightsName},
		{Kind: "ServiceAccount", Namespace: "b", Name: rightsName},
	}
	if !slices.Equal(binding.Subjects, want) || !slices.Equal(as[rbac.RoleBinding](t, objects, "RoleBinding").Subjects, want) {
		t.Errorf("the accounts are %v", binding.Subjects)
	}
	leases := []string{"holdfast-node-a.one.nfs.holdfast.dev", "holdfast-nfs-provisioner-a.one", "holdfast-node-a.three.nfs.holdfast.dev", "holdfast-nfs-provisioner-a.three", "holdfast-node-b.two.nfs.holdfast.dev", "holdfast-nfs-provisioner-b.two"}
	if role.Namespace != "ours" || !slices.Equal(role.Rules[1].ResourceNames, leases) || !slices.Equal(role.Rules[0].Verbs, []string{"create"}) {
		t.Errorf("the Role of %s says %v", role.Namespace, role.Rules)
	}
	for _, o := range objects {
		if o.GetName() != rightsName || o.GetLabels()["app.kubernetes.io/instance"] != "" || o.GetLabels()[Label] != "" || len(o.GetOwnerReferences()) != 0 {
			t.Errorf("%s %s has the labels %v and owners %v", o.GetKind(), o.GetName(), o.GetLabels(), o.GetOwnerReferences())
		}
	}
}

func TestOnOpenShiftThePodsAreLetIn(t *testing.T) {
	for _, openshift := range []bool{false, true} {
		objects, err := rightsOf(nil, "ours", openshift)
		if err != nil {
			t.Fatal(err)
		}
		use := slices.ContainsFunc(as[rbac.ClusterRole](t, objects, "ClusterRole").Rules, func(r rbac.PolicyRule) bool { return slices.Contains(r.Verbs, "use") })
		if use != openshift {
			t.Errorf("OpenShift %v: the right to use its constraints is given: %v", openshift, use)
		}
	}
}

// controllerRights are the rules that the controller has everywhere, and in its own namespace.
func controllerRights(t *testing.T) (everywhere, own []rbac.PolicyRule) {
	t.Helper()
	for _, o := range installedRights(t) {
		role := &rbac.ClusterRole{}
		if !strings.HasSuffix(o.GetKind(), "Role") {
			continue
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, role); err != nil {
			t.Fatal(err)
		}
		if o.GetKind() == "ClusterRole" {
			everywhere = role.Rules
		} else {
			own = role.Rules
		}
	}
	return everywhere, own
}

func may(rules []rbac.PolicyRule, verb, group, resource, name string) bool {
	return slices.ContainsFunc(rules, func(r rbac.PolicyRule) bool {
		return slices.Contains(r.Verbs, verb) && slices.Contains(r.APIGroups, group) && slices.Contains(r.Resources, resource) &&
			(len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, name))
	})
}

// Kubernetes lets nobody give what he does not have.
func TestTheControllerHasAllThatItGivesToServers(t *testing.T) {
	everywhere, own := controllerRights(t)
	objects, err := rightsOf([]*v1.NFSServer{named("a", "one")}, "ours", true)
	if err != nil {
		t.Fatal(err)
	}
	given := 0
	for _, kind := range []string{"ClusterRole", "Role"} {
		role, has := as[rbac.ClusterRole](t, objects, "ClusterRole").Rules, everywhere
		if kind == "Role" {
			role, has = as[rbac.Role](t, objects, "Role").Rules, slices.Concat(everywhere, own)
		}
		for _, rule := range role {
			for _, verb := range rule.Verbs {
				for _, resource := range rule.Resources {
					for _, name := range append(slices.Clone(rule.ResourceNames), "") {
						if given++; name == "" && len(rule.ResourceNames) > 0 {
							continue
						}
						if !may(has, verb, rule.APIGroups[0], resource, name) {
							t.Errorf("%s: it may not %s %s/%s %s itself", kind, verb, rule.APIGroups[0], resource, name)
						}
					}
				}
			}
		}
	}
	if given < 40 {
		t.Errorf("only %d rights were looked at", given)
	}
}

func TestTheControllerMayMakeAllThatIsMadeForServers(t *testing.T) {
	everywhere, own := controllerRights(t)
	shared, err := rightsOf(nil, "ours", false)
	if err != nil {
		t.Fatal(err)
	}
	accounts, err := account("team")
	if err != nil {
		t.Fatal(err)
	}
	in := asked(nil)
	in.closing = closing{clients: []string{"10.0.0.7"}, policies: []schema.GroupKind{networkPolicy, ciliumPolicy}}
	policies, err := network(in)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range slices.Concat(asked(nil).objects(t), policies, shared, []*unstructured.Unstructured{accounts}) {
		rules := everywhere
		if strings.HasPrefix(o.GetKind(), "Role") {
			rules = slices.Concat(everywhere, own)
		}
		plural, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
		for _, verb := range []string{"get", "list", "watch", "create", "patch", "delete"} {
			if !may(rules, verb, plural.Group, plural.Resource, o.GetName()) {
				t.Errorf("it may not %s %s %s", verb, o.GetKind(), o.GetName())
			}
		}
	}
	for _, right := range []struct{ verb, group, resource string }{
		{"get", "", "persistentvolumeclaims"},
		{"create", "", "persistentvolumeclaims"},
		{"update", "", "persistentvolumeclaims"},
		{"delete", "", "persistentvolumeclaims"},
		{"watch", "", "pods"},
		{"list", "", "pods"},
		{"watch", "", "namespaces"},
		{"delete", "holdfast.dev", "storagenodes"},
		{"patch", "holdfast.dev", "nfsservers"},
		{"update", "holdfast.dev", "nfsservers/status"},
	} {
		if !may(everywhere, right.verb, right.group, right.resource, "") {
			t.Errorf("it may not %s %s", right.verb, right.resource)
		}
	}
	if !may(own, "delete", "coordination.k8s.io", "leases", "") {
		t.Error("it may not delete the Leases of a server that is gone")
	}
}

// The token of a pod is that of the account that there was when it began.
func TestAServerWhoseAccountIsMadeAnewGetsANewPod(t *testing.T) {
	r := newRig(t)
	r.create("data", nil)
	r.serve("data")
	before := r.pod("data")
	if renewed := r.statefulSet("data").Spec.Template.Annotations[accountAnnotation]; renewed != "" {
		t.Errorf("the first pod is said to be for account %s", renewed)
	}
	accounts := r.theirs.CoreV1().ServiceAccounts(r.namespace)
	var now *core.ServiceAccount
	r.until("an account that is younger than the pod", func() bool { // times are in seconds
		a, err := accounts.Get(t.Context(), rightsName, metav1.GetOptions{})
		if err == nil && before.CreationTimestamp.Before(&a.CreationTimestamp) {
			now = a
			return true
		}
		if err == nil {
			err = accounts.Delete(t.Context(), rightsName, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &a.UID}})
		}
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		return false
	})
	r.until("another pod", func() bool { p := r.pod("data"); return p != nil && p.UID != before.UID })
	r.serve("data")
	r.change("data", func(s *v1.NFSServerSpec) { s.MaxExports = 9 })
	r.argument("data", "--max-exports=9")
	if renewed := r.statefulSet("data").Spec.Template.Annotations[accountAnnotation]; renewed != string(now.UID) {
		t.Errorf("the pod is for account %q, want %s", renewed, now.UID)
	}
}
