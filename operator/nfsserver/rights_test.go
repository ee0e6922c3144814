package nfsserver

import (
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	listers "github.com/holdfast-storage/holdfast/api/client/listers/api/v1beta1"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
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
	objects := rightsOf([]*v1beta1.NFSServer{named("b", "two"), named("a", "three"), named("a", "one")}, "ours", false)
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
		objects := rightsOf(nil, "ours", openshift)
		use := slices.ContainsFunc(as[rbac.ClusterRole](t, objects, "ClusterRole").Rules, func(r rbac.PolicyRule) bool { return slices.Contains(r.Verbs, "use") })
		if use != openshift {
			t.Errorf("OpenShift %v: the right to use its constraints is given: %v", openshift, use)
		}
	}
}

// right is one verb for a resource; of no name it is for all.
type right struct{ verb, group, resource, name string }

func each(rules []rbac.PolicyRule) (all []right) {
	for _, r := range rules {
		if len(r.ResourceNames) == 0 {
			r.ResourceNames = []string{""}
		}
		for _, verb := range r.Verbs {
			for _, group := range r.APIGroups {
				for _, resource := range r.Resources {
					for _, name := range r.ResourceNames {
						all = append(all, right{verb, group, resource, name})
					}
				}
			}
		}
	}
	return all
}

// Kubernetes lets no account grant rights that it does not have.
func TestRights_ControllerHasAllThatItGrantsToServersAndNeedsForThem(t *testing.T) {
	has := map[string][]right{}
	for _, o := range installedRights(t) {
		if strings.HasSuffix(o.GetKind(), "Role") {
			has[o.GetKind()] = each(as[rbac.ClusterRole](t, []*unstructured.Unstructured{o}, o.GetKind()).Rules)
		}
	}
	granted := rightsOf([]*v1beta1.NFSServer{named("a", "one")}, "ours", true)
	needs := map[string][]right{
		"ClusterRole": each(as[rbac.ClusterRole](t, granted, "ClusterRole").Rules),
		"Role":        append(each(as[rbac.Role](t, granted, "Role").Rules), right{"delete", "coordination.k8s.io", "leases", ""}),
	}
	if given := len(needs["ClusterRole"]) + len(needs["Role"]); given < 40 {
		t.Errorf("only %d rights are granted", given)
	}
	in := asked(nil)
	in.closing = closing{clients: []string{"10.0.0.7"}, policy: true, cilium: true}
	accounts := []*unstructured.Unstructured{account("team")}
	for _, o := range slices.Concat(in.objects(), network(in), granted, accounts) {
		kind, plural := "ClusterRole", resourceOf(o)
		if strings.HasPrefix(o.GetKind(), "Role") {
			kind = "Role"
		}
		for verb := range strings.FieldsSeq("get list watch create patch delete") {
			needs[kind] = append(needs[kind], right{verb, plural.Group, plural.Resource, o.GetName()})
		}
	}
	needs["ClusterRole"] = append(needs["ClusterRole"],
		right{"get", "", "persistentvolumeclaims", ""}, right{"create", "", "persistentvolumeclaims", ""},
		right{"update", "", "persistentvolumeclaims", ""}, right{"delete", "", "persistentvolumeclaims", ""},
		right{"watch", "", "pods", ""}, right{"list", "", "pods", ""}, right{"watch", "", "namespaces", ""},
		right{"delete", v1beta1.GroupName, "storagenodes", ""}, right{"patch", v1beta1.GroupName, "nfsservers", ""},
		right{"update", v1beta1.GroupName, "nfsservers/status", ""})
	has["Role"] = append(has["Role"], has["ClusterRole"]...)
	for kind, all := range needs {
		for _, one := range all {
			ofAnyName := one
			ofAnyName.name = ""
			if !slices.Contains(has[kind], one) && !slices.Contains(has[kind], ofAnyName) {
				t.Errorf("%s: it may not %s %s/%s %s itself", kind, one.verb, one.group, one.resource, one.name)
			}
		}
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
		if now = r.account(); now == nil || before.CreationTimestamp.Before(&now.CreationTimestamp) {
			return now != nil
		}
		err := accounts.Delete(t.Context(), rightsName, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &now.UID}})
		check.OK(t, kube.IgnoreNotFound(err))
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

// gotten are the objects of the rig's namespace that a server has, its account included.
func (r *rig) gotten() (all []string) {
	r.Helper()
	binding := wait.Get(r, r.theirs.RbacV1().ClusterRoleBindings().Get, rightsName)
	role := wait.Get(r, r.theirs.RbacV1().Roles(realapi.Namespace).Get, rightsName)
	for _, one := range []struct {
		kind  string
		there bool
	}{
		{"account", r.account() != nil},
		{"Service", r.service("data") != nil},
		{"claim", r.claim("nfs-data") != nil},
		{"StatefulSet", r.statefulSet("data") != nil},
		{"ClusterRoleBinding", binding != nil && strings.Contains(text(r.T, binding.Subjects), r.namespace)},
		{"Role", role != nil && strings.Contains(text(r.T, role.Rules), r.namespace)},
	} {
		if one.there {
			all = append(all, one.kind)
		}
	}
	return all
}

func TestRights_ServerInAnotherNamespaceGrantsItsAuthorNothing(t *testing.T) {
	r := newRig(t)
	r.changeCluster(func(s *v1beta1.StorageClusterSpec) { s.NFS.Namespaces = []string{"another"} })
	r.create("data", nil)
	message := r.condition("data", v1beta1.AvailableCondition, reasonNotAllowed)
	want := `kubectl patch storageclusters.holdfast.dev ` + clusterName + ` --type=merge --patch='{"spec":{"nfs":{"namespaces":["another","` + r.namespace + `"]}}}'`
	if !strings.Contains(message, want) {
		t.Errorf("it says %q", message)
	}
	wait.Until(r, "the event", func() bool { return len(r.events.With("Warning "+reasonNotAllowed)) == 1 })
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
	set := as[apps.StatefulSet](r.T, in.objects(), "StatefulSet")
	check.Got(r.theirs.AppsV1().StatefulSets(r.namespace).Create(r.Context(), set, metav1.CreateOptions{}))(r)
}

func TestRights_ServerContinuesWhenItsNamespaceLeavesTheList(t *testing.T) {
	r := newRig(t)
	s := r.create("data", nil)
	r.serve("data")
	r.made(r.volume(s, "a"))
	r.changeCluster(func(s *v1beta1.StorageClusterSpec) { s.NFS.Namespaces = nil })
	r.condition("data", v1beta1.DegradedCondition, reasonNotAllowed, r.namespace)
	before := r.statefulSet("data")
	r.stop()
	r.start() // as another release, which knows nothing of what this one has done
	// It is kept as any other: what is changed by hand is put right, and a change of its spec reaches it.
	edit := []byte(`{"subjects":[]}`)
	check.Got(r.theirs.RbacV1().ClusterRoleBindings().Patch(t.Context(), rightsName, types.MergePatchType, edit, metav1.PatchOptions{}))(t)
	wait.Until(r, "its rights", func() bool { return len(r.gotten()) == 6 })
	if now := r.statefulSet("data"); now.UID != before.UID || now.Generation != before.Generation {
		t.Errorf("the StatefulSet was changed: %s, generation %d", now.UID, now.Generation)
	}
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
	account := r.account()
	r.stop()
	r.controller.servers = listers.NewNFSServerLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}))
	for _, name := range []string{"data", "other"} {
		again, err := r.controller.reconcileGone(t.Context(), types.NamespacedName{Namespace: r.namespace, Name: name})
		if err != nil || again == 0 {
			t.Errorf("%s counts as gone: %s, %v", name, again, err)
		}
		role := wait.Get(r, r.theirs.RbacV1().ClusterRoles().Get, rightsName)
		if now := r.account(); now == nil || now.UID != account.UID || role == nil {
			t.Errorf("the account is %v, and its rights are %v", now, role)
		}
	}
	free := []byte(`{"metadata":{"finalizers":null}}`)
	check.Got(r.ours.HoldfastV1beta1().NFSServers(r.namespace).Patch(t.Context(), "data", types.MergePatchType, free, metav1.PatchOptions{}))(t)
	r.delete("data")
	if again, err := r.controller.reconcileGone(t.Context(), keyOf(s)); err != nil || again != 0 {
		t.Errorf("the deleted server: %s, %v", again, err)
	}
	if now := r.account(); now != nil {
		t.Errorf("the account of a deleted server is %v", now)
	}
}
