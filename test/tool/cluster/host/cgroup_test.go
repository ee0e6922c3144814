package host

import "testing"

func TestCgroup_RootIsNeverRemoved(t *testing.T) {
	for _, name := range []string{"", ".", "../x"} {
		if RemoveCgroup(t.Context(), name) == nil {
			t.Errorf("%q was taken", name)
		}
	}
}
