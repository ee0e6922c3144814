package v1beta1

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// OvercommitTimes is how often each byte may be promised; 0 where it is left out.
func (p *PoolSpec) OvercommitTimes() (float64, error) {
	if p.Overcommit == "" {
		return 0, nil
	}
	times, err := strconv.ParseFloat(p.Overcommit, 64)
	if err != nil || !(times > 0 && times <= 100) { // NaN is neither
		return 0, fmt.Errorf("%.80q is not allowed: it must be a number above 0, at most 100, such as 1.5", p.Overcommit)
	}
	return times, nil
}

// ReservedRoom is a share such as 5%, or a number of bytes without a unit; empty where it is left out.
func (p *PoolSpec) ReservedRoom() (string, error) {
	share, isShare := strings.CutSuffix(p.Reserved, "%")
	switch {
	case p.Reserved == "":
		return "", nil
	case isShare:
		if percent, err := strconv.ParseFloat(share, 64); err == nil && percent >= 0 && percent < 100 {
			return p.Reserved, nil
		}
	default:
		if bytes, err := resource.ParseQuantity(p.Reserved); err == nil && bytes.Sign() >= 0 {
			return strconv.FormatInt(bytes.Value(), 10), nil
		}
	}
	return "", fmt.Errorf("%.80q is not allowed: it must be a share below 100%%, such as 5%%, or bytes, such as 10Gi", p.Reserved)
}
