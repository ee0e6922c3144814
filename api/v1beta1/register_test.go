package v1beta1

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	check.OK(t, AddToScheme(scheme))
	return scheme
}

func TestResource_IsOfTheGroup(t *testing.T) {
	if got := Resource("volumes").String(); got != "volumes.holdfast.dev" {
		t.Errorf("got %s", got)
	}
}
