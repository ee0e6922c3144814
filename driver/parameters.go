package driver

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/parameters"
)

// reserved is the prefix of the keys that belong to Kubernetes.
const reserved = parameters.Reserved

// labelKeys are the claim metadata that external-provisioner adds. They are kept for information and have no effect.
var labelKeys = []string{reserved + "pvc/name", reserved + "pvc/namespace", reserved + "pv/name"}

// nodeLoss are the values of the parameter onNodeLoss.
var nodeLoss = map[string]backend.OnNodeLoss{"retain": backend.RetainOnNodeLoss, "delete": backend.DeleteOnNodeLoss}

// parseParameters reads the parameters of a StorageClass. An empty value leaves the choice to the pool.
func parseParameters(given map[string]string) (backend.VolumeSpec, error) {
	spec, err := parseClass(&parameters.CSI, given)
	for _, key := range labelKeys {
		if value, is := given[key]; is {
			spec.Labels[key] = value
		}
	}
	return spec, err
}

// parseClass reads the parameters of a volume.
func parseClass(c *parameters.Class, given map[string]string) (backend.VolumeSpec, error) {
	read, err := readClass(c, given)
	spec := backend.VolumeSpec{
		Pool: read[parameters.Pool], FSType: cmp.Or(read[parameters.FSType], read[parameters.InlineFSType]),
		Provisioning: backend.Provisioning(read[parameters.Provisioning]), OnNodeLoss: nodeLoss[read[parameters.OnNodeLoss]],
		Shared: read[parameters.Shared] == "true", Server: read[parameters.NFSServer], Labels: map[string]string{},
	}
	if options := read[parameters.MkfsOptions]; options != "" {
		spec.MkfsOptions = strings.Fields(options)
	}
	if inodes := read[parameters.Inodes]; err == nil && inodes != "" {
		spec.Inodes, err = strconv.ParseUint(inodes, 10, 63)
	}
	if size := read[parameters.InlineSize]; err == nil && size != "" {
		spec.Size.Required, err = parseSize(size)
	}
	return spec, err
}

// readClass checks what a request has of a class.
func readClass(c *parameters.Class, given map[string]string) (map[string]string, error) {
	read, err := c.Read(given)
	if err != nil {
		err = fmt.Errorf("%w %w", backend.ErrInvalid, err)
	}
	return read, err
}

// parseRange reads a requested size; none is the zero Size.
func parseRange(r *csi.CapacityRange) (backend.Size, error) {
	size := backend.Size{Required: r.GetRequiredBytes(), Limit: r.GetLimitBytes()}
	switch {
	case r == nil:
		return size, nil
	case size.Required < 0 || size.Limit < 0:
		return size, fmt.Errorf("%w capacity_range: required_bytes %d, limit_bytes %d: neither may be negative", backend.ErrInvalid, size.Required, size.Limit)
	case size.Required == 0 && size.Limit == 0:
		return size, fmt.Errorf("%w capacity_range: required_bytes and limit_bytes are both 0; give one of them, or leave capacity_range out", backend.ErrInvalid)
	case size.Limit > 0 && size.Required > size.Limit:
		return size, fmt.Errorf("%w capacity_range: required_bytes %d is above limit_bytes %d", backend.ErrInvalid, size.Required, size.Limit)
	}
	return size, nil
}

// parseSize reads the size of a volume, which is at least 1.
func parseSize(s string) (int64, error) {
	bytes, err := backend.ParseBytes(s)
	if err == nil && bytes == 0 {
		err = fmt.Errorf("%w size %s: it must be above 0", backend.ErrInvalid, backend.Quote(s))
	}
	return bytes, err
}
