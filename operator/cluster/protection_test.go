package cluster

import (
	"encoding/json"
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

// protection waits until the condition Protected has a reason, and checks the rest of it.
func (r *rig) protection(reason string, status metav1.ConditionStatus, words ...string) {
	r.Helper()
	message := r.condition("holdfast", v1beta1.ProtectedCondition, reason)
	if c := meta.FindStatusCondition(r.cluster("holdfast").Status.Conditions, v1beta1.ProtectedCondition); c.Status != status {
		r.Errorf("with the reason %s it is %s", reason, c.Status)
	}
	for _, word := range words {
		if !strings.Contains(message, word) {
			r.Errorf("with the reason %s it does not say %q: %s", reason, word, message)
		}
	}
}

// limits are the policies whose absence the condition Protected reports, and their bindings.
func (r *rig) limits() []*unstructured.Unstructured {
	r.Helper()
	c := r.cluster("holdfast")
	all, err := render.LimitsOf(render.Input{Cluster: c, Namespace: namespace, Has: r.set.Has})
	names := render.Limits(&c.Spec)
	if err != nil || len(all) != 2*len(names) || slices.Contains(names, cephAccount) != (len(v1beta1.CephPools(c.Spec.Pools)) > 0) {
		r.Fatalf("%d policies and bindings for %v, %v", len(all), names, err)
	}
	return all
}

func TestProtected_MissingPolicyIsReported(t *testing.T) {
	r := newRig(t).start()
	r.cephKeys()
	r.create("holdfast", cephPools)
	r.reconciled("holdfast")
	r.protection(reasonInPlace, metav1.ConditionTrue)
	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.Paused = true })
	r.condition("holdfast", v1beta1.ProgressingCondition, reasonPaused)
	for _, o := range r.limits() {
		check.OK(t, r.of(o).Delete(t.Context(), o.GetName(), metav1.DeleteOptions{}))
		wait.Until(r, "the condition naming it", func() bool { return strings.Contains(r.protectedMessage(), o.GetKind()+" "+o.GetName()) })
		r.protection(reasonMissing, metav1.ConditionFalse, "there is no", "spec.paused")
	}
	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.Paused = false })
	r.protection(reasonInPlace, metav1.ConditionTrue)
}

func TestInstall_NoAccountHasRightsWhileAPolicyCannotBeMade(t *testing.T) {
	for what, test := range map[string]struct {
		policy, binding string
		spec            func(*v1beta1.StorageClusterSpec)
	}{
		"of the nodes":               {nodeAccount, agents, nil},
		"of pools in a Ceph cluster": {cephAccount, "holdfast-ceph", cephPools},
	} {
		t.Run(what, func(t *testing.T) {
			r := newRig(t).start()
			r.cephKeys()
			policies, bindings := r.theirs.AdmissionregistrationV1().ValidatingAdmissionPolicies(), r.theirs.RbacV1().ClusterRoleBindings()
			check.Got(policies.Create(t.Context(), foreignPolicy(test.policy), metav1.CreateOptions{}))(t)
			r.Cleanup(func() { _ = policies.Delete(background, test.policy, metav1.DeleteOptions{}) })
			r.create("holdfast", test.spec)
			r.condition("holdfast", v1beta1.ProgressingCondition, reasonForeign, test.policy)
			if _, err := bindings.Get(t.Context(), test.binding, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("the account, which nothing limits: %v", err)
			}
			check.OK(t, policies.Delete(t.Context(), test.policy, metav1.DeleteOptions{}))
			r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.Debug = true }) // or it would try again only later
			r.reconciled("holdfast")
			if _, err := bindings.Get(t.Context(), test.binding, metav1.GetOptions{}); err != nil {
				t.Errorf("once it is limited: %v", err)
			}
		})
	}
}

// foreignPolicy is one that another has made, and that refuses nothing.
func foreignPolicy(name string) *admission.ValidatingAdmissionPolicy {
	return &admission.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admission.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admission.MatchResources{ResourceRules: []admission.NamedRuleWithOperations{{RuleWithOperations: admission.RuleWithOperations{
			Operations: []admission.OperationType{admission.Create}, Rule: admission.Rule{APIGroups: []string{"example.com"}, APIVersions: []string{"v1"}, Resources: []string{"none"}},
		}}}},
		Validations: []admission.Validation{{Expression: "true"}},
	}}
}

func (r *rig) protectedMessage() string {
	if c := meta.FindStatusCondition(r.cluster("holdfast").Status.Conditions, v1beta1.ProtectedCondition); c != nil {
		return c.Message
	}
	return ""
}

func TestProtected_ChangedPolicyDoesNotCount(t *testing.T) {
	r := newRig(t).start()
	r.cephKeys()
	r.create("holdfast", cephPools)
	r.reconciled("holdfast")
	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.Paused = true })
	r.protection(reasonInPlace, metav1.ConditionTrue)
	edits := map[string][]string{
		"ValidatingAdmissionPolicy": {
			`{"spec":{"failurePolicy":"Ignore"}}`,
			`{"spec":{"matchConditions":[{"name":"never","expression":"false"}]}}`,
			`{"spec":{"matchConstraints":{"namespaceSelector":{"matchLabels":{"a":"b"}}}}}`,
			`{"spec":{"matchConstraints":{"excludeResourceRules":[{"apiGroups":["*"],"apiVersions":["*"],"operations":["*"],"resources":["*"]}]}}}`,
			`{"spec":{"validations":[{"expression":"true"}]}}`,
		},
		"ValidatingAdmissionPolicyBinding": {
			`{"spec":{"validationActions":["Audit"]}}`,
			`{"spec":{"matchResources":{"objectSelector":{"matchLabels":{"a":"b"}}}}}`,
		},
	}
	for _, o := range r.limits() {
		was := r.get(o)
		for _, edit := range edits[o.GetKind()] {
			r.patch(o, edit)
			r.protection(reasonChanged, metav1.ConditionFalse, o.GetKind()+" "+o.GetName()+" was changed", "spec.paused")
			back := check.Got(json.Marshal([]map[string]any{{"op": "replace", "path": "/spec", "value": was.Object["spec"]}}))(t)
			check.Got(r.of(o).Patch(t.Context(), o.GetName(), types.JSONPatchType, back, metav1.PatchOptions{}))(t)
			r.protection(reasonInPlace, metav1.ConditionTrue)
		}
	}
}

// TestProtected_DuringAnUpgradePoliciesMayBeOfThePreviousRelease: they stay as they are until its end.
func TestProtected_DuringAnUpgradePoliciesMayBeOfThePreviousRelease(t *testing.T) {
	r := newRig(t).start()
	r.create("holdfast", nil)
	r.reconciled("holdfast")
	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.Paused = true })
	r.condition("holdfast", v1beta1.ProgressingCondition, reasonPaused)
	o := r.limits()[0]
	r.patch(o, `{"spec":{"validations":[{"expression":"true"}]}}`)
	r.protection(reasonChanged, metav1.ConditionFalse)
	paused := []byte(`{"metadata":{"annotations":{"` + v1beta1.PausedByAnnotation + `":"to-v2"}}}`)
	check.Got(r.ours.HoldfastV1beta1().StorageClusters().Patch(t.Context(), "holdfast", types.MergePatchType, paused, metav1.PatchOptions{}))(t)
	r.protection(reasonInPlace, metav1.ConditionTrue)
	check.OK(t, r.of(o).Delete(t.Context(), o.GetName(), metav1.DeleteOptions{}))
	r.protection(reasonMissing, metav1.ConditionFalse)
}

func TestProtected_APIServerWithoutPoliciesIsReported(t *testing.T) {
	r := newRig(t)
	r.unknown = []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings"}
	r.start()
	r.create("holdfast", nil)
	r.protection(reasonNoPolicies, metav1.ConditionFalse, "is switched off in the API server", "Switch it on")
	r.reconciled("holdfast")
}
