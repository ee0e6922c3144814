package v1beta1

import (
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	check.OK(t, AddToScheme(scheme))
	return scheme
}

func TestRegister_EveryKindIsInTheSchemeWithItsList(t *testing.T) {
	scheme := newScheme(t)
	for _, kind := range []string{"Snapshot", "StorageNode", "Volume"} {
		for _, name := range []string{kind, kind + "List"} {
			object, err := scheme.New(SchemeGroupVersion.WithKind(name))
			if err != nil {
				t.Errorf("%v", err)
				continue
			}
			if got := reflect.TypeOf(object).Elem().Name(); got != name {
				t.Errorf("the kind %s is made from the type %s", name, got)
			}
		}
	}
	options, err := scheme.New(SchemeGroupVersion.WithKind("ListOptions"))
	if _, ok := options.(*metav1.ListOptions); !ok || err != nil {
		t.Errorf("options of a list are %T, %v", options, err)
	}
}

func TestResource_IsOfTheGroup(t *testing.T) {
	if got := Resource("volumes").String(); got != "volumes.holdfast.dev" {
		t.Errorf("got %s", got)
	}
}
