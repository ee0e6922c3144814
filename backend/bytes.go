package backend

import (
	"fmt"
	"math"
	"math/bits"
	"regexp"
	"strconv"
)

var byteUnits = map[string]int64{
	"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
	"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60,
}

var byteQuantity = regexp.MustCompile(`^([0-9]+)([kMGTPE]|[KMGTPE]i)?$`)

// ParseBytes parses a Kubernetes quantity without fractions: 1073741824, 512Mi, 10Gi.
func ParseBytes(s string) (int64, error) {
	parts := byteQuantity.FindStringSubmatch(s)
	if parts == nil {
		return 0, fmt.Errorf("%w size %s: it must be a whole number of bytes such as 1073741824, 512Mi or 10Gi", ErrInvalid, Quote(s))
	}
	n, err := strconv.ParseInt(parts[1], 10, 64)
	unit := byteUnits[parts[2]]
	if err != nil || n > math.MaxInt64/unit {
		return 0, fmt.Errorf("%w size %s: at most %d bytes can be requested", ErrOutOfRange, Quote(s), math.MaxInt64)
	}
	return n * unit, nil
}

// Readable writes bytes for a message: in the largest unit that leaves a whole number, or one of four digits, whose fraction is left
// out, so that sizes of nearly the same differ.
func Readable(bytes int64) string {
	const digits = 1000
	for i, unit := range []string{"Ei", "Pi", "Ti", "Gi", "Mi", "Ki"} {
		factor := int64(1) << (60 - 10*i)
		if bytes >= factor && (bytes%factor == 0 || bytes/digits >= factor) {
			return strconv.FormatInt(bytes/factor, 10) + unit
		}
	}
	return strconv.FormatInt(bytes, 10)
}

// RoundDown keeps the 8 highest bits of a size, since csi-provisioner writes an object for each answer that differs from the last. A
// claim whose size has no more bits, such as 1 to 256 MiB or GiB, still fits wherever it did.
func RoundDown(size int64) int64 {
	size = max(size, 0)
	unit := max(bits.Len64(uint64(size))-8, 0)
	return size >> unit << unit
}
