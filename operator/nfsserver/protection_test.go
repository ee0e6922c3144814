package nfsserver

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	admission "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/operator/render"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func (r *rig) protected(status metav1.ConditionStatus, says string) {
	r.Helper()
	wait.For(r, fmt.Sprintf("Protected being %s because of %q", status, says), func() error {
		c := meta.FindStatusCondition(r.server("data").Status.Conditions, v1beta1.ProtectedCondition)
		if c == nil || c.Status != status || !strings.Contains(c.Message, says) {
			return fmt.Errorf("it is %+v", c)
		}
		return nil
	})
}

func TestProtected_PolicyOfServersThatWasDeletedOrChangedDoesNotCount(t *testing.T) {
	r := newRig(t)
	r.create("data", nil)
	r.serve("data")
	r.protected(metav1.ConditionTrue, "")
	policies, bindings := r.theirs.AdmissionregistrationV1().ValidatingAdmissionPolicies(), r.theirs.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	patch := func(body string) func(string) error {
		return func(name string) error {
			_, err := policies.Patch(t.Context(), name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
			return err
		}
	}
	toothless := func(variable, expression string) func(string) error {
		return func(name string) error {
			p, err := policies.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			i := slices.IndexFunc(p.Spec.Variables, func(v admission.Variable) bool { return v.Name == variable })
			p.Spec.Variables[i].Expression = expression
			_, err = policies.Update(t.Context(), p, metav1.UpdateOptions{})
			return err
		}
	}
	for _, test := range []struct {
		what, policy string
		change       func(name string) error
	}{
		{"fails open", accountPolicy, patch(`{"spec":{"failurePolicy":"Ignore"}}`)},
		{"for no account", accountPolicy, patch(`{"spec":{"matchConditions":[{"name":"never","expression":"false"}]}}`)},
		{"for any server", accountPolicy, toothless("site", "'any'")},
		{"deleted", accountPolicy, func(name string) error { return policies.Delete(t.Context(), name, metav1.DeleteOptions{}) }},
		{"not bound", accountPolicy, func(name string) error { return bindings.Delete(t.Context(), name, metav1.DeleteOptions{}) }},
		{"fails open", render.MountsPolicy, patch(`{"spec":{"failurePolicy":"Ignore"}}`)},
		{"for no namespace", render.MountsPolicy, toothless("allowed", "[request.namespace]")},
		{"deleted", render.MountsPolicy, func(name string) error { return policies.Delete(t.Context(), name, metav1.DeleteOptions{}) }},
	} {
		t.Run(test.policy+" "+test.what, func(t *testing.T) {
			r.changeCluster(func(s *v1beta1.StorageClusterSpec) { s.Paused = true })
			r.condition("data", v1beta1.ProgressingCondition, reasonPaused)
			check.OK(t, test.change(test.policy))
			r.protected(metav1.ConditionFalse, test.policy)
			r.changeCluster(func(s *v1beta1.StorageClusterSpec) { s.Paused = false })
			r.protected(metav1.ConditionTrue, "")
		})
	}
}

func TestProtected_PoliciesOfServersFailClosed(t *testing.T) {
	all := check.Got(limitsOf(nil, nil, &v1beta1.NFSSpec{}, "ours"))(t)
	for _, o := range all {
		policy, _, err := unstructured.NestedString(o.Object, "spec", "failurePolicy")
		if open := o.GetName() == "holdfast-nfs-classes"; o.GetKind() == policyKind && (err != nil || !open && policy != "Fail") {
			t.Errorf("%s has the failurePolicy %q, %v", o.GetName(), policy, err)
		}
	}
}

func TestRights_NoServerHasAnyWhileAPolicyCannotBeMade(t *testing.T) {
	r := newRig(t)
	policies, bindings := r.theirs.AdmissionregistrationV1().ValidatingAdmissionPolicies(), r.theirs.RbacV1().ClusterRoleBindings()
	foreign := &admission.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: render.MountsPolicy}, Spec: admission.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admission.MatchResources{ResourceRules: []admission.NamedRuleWithOperations{{RuleWithOperations: admission.RuleWithOperations{
			Operations: []admission.OperationType{admission.Create}, Rule: admission.Rule{APIGroups: []string{"example.com"}, APIVersions: []string{"v1"}, Resources: []string{"none"}},
		}}}},
		Validations: []admission.Validation{{Expression: "true"}},
	}}
	check.Got(policies.Create(t.Context(), foreign, metav1.CreateOptions{}))(t)
	r.create("data", nil)
	wait.Until(r, "the server saying which policy is another's", func() bool {
		return slices.ContainsFunc(r.server("data").Status.Conditions, func(c metav1.Condition) bool {
			return c.Type != v1beta1.ProtectedCondition && strings.Contains(c.Message, render.MountsPolicy)
		})
	})
	if _, err := bindings.Get(t.Context(), rightsName, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the account of the server, which nothing limits, has rights: %v", err)
	}
	check.OK(t, policies.Delete(t.Context(), render.MountsPolicy, metav1.DeleteOptions{}))
	wait.Until(r, "its rights, once the account is limited", func() bool {
		_, err := bindings.Get(t.Context(), rightsName, metav1.GetOptions{})
		return err == nil
	})
}
