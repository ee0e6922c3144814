package v1beta1

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// MostDevices is how many devices of a node a pool may have.
const MostDevices = 16

// EachDevice returns the pools of the nodes: one for each device that a pool may have. Names in a spec have no dot.
func EachDevice(all []PoolSpec) (pools []PoolSpec) {
	for _, p := range all {
		if p.Devices == nil {
			pools = append(pools, p)
			continue
		}
		name, count := p.Name, min(max(int(p.Devices.Count), 1), MostDevices)
		p.Devices = p.Devices.DeepCopy()
		p.Devices.Count = 0
		for n := range count {
			p.Name = OfDevice(name, n+1)
			pools = append(pools, p)
		}
	}
	return pools
}

// OfDevice returns the name of the pool on a device, which are numbered from 1.
func OfDevice(inSpec string, number int) string {
	if number == 1 {
		return inSpec
	}
	return fmt.Sprintf("%s.%d", inSpec, number)
}

// InSpec returns the name that a pool of a node has in the spec, and the number of its device.
func InSpec(pool string) (name string, number int) {
	name, further, _ := strings.Cut(pool, ".")
	number, _ = strconv.Atoi(further)
	return name, max(number, 1)
}

// NamesPool says whether a request, a name or several with commas between them, names a pool of a node, by the name that it
// has in the spec or by its own.
func NamesPool(request, pool string) bool {
	inSpec, _ := InSpec(pool)
	return slices.ContainsFunc(strings.Split(request, ","), func(name string) bool { return name == pool || name == inSpec })
}

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
