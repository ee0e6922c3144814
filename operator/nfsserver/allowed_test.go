package nfsserver

import (
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/test/realapi"
)

// allowing is a StorageCluster that allows servers in namespaces.
func allowing(namespaces ...string) *v1.StorageCluster {
	return &v1.StorageCluster{ObjectMeta: metav1.ObjectMeta{Name: "holdfast"}, Spec: v1.StorageClusterSpec{NFS: v1.NFSSpec{Namespaces: namespaces}}}
}

func TestAServerThatIsNotAllowedSaysWhatAllowsIt(t *testing.T) {
	const command = `kubectl patch storagecluster holdfast --type=merge --patch='{"spec":{"nfs":{"namespaces":["other","team"]}}}'`
	fresh := working(func(o *situation) {
		noPod(o)
		o.set, o.claim, o.storage, o.cluster, o.entitled = nil, nil, nil, allowing("other"), false
	}).status()
	if fresh.Phase != v1.NFSPending {
		t.Errorf("it is %s", fresh.Phase)
	}
	for _, kind := range []string{v1.AvailableCondition, v1.ProgressingCondition, v1.DegradedCondition} {
		c := find(&fresh, kind)
		if c.Reason != reasonNotAllowed || !strings.Contains(c.Message, command) || !strings.Contains(c.Message, "nothing is made") {
			t.Errorf("%s: %s, %q", kind, c.Reason, c.Message)
		}
	}
	before := working(func(o *situation) { o.cluster = allowing("other") })
	served := before.status()
	available, degraded := find(&served, v1.AvailableCondition), find(&served, v1.DegradedCondition)
	if served.Phase != v1.NFSDegraded || available.Status != metav1.ConditionTrue || degraded.Reason != reasonNotAllowed || !strings.Contains(degraded.Message, command) {
		t.Errorf("one from before is %s, %+v, %+v", served.Phase, available, degraded)
	}
	if events := transitions(&v1.NFSServerStatus{Conditions: working(nil).status().Conditions}, &served); len(events) != 1 ||
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

func TestWhoMakesAnNFSServerElsewhereGetsNothingByIt(t *testing.T) {
	r := newRig(t)
	r.changeCluster(func(s *v1.StorageClusterSpec) { s.NFS.Namespaces = []string{"another"} })
	r.create("data", nil)
	message := r.condition("data", v1.AvailableCondition, reasonNotAllowed)
	want := `kubectl patch storagecluster ` + clusterName + ` --type=merge --patch='{"spec":{"nfs":{"namespaces":["another","` + r.namespace + `"]}}}'`
	if !strings.Contains(message, want) {
		t.Errorf("it says %q", message)
	}
	r.until("the event", func() bool { return len(r.events.with("Warning "+reasonNotAllowed)) == 1 })
	// What looks like a server of before is none: its author may write all of it.
	r.forge("data")
	r.change("data", func(s *v1.NFSServerSpec) { s.MaxExports = 7 })
	r.condition("data", v1.AvailableCondition, reasonNotAllowed)
	if made := r.gotten(); !slices.Equal(made, []string{"StatefulSet"}) {
		t.Errorf("it got %v", made)
	}
	if err := r.theirs.AppsV1().StatefulSets(r.namespace).Delete(t.Context(), "nfs-data", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	// It goes as it came, and without the StorageCluster too.
	if err := r.ours.HoldfastV1().StorageClusters().Delete(t.Context(), clusterName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.create("later", nil)
	if message := r.condition("later", v1.AvailableCondition, reasonNotAllowed); !strings.Contains(message, "make a StorageCluster") {
		t.Errorf("without a StorageCluster it says %q", message)
	}
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
	in := asked(func(s *v1.NFSServerSpec) { s.Engine = "directory" })
	in.server = r.server(name)
	objects, err := workload(in)
	if err != nil {
		r.Fatal(err)
	}
	set := as[apps.StatefulSet](r.T, objects, "StatefulSet")
	if _, err := r.theirs.AppsV1().StatefulSets(r.namespace).Create(r.Context(), set, metav1.CreateOptions{}); err != nil {
		r.Fatal(err)
	}
}

func TestAServerWhoseNamespaceIsTakenOffTheListServesOn(t *testing.T) {
	r := newRig(t)
	s := r.create("data", nil)
	r.serve("data")
	r.made(r.volume(s, "a"))
	r.changeCluster(func(s *v1.StorageClusterSpec) { s.NFS.Namespaces = nil })
	if message := r.condition("data", v1.DegradedCondition, reasonNotAllowed); !strings.Contains(message, r.namespace) {
		t.Errorf("it says %q", message)
	}
	r.stop()
	r.start() // as another release, which knows nothing of what this one has done
	// It is kept as any other: what is changed by hand is put right, and a change of its spec reaches it.
	edit := []byte(`{"subjects":[]}`)
	if _, err := r.theirs.RbacV1().ClusterRoleBindings().Patch(t.Context(), rightsName, types.MergePatchType, edit, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	r.until("its rights", func() bool { return len(r.gotten()) == 6 })
	r.change("data", func(s *v1.NFSServerSpec) { s.MaxExports = 9 })
	r.argument("data", "--max-exports=9")
	r.ready("data") // the pod that replaces the one of before
	r.condition("data", v1.AvailableCondition, reasonServing)
	// Another one beside it is new, and gets nothing, nor does the first when it is made anew.
	r.create("second", nil)
	r.condition("second", v1.AvailableCondition, reasonNotAllowed)
	if r.statefulSet("second") != nil {
		t.Error("a new server was made where none is allowed")
	}
	r.giveUpVolumes(s)
	r.delete("data")
	r.gone("data")
	r.until("no rights", func() bool { made := r.gotten(); return len(made) == 1 && made[0] == "claim" })
	r.create("data", nil)
	r.condition("data", v1.AvailableCondition, reasonNotAllowed)
	if made := r.gotten(); !slices.Equal(made, []string{"claim"}) { // which was retained
		t.Errorf("made anew, it got %v", made)
	}
}
