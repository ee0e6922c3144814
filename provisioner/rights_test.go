package provisioner

import (
	"context"
	"os"
	"strings"
	"testing"

	rbac "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// TestRights_OfAServerSuffice gives a user the rights that the operator gives to servers, and nothing else.
func TestRights_OfAServerSuffice(t *testing.T) {
	a := realServer(t)
	user := rbac.Subject{Kind: rbac.UserKind, APIGroup: rbac.GroupName, Name: "server-" + rand.String(5)}
	a.grant(user)
	config := rest.CopyConfig(a.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user.Name}
	s := newServer(t, kubernetes.NewForConfigOrDie(config))
	p := s.start()
	wait.Until(a.t, "it has the Lease", p.gate.isOpen)
	class := a.class(s.config.Name, nil)
	a.claim("data", class, s.config.Name)
	a.bound("data")
	wait.Until(a.t, "events are written", func() bool { return strings.Contains(a.events("data"), "Successfully provisioned") })
	a.deleteClaim("data")
	a.nothingLeft(s)
	s.stop()
	lease, err := a.client.CoordinationV1().Leases(realapi.Namespace).Get(t.Context(), p.leaseName(), metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != "" {
		t.Errorf("the Lease is not given up: %+v, %v", lease, err)
	}
}

func (a *api) grant(user rbac.Subject) {
	a.t.Helper()
	ctx := context.Background()
	text, err := os.ReadFile("../deploy/operated/nfs-rbac.yaml")
	check.OK(a.t, err)
	meta, client := metav1.ObjectMeta{Name: user.Name}, a.client.RbacV1()
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var kind metav1.TypeMeta
		check.OK(a.t, yaml.Unmarshal([]byte(document), &kind))
		switch kind.Kind {
		case "ClusterRole":
			role := &rbac.ClusterRole{}
			check.OK(a.t, yaml.Unmarshal([]byte(document), role))
			role.ObjectMeta = meta
			_, err = client.ClusterRoles().Create(ctx, role, metav1.CreateOptions{})
			a.t.Cleanup(func() { a.removed(client.ClusterRoles().Delete(ctx, user.Name, metav1.DeleteOptions{})) })
		case "ClusterRoleBinding":
			binding := &rbac.ClusterRoleBinding{ObjectMeta: meta, Subjects: []rbac.Subject{user}, RoleRef: rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "ClusterRole", Name: user.Name}}
			_, err = client.ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
			a.t.Cleanup(func() { a.removed(client.ClusterRoleBindings().Delete(ctx, user.Name, metav1.DeleteOptions{})) })
		case "Role":
			role := &rbac.Role{}
			check.OK(a.t, yaml.Unmarshal([]byte(document), role))
			role.ObjectMeta = meta
			_, err = client.Roles(realapi.Namespace).Create(ctx, role, metav1.CreateOptions{})
			a.t.Cleanup(func() { a.removed(client.Roles(realapi.Namespace).Delete(ctx, user.Name, metav1.DeleteOptions{})) })
		case "RoleBinding":
			binding := &rbac.RoleBinding{ObjectMeta: meta, Subjects: []rbac.Subject{user}, RoleRef: rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "Role", Name: user.Name}}
			_, err = client.RoleBindings(realapi.Namespace).Create(ctx, binding, metav1.CreateOptions{})
			a.t.Cleanup(func() {
				a.removed(client.RoleBindings(realapi.Namespace).Delete(ctx, user.Name, metav1.DeleteOptions{}))
			})
		}
		check.OK(a.t, err)
	}
}

func (a *api) removed(err error) {
	check.Report(a.t, err)
}
