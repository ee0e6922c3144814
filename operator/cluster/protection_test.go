package cluster

import (
	"encoding/json"
	"slices"
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
)

// protection waits until the condition Protected has a reason, and checks the rest of it.
func (r *rig) protection(reason string, status metav1.ConditionStatus, words ...string) {
	r.Helper()
	r.condition("holdfast", v1beta1.ProtectedCondition, reason, words...)
	if c := meta.FindStatusCondition(r.cluster("holdfast").Status.Conditions, v1beta1.ProtectedCondition); c.Status != status {
		r.Errorf("with the reason %s it is %s", reason, c.Status)
	}
}

// limits are the policies whose absence the condition Protected reports, and their bindings.
func (r *rig) limits() []*unstructured.Unstructured {
	r.Helper()
	c := r.cluster("holdfast")
	all := render.LimitsOf(render.Input{Cluster: c, Namespace: namespace, Has: r.set.Has})
	names := render.Limits(&c.Spec)
	if len(all) != 2*len(names) || slices.Contains(names, cephAccount) != (len(v1beta1.CephPools(c.Spec.Pools)) > 0) {
		r.Fatalf("%d policies and bindings for %v", len(all), names)
	}
	return all
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
			r.condition("holdfast", v1beta1.ProgressingCondition, reasonForeign, test.policy, "not created by Holdfast")
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

func TestProtected_ChangedOrMissingPolicyIsReported(t *testing.T) {
	r := withCeph(t)
	r.protection(reasonInPlace, metav1.ConditionTrue)
	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.Paused = true })
	r.condition("holdfast", v1beta1.ProgressingCondition, reasonPaused)
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
	all := r.limits()
	for _, o := range all {
		was := r.get(o)
		for _, edit := range edits[o.GetKind()] {
			r.patch(o, edit)
			r.protection(reasonChanged, metav1.ConditionFalse, o.GetKind()+" "+o.GetName()+" was changed", "spec.paused")
			back := check.Got(json.Marshal([]map[string]any{{"op": "replace", "path": "/spec", "value": was.Object["spec"]}}))(t)
			check.Got(r.of(o).Patch(t.Context(), o.GetName(), types.JSONPatchType, back, metav1.PatchOptions{}))(t)
			r.protection(reasonInPlace, metav1.ConditionTrue)
		}
	}

	// During an upgrade they may be of the previous release: they stay as they are until its end.
	upgrade := func(name string) {
		clusters := r.ours.HoldfastV1beta1().StorageClusters()
		patch := []byte(`{"metadata":{"annotations":{"` + v1beta1.PausedByAnnotation + `":` + name + `}}}`)
		check.Got(clusters.Patch(t.Context(), "holdfast", types.MergePatchType, patch, metav1.PatchOptions{}))(t)
	}
	r.patch(all[0], `{"spec":{"validations":[{"expression":"true"}]}}`)
	r.protection(reasonChanged, metav1.ConditionFalse)
	upgrade(`"to-v2"`)
	r.protection(reasonInPlace, metav1.ConditionTrue)
	check.OK(t, r.of(all[0]).Delete(t.Context(), all[0].GetName(), metav1.DeleteOptions{}))
	r.protection(reasonMissing, metav1.ConditionFalse)

	upgrade(`null`)
	for _, o := range all[1:] {
		check.OK(t, r.of(o).Delete(t.Context(), o.GetName(), metav1.DeleteOptions{}))
		r.protection(reasonMissing, metav1.ConditionFalse, "there is no", o.GetKind()+" "+o.GetName(), "spec.paused")
	}
	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.Paused = false })
	r.protection(reasonInPlace, metav1.ConditionTrue)
}

func TestProtected_APIServerWithoutPoliciesIsReported(t *testing.T) {
	r, _ := inMemory(t)
	r.create("holdfast", nil)
	r.protection(reasonNoPolicies, metav1.ConditionFalse, "is switched off in the API server", "Switch it on")
	r.reconciled("holdfast")
}
