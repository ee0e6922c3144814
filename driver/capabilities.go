package driver

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/parameters"
)

// access is a volume capability, checked.
type access struct {
	mode   backend.Mode
	writer csi.VolumeCapability_AccessMode_Mode
	fsType string
	flags  []string // for mount; may be sensitive, never in a message
	group  int      // noGroup if none
}

const noGroup = -1

const (
	readerOnly  = csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY
	multiWriter = csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
)

var singleNode = []csi.VolumeCapability_AccessMode_Mode{
	csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, readerOnly,
	csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER, multiWriter,
}

const readersOnly = csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY

var multiNode = []csi.VolumeCapability_AccessMode_Mode{
	readersOnly, csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER, csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER,
}

// parseCapability checks a capability regardless of the volume.
func parseCapability(c *csi.VolumeCapability) (access, error) {
	a := access{writer: c.GetAccessMode().GetMode(), group: noGroup}
	invalid := func(format string, args ...any) (access, error) {
		return a, fmt.Errorf("%w volume_capability: "+format, append([]any{backend.ErrInvalid}, args...)...)
	}
	switch {
	case c == nil:
		return invalid("it is missing")
	case !slices.Contains(singleNode, a.writer) && !slices.Contains(multiNode, a.writer):
		return invalid("access mode %s; it must be one of %v, or of a shared volume one of %v", a.writer, singleNode, multiNode)
	}
	if c.GetBlock() != nil {
		a.mode = backend.Block
		return a, nil
	}
	mount := c.GetMount()
	if mount == nil {
		return invalid("access type is missing; it must be block or mount")
	}
	a.mode, a.fsType, a.flags = backend.Filesystem, mount.GetFsType(), mount.GetMountFlags()
	if err := checkFlags(a.flags); err != nil {
		return invalid("%w", err)
	}
	if group := mount.GetVolumeMountGroup(); group != "" {
		id, err := strconv.ParseUint(group, 10, 32)
		if err != nil || id == 1<<32-1 {
			return invalid("volume_mount_group %s; it must be a number from 0 to %d", backend.Quote(group), uint64(1<<32-2))
		}
		a.group = int(id)
	}
	return a, nil
}

// readOnly says that the volume must be mounted read-only as a whole.
func (a access) readOnly() bool {
	return a.writer == readerOnly || a.writer == readersOnly || slices.Contains(a.flags, "ro")
}

// mountOptions are the flags, with ro where they lack it and the volume must be mounted so.
func (a access) mountOptions() []string {
	options := slices.Clone(a.flags)
	if a.readOnly() && !slices.Contains(options, "ro") {
		options = append(options, "ro")
	}
	return options
}

// parseCapabilities checks all capabilities of one volume, and that they do not contradict each other.
func parseCapabilities(capabilities []*csi.VolumeCapability) (access, error) {
	var first access
	if len(capabilities) == 0 {
		return first, fmt.Errorf("%w: volume_capabilities are missing", backend.ErrInvalid)
	}
	for i, c := range capabilities {
		a, err := parseCapability(c)
		if err != nil {
			return first, err
		}
		if i == 0 {
			first = a
		}
		switch {
		case a.mode != first.mode:
			return first, fmt.Errorf("%w volume_capabilities: a volume is either block or mount, not both", backend.ErrInvalid)
		case a.fsType != first.fsType:
			return first, fmt.Errorf("%w volume_capabilities: two file systems are requested, %s and %s", backend.ErrInvalid, backend.Quote(first.fsType), backend.Quote(a.fsType))
		case slices.Contains(multiNode, a.writer): // it asks for more
			first.writer = a.writer
		}
	}
	return first, nil
}

// apply completes a spec by what the capabilities say of mode and file system.
func (a access) apply(spec *backend.VolumeSpec) error {
	spec.Mode = a.mode
	switch {
	case a.mode == backend.Block && (spec.FSType != "" || len(spec.MkfsOptions) > 0):
		return fmt.Errorf("%w: a block volume has no file system; leave out %s and mkfsOptions", backend.ErrInvalid, parameters.FSType)
	case a.fsType != "" && spec.FSType != "" && a.fsType != spec.FSType:
		return fmt.Errorf("%w: the volume capability requests file system %s, the parameter %s requests %s", backend.ErrInvalid, backend.Quote(a.fsType), parameters.FSType, backend.Quote(spec.FSType))
	case a.fsType != "":
		spec.FSType = a.fsType
	}
	return nil
}

// suits says whether a volume that these hosts can use can be used as asked.
func (a access) suits(reach backend.Reach) error {
	const single = "use a SINGLE_NODE_ mode (ReadWriteOnce or ReadWriteOncePod), or a class"
	many := slices.Contains(multiNode, a.writer)
	switch {
	case reach == backend.ManyHosts && a.mode == backend.Block:
		return fmt.Errorf("%w volume_capability: a shared volume is a file system, never block, and so is one of a pool with engine CephFS; use volumeMode Filesystem, or a class without %s whose pool has another engine", backend.ErrInvalid, parameters.Shared)
	case many && reach == backend.OneHost && a.mode == backend.Block:
		return fmt.Errorf("%w volume_capability: access mode %s: an image in a Ceph cluster is used by one node at a time, also as a raw block device, where nothing would keep two writers apart; use a SINGLE_NODE_ mode (ReadWriteOnce or ReadWriteOncePod)",
			backend.ErrInvalid, a.writer)
	case many && reach == backend.OneHost:
		return fmt.Errorf("%w volume_capability: access mode %s: an image in a Ceph cluster is used by one node at a time; %s whose pool has engine CephFS", backend.ErrInvalid, a.writer, single)
	case many && reach == backend.ItsHost:
		return fmt.Errorf("%w volume_capability: access mode %s: volumes are on one node and cannot be shared between nodes; %s with %s: \"true\"", backend.ErrInvalid, a.writer, single, parameters.Shared)
	}
	return nil
}

// fits says whether v can be used with the capability.
func (a access) fits(v *backend.Volume) error {
	if err := a.suits(v.Reach); err != nil {
		return err
	}
	switch {
	case a.mode != v.Mode:
		return fmt.Errorf("%w: volume %s is of mode %s and cannot be used as %s", backend.ErrPrecondition, v.ID, v.Mode, a.mode)
	case a.fsType != "" && v.FSType != "" && a.fsType != v.FSType:
		return fmt.Errorf("%w: volume %s has file system %s, requested is %s", backend.ErrPrecondition, v.ID, v.FSType, backend.Quote(a.fsType))
	}
	return nil
}

// checkFits refuses a capability, if one is given, that v does not have.
func checkFits(v *backend.Volume, capability *csi.VolumeCapability) error {
	if capability == nil {
		return nil
	}
	access, err := parseCapability(capability)
	if err != nil {
		return err
	}
	if err := access.fits(v); err != nil {
		return fmt.Errorf("%w volume_capability: %v", backend.ErrInvalid, err)
	}
	return nil
}

// mountFlags are the options that belong to a mount and not to its file system, so that each bind may have its own.
var mountFlags = []string{
	"nosuid", "suid", "nodev", "dev", "noexec", "exec", "noatime", "atime", "nodiratime", "diratime",
	"relatime", "norelatime", "strictatime", "nostrictatime", "nosymfollow", "symfollow",
}

// bindFlags are those of the flags that a bind can have; read-only is separate.
func (a access) bindFlags() []string {
	return slices.DeleteFunc(slices.Clone(a.flags), func(flag string) bool { return !slices.Contains(mountFlags, flag) })
}

// checkFlags refuses mount flags that would do more than mount the volume.
func checkFlags(flags []string) error {
	if slices.Contains(flags, "ro") && slices.Contains(flags, "rw") {
		return errors.New("mount flags ro and rw contradict each other")
	}
	return nodeops.CheckMountOptions(flags)
}
