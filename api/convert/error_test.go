package convert

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestErrorCodes_OfTheAPIAreThoseOfBackends(t *testing.T) {
	pairs := map[v1beta1.ErrorCode]error{
		v1beta1.ErrorNotFound: backend.ErrNotFound, v1beta1.ErrorExists: backend.ErrExists, v1beta1.ErrorInvalid: backend.ErrInvalid,
		v1beta1.ErrorOutOfRange: backend.ErrOutOfRange, v1beta1.ErrorExhausted: backend.ErrExhausted, v1beta1.ErrorBusy: backend.ErrBusy,
		v1beta1.ErrorPrecondition: backend.ErrPrecondition, v1beta1.ErrorUnavailable: backend.ErrUnavailable,
	}
	var codes []string
	for _, c := range backend.Codes() {
		codes = append(codes, string(c))
		if pairs[v1beta1.ErrorCode(c)] == nil {
			t.Errorf("the API has no code %s", c)
		}
	}
	for _, kind := range []string{"volumes", "snapshots"} {
		taken := codesOfSchema(t, kind)
		slices.Sort(taken)
		if slices.Sort(codes); !slices.Equal(codes, taken) {
			t.Errorf("backends have the codes %v, and the schema of %s has %v", codes, kind, taken)
		}
	}
	for code, sentinel := range pairs {
		e := FromError(fmt.Errorf("pool fast: %w: 5 bytes", sentinel))
		if e.Code != code {
			t.Errorf("%v has the code %s, want %s", sentinel, e.Code, code)
		}
		back := ToError(e)
		for other, another := range pairs {
			if errors.Is(back, another) != (other == code) {
				t.Errorf("%s came back as %v", code, back)
			}
		}
		if back.Error() != e.Message || *FromError(back) != *e {
			t.Errorf("%+v came back as %v", e, back)
		}
	}
}

type schema struct {
	Properties map[string]schema `json:"properties"`
	Enum       []string          `json:"enum"`
}

// codesOfSchema are the codes that the schema allows in status.error.
func codesOfSchema(t *testing.T, kind string) []string {
	t.Helper()
	text := check.Got(os.ReadFile("../../deploy/crds/holdfast.dev_" + kind + ".yaml"))(t)
	var definition struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema schema `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	check.OK(t, yaml.Unmarshal(text, &definition))
	all := definition.Spec.Versions[0].Schema.OpenAPIV3Schema
	return all.Properties["status"].Properties["error"].Properties["code"].Enum
}

func TestError_NilIsNotRecorded(t *testing.T) {
	if FromError(nil) != nil || ToError(nil) != nil {
		t.Error("nothing became an error")
	}
}

func TestError_OfAPanicIsRecordedWithoutItsStack(t *testing.T) {
	e := FromError(errors.New("create of v panicked: boom\ngoroutine 17 [running]:\nmain.main()"))
	if *e != (v1beta1.Error{Code: v1beta1.ErrorUnavailable, Message: "create of v panicked: boom"}) {
		t.Errorf("it is %+v", e)
	}
}
