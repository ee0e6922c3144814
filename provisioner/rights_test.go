package provisioner

import (
	"context"
	"strings"
	"testing"

	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/holdfast-storage/holdfast/deploy"
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

// grant gives a user the rights of a server under names of its own.
func (a *api) grant(user rbac.Subject) {
	a.t.Helper()
	objects := dynamic.NewForConfigOrDie(a.config)
	for _, o := range deploy.Objects(deploy.NFSRBAC) {
		o.SetName(user.Name)
		if strings.HasSuffix(o.GetKind(), "Binding") {
			check.OK(a.t, unstructured.SetNestedField(o.Object, user.Name, "roleRef", "name"))
			subject := check.Got(runtime.DefaultUnstructuredConverter.ToUnstructured(&user))(a.t)
			o.Object["subjects"] = []any{subject}
		}
		plural, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
		client := dynamic.ResourceInterface(objects.Resource(plural))
		if strings.HasPrefix(o.GetKind(), "Role") {
			client = objects.Resource(plural).Namespace(realapi.Namespace)
		}
		check.Got(client.Create(a.t.Context(), o, metav1.CreateOptions{}))(a.t)
		a.t.Cleanup(func() { check.Report(a.t, client.Delete(context.Background(), user.Name, metav1.DeleteOptions{})) })
	}
}
