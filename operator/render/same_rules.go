package render

import (
	admission "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// SameRules says whether a policy or a binding equals the desired one.
func SameRules(live, wanted *unstructured.Unstructured) bool {
	if wanted.GetKind() == "ValidatingAdmissionPolicy" {
		is, isOne := as[admission.ValidatingAdmissionPolicy](live)
		want, wantOne := as[admission.ValidatingAdmissionPolicy](wanted)
		if want.Spec.FailurePolicy == nil {
			want.Spec.FailurePolicy = new(admission.Fail)
		}
		setDefaults(want.Spec.MatchConstraints)
		return isOne && wantOne && equality.Semantic.DeepEqual(is.Spec, want.Spec)
	}
	is, isOne := as[admission.ValidatingAdmissionPolicyBinding](live)
	want, wantOne := as[admission.ValidatingAdmissionPolicyBinding](wanted)
	setDefaults(want.Spec.MatchResources)
	return isOne && wantOne && equality.Semantic.DeepEqual(is.Spec, want.Spec)
}

func as[T any](o *unstructured.Unstructured) (typed T, ok bool) {
	return typed, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &typed) == nil
}

// setDefaults sets the defaults that the API server sets.
func setDefaults(m *admission.MatchResources) {
	if m == nil {
		return
	}
	if m.MatchPolicy == nil {
		m.MatchPolicy = new(admission.Equivalent)
	}
	if m.NamespaceSelector == nil {
		m.NamespaceSelector = &metav1.LabelSelector{}
	}
	if m.ObjectSelector == nil {
		m.ObjectSelector = &metav1.LabelSelector{}
	}
	for i := range m.ResourceRules {
		if rule := &m.ResourceRules[i]; rule.Scope == nil {
			rule.Scope = new(admission.AllScopes)
		}
	}
}
