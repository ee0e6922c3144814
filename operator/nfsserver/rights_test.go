package nfsserver

import (
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	listers "github.com/holdfast-storage/holdfast/api/client/listers/api/v1beta1"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func named(namespace, name string) *v1beta1.NFSServer {
	s := server(nil)
	s.Namespace, s.Name = namespace, name
	return s
}

func TestRights_ServerHasRightsToItsOwnLeasesOnly(t *testing.T) {
	objects := check.Got(rightsOf([]*v1beta1.NFSServer{named("b", "two"), named("a", "three"), named("a", "one")}, "ours", false))(t)
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

func TestRights_PodsAreAdmittedOnOpenShift(t *testing.T) {
	for _, openshift := range []bool{false, true} {
		objects := check.Got(rightsOf(nil, "ours", openshift))(t)
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
		check.OK(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, role))
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

// Kubernetes lets no account grant rights that it does not have.
func TestRights_ControllerHasAllThatItGrantsToServers(t *testing.T) {
	everywhere, own := controllerRights(t)
	objects := check.Got(rightsOf([]*v1beta1.NFSServer{named("a", "one")}, "ours", true))(t)
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

func TestRights_ControllerMayCreateAllObjectsOfServers(t *testing.T) {
	everywhere, own := controllerRights(t)
	shared := check.Got(rightsOf(nil, "ours", false))(t)
	accounts := check.Got(account("team"))(t)
	in := asked(nil)
	in.closing = closing{clients: []string{"10.0.0.7"}, policies: []schema.GroupKind{networkPolicy, ciliumPolicy}}
	policies := check.Got(network(in))(t)
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
func TestRights_ServerWithARecreatedAccountGetsANewPod(t *testing.T) {
	r := newRig(t)
	r.create("data", nil)
	r.serve("data")
	before := r.pod("data")
	if renewed := r.statefulSet("data").Spec.Template.Annotations[accountAnnotation]; renewed != "" {
		t.Errorf("the first pod is said to be for account %s", renewed)
	}
	accounts := r.theirs.CoreV1().ServiceAccounts(r.namespace)
	var now *core.ServiceAccount
	wait.Until(r, "an account that is younger than the pod", func() bool { // times are in seconds
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
	wait.Until(r, "another pod", func() bool { p := r.pod("data"); return p != nil && p.UID != before.UID })
	r.serve("data")
	r.change("data", func(s *v1beta1.NFSServerSpec) { s.MaxExports = 9 })
	r.argument("data", "--max-exports=9")
	if renewed := r.statefulSet("data").Spec.Template.Annotations[accountAnnotation]; renewed != string(now.UID) {
		t.Errorf("the pod is for account %q, want %s", renewed, now.UID)
	}
}

// allowing is a StorageCluster that allows servers in namespaces.
func allowing(namespaces ...string) *v1beta1.StorageCluster {
	return &v1beta1.StorageCluster{ObjectMeta: metav1.ObjectMeta{Name: "holdfast"}, Spec: v1beta1.StorageClusterSpec{NFS: v1beta1.NFSSpec{Namespaces: namespaces}}}
}

func TestRights_ServerThatIsNotAllowedNamesTheRemedy(t *testing.T) {
	const command = `kubectl patch storagecluster holdfast --type=merge --patch='{"spec":{"nfs":{"namespaces":["other","team"]}}}'`
	fresh := working(func(o *round) {
		noPod(o)
		o.set, o.claim, o.storage, o.cluster, o.entitled = nil, nil, nil, allowing("other"), false
	}).status()
	if fresh.Phase != v1beta1.NFSPending {
		t.Errorf("it is %s", fresh.Phase)
	}
	for _, kind := range []string{v1beta1.AvailableCondition, v1beta1.ProgressingCondition, v1beta1.DegradedCondition} {
		c := find(&fresh, kind)
		if c.Reason != reasonNotAllowed || !strings.Contains(c.Message, command) || !strings.Contains(c.Message, "no objects are created") {
			t.Errorf("%s: %s, %q", kind, c.Reason, c.Message)
		}
	}
	before := working(func(o *round) { o.cluster = allowing("other") })
	served := before.status()
	available, degraded := find(&served, v1beta1.AvailableCondition), find(&served, v1beta1.DegradedCondition)
	if served.Phase != v1beta1.NFSDegraded || available.Status != metav1.ConditionTrue || degraded.Reason != reasonNotAllowed || !strings.Contains(degraded.Message, command) {
		t.Errorf("one from before is %s, %+v, %+v", served.Phase, available, degraded)
	}
	if events := transitions(&v1beta1.NFSServerStatus{Conditions: working(nil).status().Conditions}, &served); len(events) != 1 ||
		events[0].kind != core.EventTypeWarning || events[0].reason != reasonNotAllowed || !strings.Contains(events[0].message, command) {
		t.Errorf("the events are %v", events)
	}
	if reason, _ := before.fault(); reason != "" {
		t.Errorf("an upgrade would wait for it: %s", reason)
	}
}

// made are the objects of the rig's namespace that a server has, its account included.
func (r *rig) gotten() (all []string) {
	r.Helper()
	one := func(kind string, err error) {
		if err == nil {
			all = append(all, kind)
		} else if !apierrors.IsNotFound(err) {
			r.Fatal(err)
		}
	}
	_, err := r.theirs.CoreV1().ServiceAccounts(r.namespace).Get(background, rightsName, metav1.GetOptions{})
	one("account", err)
	_, err = r.theirs.CoreV1().Services(r.namespace).Get(background, "nfs-data", metav1.GetOptions{})
	one("Service", err)
	_, err = r.theirs.CoreV1().PersistentVolumeClaims(r.namespace).Get(background, "nfs-data", metav1.GetOptions{})
	one("claim", err)
	_, err = r.theirs.AppsV1().StatefulSets(r.namespace).Get(background, "nfs-data", metav1.GetOptions{})
	one("StatefulSet", err)
	if binding, err := r.theirs.RbacV1().ClusterRoleBindings().Get(background, rightsName, metav1.GetOptions{}); err == nil &&
		slices.ContainsFunc(binding.Subjects, func(s rbac.Subject) bool { return s.Namespace == r.namespace }) {
		all = append(all, "ClusterRoleBinding")
	}
	if role, err := r.theirs.RbacV1().Roles(realapi.Namespace).Get(background, rightsName, metav1.GetOptions{}); err == nil &&
		slices.ContainsFunc(role.Rules, func(rule rbac.PolicyRule) bool {
			return slices.ContainsFunc(rule.ResourceNames, func(name string) bool { return strings.Contains(name, r.namespace) })
		}) {
		all = append(all, "Role")
	}
	return all
}

func TestRights_ServerInAnotherNamespaceGrantsItsAuthorNothing(t *testing.T) {
	r := newRig(t)
	r.changeCluster(func(s *v1beta1.StorageClusterSpec) { s.NFS.Namespaces = []string{"another"} })
	r.create("data", nil)
	message := r.condition("data", v1beta1.AvailableCondition, reasonNotAllowed)
	want := `kubectl patch storagecluster ` + clusterName + ` --type=merge --patch='{"spec":{"nfs":{"namespaces":["another","` + r.namespace + `"]}}}'`
	if !strings.Contains(message, want) {
		t.Errorf("it says %q", message)
	}
	wait.Until(r, "the event", func() bool { return len(r.events.with("Warning "+reasonNotAllowed)) == 1 })
	// What looks like a server of before is none: its author may write all of it.
	r.forge("data")
	r.change("data", func(s *v1beta1.NFSServerSpec) { s.MaxExports = 7 })
	r.condition("data", v1beta1.AvailableCondition, reasonNotAllowed)
	if made := r.gotten(); !slices.Equal(made, []string{"StatefulSet"}) {
		t.Errorf("it got %v", made)
	}
	check.OK(t, r.theirs.AppsV1().StatefulSets(r.namespace).Delete(t.Context(), "nfs-data", metav1.DeleteOptions{}))
	// It goes as it came, and without the StorageCluster too.
	check.OK(t, r.ours.HoldfastV1beta1().StorageClusters().Delete(t.Context(), clusterName, metav1.DeleteOptions{}))
	r.create("later", nil)
	r.condition("later", v1beta1.AvailableCondition, reasonNotAllowed, "make a StorageCluster") // whose end may be seen after the new server
	r.delete("later")
	r.gone("later")
	r.makeCluster(r.namespace) // and what was refused is made as soon as it is allowed
	r.serve("data")
	if made := r.gotten(); len(made) != 6 {
		t.Errorf("there is only %v", made)
	}
}

// forge makes the StatefulSet of a server as its author can make it, down to label and owner.
func (r *rig) forge(name string) {
	r.Helper()
	in := asked(func(s *v1beta1.NFSServerSpec) { s.Engine = v1beta1.EngineDirectory })
	in.server = r.server(name)
	objects := check.Got(workload(in))(r)
	set := as[apps.StatefulSet](r.T, objects, "StatefulSet")
	check.Got(r.theirs.AppsV1().StatefulSets(r.namespace).Create(r.Context(), set, metav1.CreateOptions{}))(r)
}

func TestRights_ServerContinuesWhenItsNamespaceLeavesTheList(t *testing.T) {
	r := newRig(t)
	s := r.create("data", nil)
	r.serve("data")
	r.made(r.volume(s, "a"))
	r.changeCluster(func(s *v1beta1.StorageClusterSpec) { s.NFS.Namespaces = nil })
	r.condition("data", v1beta1.DegradedCondition, reasonNotAllowed, r.namespace)
	r.stop()
	r.start() // as another release, which knows nothing of what this one has done
	// It is kept as any other: what is changed by hand is put right, and a change of its spec reaches it.
	edit := []byte(`{"subjects":[]}`)
	check.Got(r.theirs.RbacV1().ClusterRoleBindings().Patch(t.Context(), rightsName, types.MergePatchType, edit, metav1.PatchOptions{}))(t)
	wait.Until(r, "its rights", func() bool { return len(r.gotten()) == 6 })
	r.change("data", func(s *v1beta1.NFSServerSpec) { s.MaxExports = 9 })
	r.argument("data", "--max-exports=9")
	r.ready("data") // the pod that replaces the one of before
	r.condition("data", v1beta1.AvailableCondition, reasonServing)
	// Another one beside it is new, and gets nothing, nor does the first when it is recreated.
	r.create("second", nil)
	r.condition("second", v1beta1.AvailableCondition, reasonNotAllowed)
	if r.statefulSet("second") != nil {
		t.Error("a new server was made where none is allowed")
	}
	r.giveUpVolumes(s)
	r.delete("data")
	r.gone("data")
	wait.Until(r, "no rights", func() bool { made := r.gotten(); return len(made) == 1 && made[0] == "claim" })
	r.create("data", nil)
	r.condition("data", v1beta1.AvailableCondition, reasonNotAllowed)
	if made := r.gotten(); !slices.Equal(made, []string{"claim"}) { // which was retained
		t.Errorf("recreated, it got %v", made)
	}
}

// As when the kind was recreated with its objects, and the cache is still empty.
func TestRights_StayWhileTheCacheLacksServers(t *testing.T) {
	r := newRig(t)
	s := r.create("data", nil)
	r.serve("data")
	account := check.Got(r.theirs.CoreV1().ServiceAccounts(r.namespace).Get(t.Context(), rightsName, metav1.GetOptions{}))(t)
	r.stop()
	r.controller.servers = listers.NewNFSServerLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}))
	for _, name := range []string{"data", "other"} {
		again, err := r.controller.reconcileGone(t.Context(), types.NamespacedName{Namespace: r.namespace, Name: name})
		if err != nil || again == 0 {
			t.Errorf("%s counts as gone: %s, %v", name, again, err)
		}
		if now, err := r.theirs.CoreV1().ServiceAccounts(r.namespace).Get(t.Context(), rightsName, metav1.GetOptions{}); err != nil || now.UID != account.UID {
			t.Errorf("the account is %v, %v", now, err)
		}
		if _, err := r.theirs.RbacV1().ClusterRoles().Get(t.Context(), rightsName, metav1.GetOptions{}); err != nil {
			t.Errorf("the rights: %v", err)
		}
	}
	free := []byte(`{"metadata":{"finalizers":null}}`)
	check.Got(r.ours.HoldfastV1beta1().NFSServers(r.namespace).Patch(t.Context(), "data", types.MergePatchType, free, metav1.PatchOptions{}))(t)
	r.delete("data")
	if again, err := r.controller.reconcileGone(t.Context(), keyOf(s)); err != nil || again != 0 {
		t.Errorf("the deleted server: %s, %v", again, err)
	}
	if _, err := r.theirs.CoreV1().ServiceAccounts(r.namespace).Get(t.Context(), rightsName, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the account of a deleted server: %v", err)
	}
}
