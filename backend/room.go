package backend

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// SizeUnit is the unit to which sizes are rounded up, and rooms down.
const SizeUnit = 1 << 20

// Room is the space of a pool, as it is measured.
type Room struct {
	Total  int64 // can be stored, by all
	Others int64 // is stored by others
	Free   int64 // can still be stored, by all
}

// Promisable returns how many bytes can be promised where that many are, by the formula of docs/capacity.md.
func (r Room) Promisable(overcommit float64, reserved Reserve, promised int64) int64 {
	kept := reserved.Of(r.Total)
	byPromise := int64(float64(r.Total-r.Others)*overcommit) - kept - promised
	byFreeSpace := int64(float64(r.Free)*overcommit) - kept
	return max(0, min(byPromise, byFreeSpace)) / SizeUnit * SizeUnit
}

// Reserve is what a pool keeps free: bytes, or a share of the whole.
type Reserve struct {
	bytes int64
	share float64
}

// DefaultReserve is that of a pool that names none.
const DefaultReserve = "5%"

// Of returns how much that is of a pool of that size.
func (r Reserve) Of(total int64) int64 { return r.bytes + int64(float64(total)*r.share) }

// ParseReserve reads bytes such as 10Gi, or a share such as 5%; "" is DefaultReserve.
func ParseReserve(s string) (Reserve, error) {
	s = cmp.Or(s, DefaultReserve)
	if number, ok := strings.CutSuffix(s, "%"); ok {
		share, err := strconv.ParseFloat(number, 64)
		if err != nil || !(share >= 0 && share < 100) { // also refuses NaN
			return Reserve{}, fmt.Errorf("reserved %s; a share must be 0%% to below 100%%", Quote(s))
		}
		return Reserve{share: share / 100}, nil
	}
	bytes, err := ParseBytes(s)
	if err != nil {
		return Reserve{}, fmt.Errorf("reserved %s; it must be a share such as 5%%, or bytes such as 1073741824, 512Mi, 10Gi", Quote(s))
	}
	return Reserve{bytes: bytes}, nil
}
