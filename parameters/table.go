package parameters

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"strings"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops/mkfs"
)

// The keys.
const (
	Pool         = "pool"
	FSType       = Reserved + "fstype"
	Provisioning = "provisioning"
	MkfsOptions  = "mkfsOptions"
	Inodes       = "inodes"
	OnNodeLoss   = "onNodeLoss"
	Shared       = "shared"
	NFSServer    = "nfsServer"

	GID        = "gid"
	Squash     = "squash"
	RootSquash = "rootSquash"
	OnDelete   = "onDelete"

	// Of inline ephemeral volumes, whose other keys are those of a class.
	InlineSize   = "size"
	InlineFSType = "fsType"
)

const isShared = Shared + "=true"

const (
	mountOptions  = "mount options are a field of the StorageClass beside parameters: mountOptions"
	reclaimPolicy = "the reclaim policy is a field of the StorageClass beside parameters: reclaimPolicy"
	fsTypeKey     = "use " + FSType
	ofCSI         = "that is for classes of csi.holdfast.dev"
	ofPlain       = "that is for classes of nfs.holdfast.dev"
)

var (
	poolName     = regexp.MustCompile("^" + backend.PoolName + "$")
	poolNames    = regexp.MustCompile("^" + backend.PoolName + "(," + backend.PoolName + ")*$")
	quantity     = regexp.MustCompile(`^[0-9]{1,19}([kMGTPE]|[KMGTPE]i)?$`)
	server       = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$`)
	serverOrName = regexp.MustCompile(`^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/)?[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$`)
)

// CSI are StorageClasses of the CSI driver.
var CSI = Class{
	Name: "a StorageClass of csi.holdfast.dev", AllowsReserved: true,
	Parameters: []Parameter{
		{Key: Pool, Allowed: "the name of a pool, or in a cluster of several with commas between them", Pattern: poolNames, Default: "the first of the node", Meaning: "[pool](pools.md) of the volume; of several, the one of the node that has the most room. All nodes reach one [in a Ceph cluster](ceph.md#classes-and-claims): its volumes are there wherever the pod runs"},
		oneOf(Parameter{Key: FSType, Default: "`ext4`", Meaning: "file system; engines `Image` and `RBD`, volume mode Filesystem. Not of `CephFS`"}, "ext4", "xfs", "btrfs"),
		enum(Parameter{Key: Provisioning, Default: "`Thin`", Meaning: "`Thick` takes all blocks at once; engine `Image`"}, "Thin", "Thick"),
		{
			Key: MkfsOptions, Allowed: "options of mkfs", Default: "none", check: checkMkfs,
			Meaning: "such as `-m 1 -i 8192`; those that change the layout inside only; engines `Image` and `RBD`",
		},
		number(Parameter{
			Key: Inodes, Default: "Image: the file system's; Directory: one for each 16 KiB, at least 512", Meaning: "maximum number of files; not on btrfs",
		}, math.MaxInt64),
		enum(Parameter{
			Key: OnNodeLoss, Default: "`Retain`", Never: []string{isShared},
			Meaning: "`Delete` gives the volume up when its node is gone for good: the claim gets a [new, empty one](nodes.md#a-node-is-dead). Not of shared volumes; without effect in a Ceph pool, which is no node",
		}, "Retain", "Delete"),
		oneOf(Parameter{Key: Shared, Default: "`false`", Meaning: "`true`: on an NFS server, for [many nodes at once](shared-volumes.md)"}, "true", "false"),
		{
			Key: NFSServer, Allowed: "the NAMESPACE/NAME of an NFSServer", Pattern: server, Needs: isShared, Default: "the one with the most space",
			Meaning: "server of a shared volume. Only [where there may be servers](nfs-servers.md#where-servers-may-be): a claim that names another one waits, and its events say what allows it",
		},
	},
	Hints: map[string]string{
		"fstype": fsTypeKey, "type": fsTypeKey, "filesystem": fsTypeKey, FSType: "did you mean " + FSType + "?",
		"server": "did you mean " + NFSServer + "?", "mountoptions": mountOptions, "reclaimpolicy": reclaimPolicy,
		GID: ofPlain, Squash: ofPlain, strings.ToLower(RootSquash): ofPlain, strings.ToLower(OnDelete): ofPlain,
	},
}

// Plain are StorageClasses of the provisioner of plain NFS volumes. No sidecar reads them, so keys of Kubernetes have no
// meaning there.
var Plain = Class{
	Name: "a StorageClass of nfs.holdfast.dev", AnyCase: true,
	Parameters: []Parameter{
		{
			Key: NFSServer, Allowed: "the NAMESPACE/NAME or the NAME of an NFSServer", Pattern: serverOrName, Default: "the oldest with storage",
			Meaning: "server of the volume. A NAME alone is the oldest server with storage of that name, in any namespace that may have servers",
		},
		number(Parameter{
			Key: GID, Default: "`none`",
			Meaning: "the group that owns the top directory, which new files inherit (mode 2770); pods get it as a supplemental group",
		}, math.MaxUint32-1, "none"),
		oneOf(Parameter{
			Key: Squash, Default: "the server's", Never: []string{RootSquash + "=true", RootSquash + "=false"}, Meaning: "which users the server replaces",
		}, "no_root_squash", "root_squash", "all_squash"),
		oneOf(Parameter{Key: RootSquash, Default: "the server's", Meaning: "`true` is `squash: root_squash`, `false` is `squash: no_root_squash`"}, "true", "false"),
		number(Parameter{Key: Inodes, Default: "the file system's", Meaning: "maximum number of files"}, math.MaxInt64),
		enum(Parameter{
			Key: OnDelete, Default: "`Delete`",
			Meaning: "of volumes with the reclaim policy Delete: `Delete` removes the data, `Retain` keeps volume and export, until `holdfast volumes delete NAME`, " +
				"`Archive` keeps a snapshot, until `holdfast snapshots delete NAME`",
		}, "Delete", "Retain", "Archive"),
	},
	Hints: map[string]string{
		"server": "did you mean " + NFSServer + "?", "mountoptions": mountOptions, "reclaimpolicy": reclaimPolicy,
		"fstype": serverChooses, "type": serverChooses, "filesystem": serverChooses, FSType: serverChooses,
		Pool: ofCSI, Provisioning: ofCSI, strings.ToLower(MkfsOptions): ofCSI, strings.ToLower(OnNodeLoss): ofCSI, Shared: ofCSI,
	},
}

func checkMkfs(value string, read map[string]string) error {
	_, err := mkfs.Parse(cmp.Or(read[FSType], "ext4"), strings.Fields(value))
	return err
}

const serverChooses = "the server chooses the file system of its volumes"

// Inline are the attributes of inline ephemeral volumes, which a pod gives. The kubelet adds keys of Kubernetes.
var Inline = Class{
	Name: "an inline ephemeral volume", AllowsReserved: true,
	Parameters: []Parameter{
		{Key: InlineSize, Allowed: "a whole number of bytes such as 1073741824, 512Mi or 10Gi", Pattern: quantity, Default: "1Gi, or the most that is allowed", Meaning: "size of the volume"},
		{Key: Pool, Allowed: "the name of a pool", Pattern: poolName, Default: "the first that is allowed", Meaning: "[pool](pools.md) of the volume"},
		oneOf(Parameter{Key: InlineFSType, Default: "`ext4`", Meaning: "file system; engine `Image`"}, "ext4", "xfs", "btrfs"),
		enum(Parameter{Key: Provisioning, Default: "`Thin`", Meaning: "as of a StorageClass"}, "Thin", "Thick"),
		number(Parameter{Key: Inodes, Default: "as of a StorageClass", Meaning: "maximum number of files; not on btrfs"}, math.MaxInt64),
	},
	Hints: map[string]string{
		"type": "use " + InlineFSType, "filesystem": "use " + InlineFSType,
		strings.ToLower(MkfsOptions): ofCSI, strings.ToLower(OnNodeLoss): ofCSI, Shared: ofCSI, strings.ToLower(NFSServer): ofCSI,
	},
}

// Snapshot and GroupSnapshot are the classes of snapshots, which have no parameters but those of Kubernetes.
var (
	Snapshot      = Class{Name: "a VolumeSnapshotClass", AllowsReserved: true}
	GroupSnapshot = Class{Name: "a VolumeGroupSnapshotClass", AllowsReserved: true}
)

func oneOf(p Parameter, values ...string) Parameter {
	p.Pattern = regexp.MustCompile("^(" + strings.Join(values, "|") + ")$")
	last := len(values) - 1
	p.Allowed = strings.Join(values[:last], ", ") + " or " + values[last]
	return p
}

// enum is oneOf for values that are spelled as in the API, and read in any case.
func enum(p Parameter, values ...string) Parameter {
	p = oneOf(p, values...)
	p.Pattern, p.AnyCase = regexp.MustCompile("(?i)"+p.Pattern.String()), true
	return p
}

// number allows those from 1 to most, and the other values.
func number(p Parameter, most uint64, others ...string) Parameter {
	p.Pattern = regexp.MustCompile("^(" + strings.Join(append(others, "[0-9]{1,19}"), "|") + ")$")
	p.Max = most
	p.Allowed = strings.Join(append(others, fmt.Sprintf("a whole number from 1 to %d", most)), " or ")
	return p
}
