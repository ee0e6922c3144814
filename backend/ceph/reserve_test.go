package ceph

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/backend"
)

func TestReserve_IsBytesOrAShare(t *testing.T) {
	const total = 1 << 40
	for text, want := range map[string]int64{"": total / 20, "0": 0, "0%": 0, "50%": total / 2, "10Gi": 10 << 30, "1073741824": 1 << 30} {
		if r, err := ParseReserve(text); err != nil || r.Of(total) != want {
			t.Errorf("%q is %d of %d, %v", text, r.Of(total), total, err)
		}
	}
	for _, text := range []string{"100%", "-1%", "NaN%", "%", "-1", "some", "5 GB"} {
		if _, err := ParseReserve(text); !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), backend.Quote(text)) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
