package apply

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestRefusal_IsAboutAFieldAndNotByAPolicy(t *testing.T) {
	invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "DaemonSet"}, "a", field.ErrorList{field.Invalid(field.NewPath("spec", "x"), "a b", "no")})
	if !namesField(invalid.Status()) {
		t.Error("a value that is not valid is no refusal")
	}
	denied := invalid.Status()
	denied.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{Message: "this cluster has no host paths"}}}
	for what, status := range map[string]metav1.Status{
		"a policy": denied, "a policy without a cause": {Reason: metav1.StatusReasonInvalid}, "no right": apierrors.NewForbidden(schema.GroupResource{}, "a", nil).Status(),
	} {
		if namesField(status) {
			t.Errorf("%s is a refusal of the spec", what)
		}
	}
}

// An object of a Helm release is applied with another label than it is rendered with.
func TestRefusal_OfWhatIsAppliedCostsNoRequest(t *testing.T) {
	started(t, func(t *testing.T, r *rig) {
		wanted := func(value string) []*unstructured.Unstructured {
			return list(configMap("a", value), configMap("b", value))
		}
		r.apply(wanted("1")...)
		r.edit(configMap("b", "1"), `{"metadata":{"annotations":{"`+helmRelease+`":"holdfast"}}}`)
		for _, o := range wanted("1") {
			r.seen(o)
		}
		r.apply(wanted("1")...)
		for value, writes := range map[string]int{"1": 0, "2": 2} {
			r.api.Requests()
			refusal, err := r.set.Refusal(t.Context(), wanted(value))
			check.OK(t, errors.Join(refusal, err))
			if n := r.writes(); n != writes {
				t.Errorf("with the value %s it made %d requests, not %d", value, n, writes)
			}
		}
		if value := r.live(configMap("b", "")).Object["data"].(map[string]any)["key"]; value != "1" {
			t.Errorf("it holds %v", value)
		}
	})
}
