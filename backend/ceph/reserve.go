package ceph

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfast-storage/holdfast/backend"
)

// Reserve is what a pool keeps free: bytes, or a share of the whole.
type Reserve struct {
	bytes int64
	share float64
}

// DefaultReserve is that of a pool that names none.
const DefaultReserve = "5%"

// Of is how much that is of a pool of that size.
func (r Reserve) Of(total int64) int64 { return r.bytes + int64(float64(total)*r.share) }

// ParseReserve reads bytes such as 10Gi, or a share such as 5%; "" is DefaultReserve.
func ParseReserve(s string) (Reserve, error) {
	s = cmp.Or(s, DefaultReserve)
	if number, ok := strings.CutSuffix(s, "%"); ok {
		share, err := strconv.ParseFloat(number, 64)
		if err != nil || !(share >= 0 && share < 100) { // also refuses NaN
			return Reserve{}, fmt.Errorf("%w reserved %s: a share must be 0%% to below 100%%", backend.ErrInvalid, backend.Quote(s))
		}
		return Reserve{share: share / 100}, nil
	}
	bytes, err := backend.ParseBytes(s)
	if err != nil {
		return Reserve{}, fmt.Errorf("%w reserved %s: it must be a share such as 5%%, or bytes such as 1073741824, 512Mi, 10Gi", backend.ErrInvalid, backend.Quote(s))
	}
	return Reserve{bytes: bytes}, nil
}
