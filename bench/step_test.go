package bench

import (
	"errors"
	"testing"
)

func TestAtOnce_CountsTheFailuresBesideTheFirst(t *testing.T) {
	refused := errors.New("refused")
	for want, all := range map[string][]error{
		"":                                 {nil, nil, nil},
		"a pod: refused":                   {nil, refused, nil},
		"a pod: refused (and 1 more of 3)": {refused, nil, refused},
	} {
		err := atOnce(all, func(err error) (string, error) { return "a pod", err })
		if (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
