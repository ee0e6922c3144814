package api_test

import (
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// mustRefuse expects that the server refused an object for one field, and says which.
func mustRefuse(t *testing.T, err error, field string) {
	t.Helper()
	if !apierrors.IsInvalid(err) {
		t.Errorf("got %v, want a refusal of %s", err, field)
		return
	}
	var fields []string
	for _, cause := range err.(apierrors.APIStatus).Status().Details.Causes {
		// The server looks at a schema first, and says so when that keeps it from the rules.
		if strings.Contains(cause.Message, "some validation rules were not checked") {
			continue
		}
		at := cause.Field
		if at == "<nil>" { // a rule on metadata has no path, so that its message begins with it
			message := strings.TrimPrefix(strings.TrimPrefix(cause.Message, "Invalid value: "), `"object": `) // the latter before 1.35
			at = strings.TrimSuffix(strings.Fields(message)[0], ":")
		}
		fields = append(fields, at)
	}
	if !slices.Equal(slices.Compact(fields), []string{field}) { // two rules may refuse it
		t.Errorf("refused are the fields %q, want only %s: %v", fields, field, err)
	}
}
