package nfsserver

import (
	"slices"
	"strings"
	"testing"

	rbac "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/deploy"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// aggregated is a right that roles get by aggregation alone.
var aggregated = realapi.Right{Group: "test.example", Resource: "widgets"}

// aggregates waits until those who have the roles of Kubernetes have what the roles of today give them, all of Holdfast
// among them.
func (r *rig) aggregates(users map[string]*rest.Config) {
	r.Helper()
	objects := dynamic.NewForConfigOrDie(r.config)
	for _, file := range []string{deploy.NodeRBAC, deploy.LoopSets, deploy.SnapshotController} {
		all := deploy.Objects(file)
		for _, o := range all {
			if o.GetKind() != "ClusterRole" {
				continue
			}
			client := objects.Resource(resourceOf(o))
			check.Got(client.Apply(r.Context(), o.GetName(), o, metav1.ApplyOptions{FieldManager: "test", Force: true}))(r)
			r.Cleanup(func() { _ = client.Delete(background, o.GetName(), metav1.DeleteOptions{}) })
		}
	}
	wait.Until(r, "the role of the servers", func() bool {
		_, err := r.theirs.RbacV1().ClusterRoles().Get(r.Context(), rightsName, metav1.GetOptions{})
		return err == nil
	})
	roles := r.theirs.RbacV1().ClusterRoles()
	last := &rbac.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "test-aggregated-" + r.namespace, Labels: map[string]string{
			"rbac.authorization.k8s.io/aggregate-to-edit": "true", "rbac.authorization.k8s.io/aggregate-to-admin": "true",
		}},
		Rules: []rbac.PolicyRule{{APIGroups: []string{aggregated.Group}, Resources: []string{aggregated.Resource}, Verbs: []string{"get"}}},
	}
	check.Got(roles.Create(r.Context(), last, metav1.CreateOptions{}))(r)
	r.Cleanup(func() { _ = roles.Delete(background, last.Name, metav1.DeleteOptions{}) })
	for role, user := range users {
		wait.Until(r, "the aggregation to "+role, func() bool {
			return slices.Equal(realapi.Allowed(r.T, user, realapi.Right{Group: aggregated.Group, Resource: aggregated.Resource, In: r.namespace}), []string{"get"})
		})
	}
}

// with is a user who has a role of Kubernetes in the namespace of the rig.
func (r *rig) with(role string) *rest.Config {
	r.Helper()
	user := role + "-of-" + r.namespace
	binding := &rbac.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user}, RoleRef: rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "ClusterRole", Name: role},
		Subjects: []rbac.Subject{{APIGroup: rbac.GroupName, Kind: rbac.UserKind, Name: user}},
	}
	check.Got(r.theirs.RbacV1().RoleBindings(r.namespace).Create(r.Context(), binding, metav1.CreateOptions{}))(r)
	config := rest.CopyConfig(r.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	return config
}

func TestTenant_EditorOrAdminOfANamespaceHasNoRightToNFSServers(t *testing.T) {
	r := newRig(t)
	s := r.create("data", nil)
	users := map[string]*rest.Config{"edit": r.with("edit"), "admin": r.with("admin")}
	r.aggregates(users)
	server := `{"apiVersion":"holdfast.dev/v1beta1","kind":"NFSServer","spec":{"storage":{"size":"1Gi"}}}`
	check.OK(t, (realapi.Attempt{Verb: "create", What: ofServers, In: r.namespace, Name: "mine", Body: server}).Try(t.Context(), r.config))
	for role, user := range users {
		claim := realapi.Attempt{Verb: "create", What: ofClaims, In: r.namespace, Name: "c", Body: `{"apiVersion":"v1","kind":"PersistentVolumeClaim","spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`}
		if err := claim.Try(t.Context(), user); err != nil {
			t.Errorf("%s: what it has a right to: %s: %v", role, claim, err)
		}
		for _, a := range []realapi.Attempt{
			{Verb: "create", What: ofServers, In: r.namespace, Name: "mine", Body: server},
			{Verb: "apply", What: ofServers, In: r.namespace, Name: "mine", Body: server},
			{Verb: "patch", What: ofServers, In: r.namespace, Name: s.Name, Body: `{"spec":{"maxExports":9}}`},
			{Verb: "patch", What: ofServers + "/status", In: r.namespace, Name: s.Name, Body: `{"status":{"clients":3}}`},
			{Verb: "delete", What: ofServers, In: r.namespace, Name: s.Name},
			{Verb: "deletecollection", What: ofServers, In: r.namespace},
		} {
			if err := a.Try(t.Context(), user); !apierrors.IsForbidden(err) || strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
				t.Errorf("%s: %s: %v", role, a, err)
			}
		}
		for _, resource := range []string{"nfsservers", "volumes", "snapshots", "storagenodes", "storageclusters", "storageupgrades", "nodejobs"} {
			for _, sub := range []string{"", "status", "finalizers", "scale"} {
				if got := realapi.Allowed(t, user, realapi.Right{Group: v1beta1.SchemeGroupVersion.Group, Resource: resource, Sub: sub, In: r.namespace}); len(got) > 0 {
					t.Errorf("%s: of %s/%s it may %v", role, resource, sub, got)
				}
			}
		}
	}
}
