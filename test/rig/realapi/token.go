package realapi

import (
	"context"
	"slices"
	"testing"

	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/holdfast-storage/holdfast/deploy"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// WithToken is a connection with a token of an account that is bound to a pod, as a kubelet has it made for that pod. Of
// pod "" it is bound to none.
func WithToken(t testing.TB, config *rest.Config, namespace, account, pod string) *rest.Config {
	t.Helper()
	client := kubernetes.NewForConfigOrDie(config).CoreV1()
	request := &authentication.TokenRequest{}
	if pod != "" {
		p := check.Got(client.Pods(namespace).Get(t.Context(), pod, metav1.GetOptions{}))(t)
		request.Spec.BoundObjectRef = &authentication.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod, UID: p.UID}
	}
	made := check.Got(client.ServiceAccounts(namespace).CreateToken(t.Context(), account, request, metav1.CreateOptions{}))(t)
	with := rest.AnonymousClientConfig(config)
	with.BearerToken, with.QPS = made.Status.Token, -1
	return with
}

// PodOn makes a pod of an account on a node that has no kubelet, and the Node as well.
func PodOn(t testing.TB, config *rest.Config, namespace, account, pod, node string) {
	t.Helper()
	client, ctx := kubernetes.NewForConfigOrDie(config).CoreV1(), context.Background()
	now := int64(0)
	if _, err := client.Nodes().Create(ctx, &core.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{}); err == nil {
		t.Cleanup(func() { _ = client.Nodes().Delete(ctx, node, metav1.DeleteOptions{}) })
	} else if !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Pods(namespace).Delete(ctx, pod, metav1.DeleteOptions{GracePeriodSeconds: &now}) })
	p := &core.Pod{ObjectMeta: metav1.ObjectMeta{Name: pod}, Spec: core.PodSpec{
		NodeName: node, ServiceAccountName: account, Containers: []core.Container{{Name: "a", Image: "holdfast.test/pause:1"}},
		Tolerations: []core.Toleration{{Operator: core.TolerationOpExists}},
	}}
	check.Got(client.Pods(namespace).Create(ctx, p, metav1.CreateOptions{}))(t)
}

// Install applies manifests of package deploy, as for an installation in Namespace, until the test ends.
func Install(t testing.TB, config *rest.Config, files ...string) {
	t.Helper()
	objects, ctx := dynamic.NewForConfigOrDie(config), context.Background()
	for _, file := range files {
		for _, o := range deploy.Objects(file) {
			plural, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
			client := dynamic.ResourceInterface(objects.Resource(plural))
			if slices.Contains([]string{"ServiceAccount", "Role", "RoleBinding"}, o.GetKind()) {
				client = objects.Resource(plural).Namespace(Namespace)
			}
			check.Got(client.Apply(t.Context(), o.GetName(), o, metav1.ApplyOptions{FieldManager: "test", Force: true}))(t)
			t.Cleanup(func() { _ = client.Delete(ctx, o.GetName(), metav1.DeleteOptions{}) })
		}
	}
}

// Verbs are all that RBAC distinguishes in requests for an ordinary kind.
var Verbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}

// Right is what an account may be let do.
type Right struct{ Group, Resource, Sub, In, Name string }

// Allowed asks for the verbs that RBAC gives an account of a right.
func Allowed(t testing.TB, as *rest.Config, right Right) (verbs []string) {
	t.Helper()
	reviews := kubernetes.NewForConfigOrDie(as).AuthorizationV1().SelfSubjectAccessReviews()
	for _, verb := range Verbs {
		review := &authorization.SelfSubjectAccessReview{Spec: authorization.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorization.ResourceAttributes{
			Verb: verb, Group: right.Group, Resource: right.Resource, Subresource: right.Sub, Namespace: right.In, Name: right.Name,
		}}}
		answer := check.Got(reviews.Create(t.Context(), review, metav1.CreateOptions{}))(t)
		if answer.Status.Allowed {
			verbs = append(verbs, verb)
		}
	}
	return verbs
}

// AllRights gives an account all that RBAC can give. What is refused it then is refused by a policy.
func AllRights(t testing.TB, config *rest.Config, namespace, account string) {
	t.Helper()
	Grant(t, config, "cluster-admin", namespace, account)
}

// Grant gives an account the rights of a ClusterRole, until the test ends.
func Grant(t testing.TB, config *rest.Config, role, namespace, account string) {
	t.Helper()
	client, name := kubernetes.NewForConfigOrDie(config).RbacV1().ClusterRoleBindings(), "test-"+role+"-"+namespace+"-"+account
	binding := &rbac.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "ClusterRole", Name: role},
		Subjects: []rbac.Subject{{Kind: rbac.ServiceAccountKind, Namespace: namespace, Name: account}},
	}
	check.Got(client.Create(t.Context(), binding, metav1.CreateOptions{}))(t)
	t.Cleanup(func() { _ = client.Delete(context.Background(), name, metav1.DeleteOptions{}) })
}

// Unfinalize lets a PersistentVolume go.
func Unfinalize(ctx context.Context, config *rest.Config, name string) error {
	_, err := kubernetes.NewForConfigOrDie(config).CoreV1().PersistentVolumes().Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	return err
}
