package v1beta1

import (
	"cmp"
	"strings"
)

// CephSpec is a Ceph cluster, and the part of it that is a pool. The cluster and the part cannot be changed: volumes are
// there. Monitors, users and keys can.
//
// +kubebuilder:validation:XValidation:rule=`!has(self.pool) || self.pool == "" || !has(self.filesystem) || self.filesystem == ""`,fieldPath=.pool,message="pool is for the engine RBD and filesystem for CephFS: give one of them"
// +kubebuilder:validation:XValidation:rule=`(has(self.pool) ? self.pool : "") == (has(oldSelf.pool) ? oldSelf.pool : "")`,fieldPath=.pool,message="cannot be changed, since volumes are there; add another pool"
// +kubebuilder:validation:XValidation:rule=`(has(self.dataPool) ? self.dataPool : "") == (has(oldSelf.dataPool) ? oldSelf.dataPool : "") || !has(oldSelf.dataPool) || oldSelf.dataPool == ""`,fieldPath=.dataPool,message="cannot be changed once it is set; add another pool"
// +kubebuilder:validation:XValidation:rule=`(has(self.filesystem) ? self.filesystem : "") == (has(oldSelf.filesystem) ? oldSelf.filesystem : "")`,fieldPath=.filesystem,message="cannot be changed, since volumes are there; add another pool"
// +kubebuilder:validation:XValidation:rule=`(has(self.__namespace__) ? self.__namespace__ : "") == (has(oldSelf.__namespace__) ? oldSelf.__namespace__ : "")`,fieldPath=.namespace,message="cannot be changed, since volumes are there; add another pool"
// +kubebuilder:validation:XValidation:rule=`!has(self.nodeSecretRef) || self.secretRef.name != self.nodeSecretRef.name`,fieldPath=.nodeSecretRef.name,message="it must be another secret than secretRef: nodes get a key that can do no more than use volumes"
// +kubebuilder:validation:XValidation:rule=`(has(self.user) && self.user != "" ? self.user : "holdfast") != (has(self.nodeUser) && self.nodeUser != "" ? self.nodeUser : "holdfast-node")`,fieldPath=.nodeUser,message="it must be another user than user: nodes get a key that can do no more than use volumes"
// +kubebuilder:validation:XValidation:rule=`!has(self.secure) || !self.secure || self.monitors.exists(m, m.startsWith("v2:"))`,fieldPath=.secure,message="only the messenger v2 encrypts: give monitors as v2:ADDRESS:PORT, such as v2:10.0.0.1:3300"
type CephSpec struct {
	// monitors of the cluster, each messenger of each of them as v2:ADDRESS:PORT or v1:ADDRESS:PORT. ceph mon dump has them.
	// Nodes and the pod of the pool must reach these addresses. They may change.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:XValidation:rule=`self.matches('^v[12]:([0-9]{1,3}([.][0-9]{1,3}){3}|[[][0-9a-fA-F:.]+[]]):[1-9][0-9]{0,4}$')`,message="it must be v2:ADDRESS:PORT or v1:ADDRESS:PORT, such as v2:10.0.0.1:3300 or v2:[fd00::1]:3300"
	Monitors []string `json:"monitors,omitempty"`
	// fsid is the UUID of the cluster, which ceph fsid prints. Another cluster that answers at the monitors' addresses is
	// not used.
	// +required
	// +kubebuilder:validation:MaxLength=36
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$')`,message="it must be the UUID that ceph fsid prints, in lowercase"
	// +kubebuilder:validation:XValidation:rule=`self == oldSelf`,message="cannot be changed, since volumes are there; add another pool"
	FSID string `json:"fsid"`
	// user that makes the volumes, without client.; holdfast if empty.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule=`self.matches('^([A-Za-z0-9][A-Za-z0-9._-]*)?$')`,message="it must be letters, digits and . _ -, without client., such as holdfast"
	// +kubebuilder:validation:XValidation:rule=`!self.startsWith('client.')`,message="leave out client."
	User string `json:"user,omitempty"`
	// nodeUser is the user as whom nodes mount volumes, without client.; holdfast-node if empty. Without nodeSecretRef it begins
	// the name of the user of each node.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule=`self.matches('^([A-Za-z0-9][A-Za-z0-9._-]*)?$')`,message="it must be letters, digits and . _ -, without client., such as holdfast-node"
	// +kubebuilder:validation:XValidation:rule=`!self.startsWith('client.')`,message="leave out client."
	NodeUser string `json:"nodeUser,omitempty"`
	// secretRef names the secret whose key named key is the key of user. No node gets it.
	// +required
	SecretRef CephSecretReference `json:"secretRef"`
	// nodeSecretRef names the secret whose key named key is the key of nodeUser. All nodes get it. Without it each node has a
	// user of its own, NODEUSER.POOL.NODE, which the pool makes, and removes when the node is shut out.
	// +optional
	NodeSecretRef CephSecretReference `json:"nodeSecretRef,omitzero"`
	// secure encrypts all that is sent, which takes monitors with the messenger v2.
	// +optional
	Secure bool `json:"secure,omitempty"`
	// pool of the images, for the engine RBD.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule=`self.matches('^([A-Za-z0-9][A-Za-z0-9._-]*)?$')`,message="it must be letters, digits and . _ -, and begin with a letter or digit"
	Pool string `json:"pool,omitempty"`
	// dataPool has the data of new volumes, such as an erasure-coded pool; if empty, pool, or the default of the file system.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule=`self.matches('^([A-Za-z0-9][A-Za-z0-9._-]*)?$')`,message="it must be letters, digits and . _ -, and begin with a letter or digit"
	DataPool string `json:"dataPool,omitempty"`
	// filesystem of the directories, for the engine CephFS.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule=`self.matches('^([A-Za-z0-9][A-Za-z0-9._-]*)?$')`,message="it must be letters, digits and . _ -, and begin with a letter or digit"
	Filesystem string `json:"filesystem,omitempty"`
	// namespace keeps the volumes apart from others. For the engine RBD it is a namespace of pool, if empty the one without
	// a name; for CephFS a subvolume group of filesystem, holdfast if empty.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule=`self.matches('^([A-Za-z0-9][A-Za-z0-9._-]*)?$')`,message="it must be letters, digits and . _ -, and begin with a letter or digit"
	Namespace string `json:"namespace,omitempty"`
}

// CephSecretReference names a secret in the namespace of Holdfast. What ceph auth get-key prints is the value of its key
// named key.
type CephSecretReference struct {
	// name of the secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')`,message="it must be a name of lowercase letters, digits, - and ., such as ceph-holdfast"
	Name string `json:"name"`
}

// CephKeyName is the key of a secret that CephSecretReference names.
const CephKeyName = "key"

// UserName is the user that makes the volumes.
func (c *CephSpec) UserName() string { return cmp.Or(c.User, "holdfast") }

// NodeUserName is the user as whom nodes mount volumes, or what those of all nodes begin with.
func (c *CephSpec) NodeUserName() string { return cmp.Or(c.NodeUser, "holdfast-node") }

// HasNodeUsers says whether each node has a user of its own.
func (c *CephSpec) HasNodeUsers() bool { return c.NodeSecretRef.Name == "" }

// Directory is where the volumes of a pool of directories are.
func (c *CephSpec) Directory() string { return "/volumes/" + cmp.Or(c.Namespace, "holdfast") }

// NodeUser is a user of a Ceph cluster that one node has for the volumes of a pool.
type NodeUser struct {
	// node that it is for.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node"`
	// publicKey that its key is encrypted to.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	PublicKey string `json:"publicKey"`
	// key of the user, encrypted so that the node alone can read it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Key string `json:"key"`
}

// Place says where the volumes of a pool are, as a path says it of others: ceph:FSID/pool/POOL/NAMESPACE or
// ceph:FSID/filesystem/FILESYSTEM/NAMESPACE.
func (c *CephSpec) Place() string {
	if c.Filesystem != "" {
		return "ceph:" + c.FSID + "/filesystem/" + c.Filesystem + "/" + c.Namespace
	}
	return "ceph:" + c.FSID + "/pool/" + c.Pool + "/" + c.Namespace
}

// cephNodeSuffix ends the name by which a Ceph pool is a node, as nfsNodeSuffix does that of an NFS server.
const cephNodeSuffix = ".ceph.holdfast.dev"

// NodeOfCephPool is the node that a Ceph pool is: the spec.node of its Volumes, and the name of its StorageNode.
func NodeOfCephPool(pool string) string { return pool + cephNodeSuffix }

// LeaseOfCephPool is the name of the Lease that the process holds which serves a Ceph pool.
func LeaseOfCephPool(pool string) string { return "holdfast-ceph-" + pool }

// CephPoolOf returns the Ceph pool that a node is, empty if it is none.
func CephPoolOf(node string) string {
	pool, is := strings.CutSuffix(node, cephNodeSuffix)
	if !is || strings.Contains(pool, ".") {
		return ""
	}
	return pool
}

// CephFSType is, in status.fsType, the file system of a volume that is a directory of a CephFS.
const CephFSType = "ceph"

// IsOfCephFS says whether a volume is a directory of a CephFS, which many nodes use at once.
func (o *Volume) IsOfCephFS() bool {
	return CephPoolOf(o.Spec.Node) != "" && o.Status.FSType == CephFSType
}

// Attaches says whether volumes are attached, so that VolumeAttachments show where each is used. Without them no one would
// keep two nodes from using one image in a Ceph cluster; a volume of a node needs none.
func (s *StorageClusterSpec) Attaches() bool {
	return len(CephPools(s.Pools)) > 0
}

// CephPools are the pools of a list that are in Ceph clusters.
func CephPools(all []PoolSpec) (pools []PoolSpec) {
	for _, p := range all {
		if p.Ceph != nil {
			pools = append(pools, p)
		}
	}
	return pools
}

// NodePools are the pools of a list that are on nodes.
func NodePools(all []PoolSpec) (pools []PoolSpec) {
	for _, p := range all {
		if p.Ceph == nil {
			pools = append(pools, p)
		}
	}
	return pools
}
