package apply

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
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
