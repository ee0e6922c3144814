package admin

import (
	"context"
	"fmt"
	"strings"

	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// whoami returns the user name that the API server knows. Requests contain it, since another account writes them.
func (a *Admin) whoami(ctx context.Context) (string, error) {
	review, err := a.Kubernetes.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authentication.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("the API server does not report your user name, which is recorded with the request (see kubectl auth whoami): %w", err)
	}
	const most = 256 // of the field
	name := []rune(review.Status.UserInfo.Username)
	if len(name) == 0 {
		return "", fmt.Errorf("the API server reports no user name for you, which is recorded with the request: see kubectl auth whoami")
	}
	return string(name[:min(len(name), most)]), nil
}

// mayDelete fails, before anything is written, if the user has no right to delete an object.
func (a *Admin) mayDelete(ctx context.Context, resource, name string) error {
	review := &authorization.SelfSubjectAccessReview{Spec: authorization.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorization.ResourceAttributes{Verb: "delete", Group: v1beta1.GroupName, Resource: resource, Name: name},
	}}
	review, err := a.Kubernetes.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	switch {
	case err != nil:
		return fmt.Errorf("checking whether you may delete %s %s: %w", resource, name, err)
	case !review.Status.Allowed:
		return fmt.Errorf("you may not delete %s: the right with the verb delete on %s.%s is missing (kubectl auth can-i delete %s.%s)",
			name, resource, v1beta1.GroupName, resource, v1beta1.GroupName)
	}
	return nil
}

// explain adds which right is missing if the API server forbids to impersonate the controller.
func (a *Admin) explain(err error) error {
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "cannot impersonate") {
		return err
	}
	return fmt.Errorf("only %s may request this, and you may not impersonate it: the right with the verb impersonate on serviceaccounts, name %s, "+
		"in namespace %s is missing. An administrator can grant it: kubectl create role holdfast-admin -n %s --verb=impersonate --resource=serviceaccounts "+
		"--resource-name=%s, and a rolebinding for you: %w",
		controllerAccount(a.Namespace), v1beta1.ControllerName, a.Namespace, a.Namespace, v1beta1.ControllerName, err)
}
