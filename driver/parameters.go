package driver

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-storage/holdfast/backend"
)

// reserved begins the keys that belong to Kubernetes.
const reserved = "csi.storage.k8s.io/"

const fsTypeKey = reserved + "fstype"

// labelKeys are the claim metadata that external-provisioner adds. They are kept to be found again and decide nothing.
var labelKeys = []string{reserved + "pvc/name", reserved + "pvc/namespace", reserved + "pv/name"}

// snapshotKeys are what external-snapshotter adds to the parameters of a snapshot; nothing else is known there.
var snapshotKeys = []string{
	reserved + "volumesnapshot/name", reserved + "volumesnapshot/namespace", reserved + "volumesnapshotcontent/name",
}

var groupSnapshotKeys = []string{
	reserved + "volumegroupsnapshot/name", reserved + "volumegroupsnapshot/namespace", reserved + "volumegroupsnapshotcontent/name",
}

// setters read the parameters of a volume, each into its field.
var setters = map[string]func(*backend.VolumeSpec, string) error{
	"pool":         func(s *backend.VolumeSpec, v string) error { s.Pool = v; return nil },
	fsTypeKey:      func(s *backend.VolumeSpec, v string) error { s.FSType = v; return nil },
	"mkfsOptions":  func(s *backend.VolumeSpec, v string) error { s.MkfsOptions = strings.Fields(v); return nil },
	"provisioning": setProvisioning,
	"inodes":       setInodes,
	"onNodeLoss":   setOnNodeLoss,
	sharedKey:      setShared,
	serverKey:      setServer,
}

func setProvisioning(s *backend.VolumeSpec, value string) error {
	s.Provisioning = backend.Provisioning(value)
	if s.Provisioning != backend.Thin && s.Provisioning != backend.Thick {
		return fmt.Errorf("it must be %s or %s", backend.Thin, backend.Thick)
	}
	return nil
}

func setOnNodeLoss(s *backend.VolumeSpec, value string) error {
	s.OnNodeLoss = backend.OnNodeLoss(value)
	if s.OnNodeLoss != backend.RetainOnNodeLoss && s.OnNodeLoss != backend.DeleteOnNodeLoss {
		return fmt.Errorf("it must be %s or %s", backend.RetainOnNodeLoss, backend.DeleteOnNodeLoss)
	}
	return nil
}

func setInodes(s *backend.VolumeSpec, value string) (err error) {
	s.Inodes, err = strconv.ParseUint(value, 10, 63)
	if err != nil || s.Inodes == 0 {
		return fmt.Errorf("it must be a whole number from 1 to %d", math.MaxInt64)
	}
	return nil
}

// parseParameters reads the parameters of a StorageClass. Keys are case-sensitive; an empty value leaves the choice
// to the pool.
func parseParameters(parameters map[string]string) (backend.VolumeSpec, error) {
	spec := backend.VolumeSpec{Labels: map[string]string{}}
	for _, key := range slices.Sorted(maps.Keys(parameters)) {
		value := parameters[key]
		set := setters[key]
		switch {
		case set == nil && slices.Contains(labelKeys, key):
			spec.Labels[key] = value
		case set == nil:
			return spec, unknownKey("parameter", key, slices.Concat(slices.Collect(maps.Keys(setters)), labelKeys))
		case value != "":
			if err := set(&spec, value); err != nil {
				return spec, fmt.Errorf("%w parameter %s=%s: %w", backend.ErrInvalid, key, backend.Quote(value), err)
			}
		}
	}
	return spec, nil
}

// checkKeys refuses parameters other than the known.
func checkKeys(parameters map[string]string, known []string) error {
	for _, key := range slices.Sorted(maps.Keys(parameters)) {
		if !slices.Contains(known, key) {
			return unknownKey("parameter", key, known)
		}
	}
	return nil
}

func unknownKey(what, key string, known []string) error {
	return fmt.Errorf("%w: unknown %s %s; known are (case matters): %s",
		backend.ErrInvalid, what, backend.Quote(key), strings.Join(slices.Sorted(slices.Values(known)), ", "))
}

// parseRange reads a wish for a size; none at all is the zero Size.
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
