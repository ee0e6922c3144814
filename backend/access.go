package backend

import "strings"

// Access describes how a node reaches the data of a volume. Exactly one field is set. Only nodeops acts on it.
type Access struct {
	Image     string // path of a disk image
	Directory string // path of a directory
	NFS       *NFS
	RBD       *RBD
	CephFS    *CephFS
}

// NFS is a volume that an NFS server exports.
type NFS struct {
	Server string // address; empty inside the server, which does not know its own
	Port   int32  // 0: that of NFS
	Path   string // export path that clients mount
}

// Ceph describes a Ceph cluster and the user with whom a node connects to it. It does not contain the user's key.
type Ceph struct {
	FSID     string   // identifies the cluster, regardless of its monitors
	Monitors []string // addresses of monitors: v2:ADDRESS:PORT or v1:ADDRESS:PORT
	User     string   // without the prefix "client."; what all begin with, where each node has one of its own
	Secure   bool     // encrypt all traffic, which requires monitors with messenger v2
}

// HasOwnUsers says whether each node has a user of its own, NAME.POOL.NODE, and for which pool of Holdfast: User is NAME.POOL.
// with a point at its end, and the names of pools have none.
func (c Ceph) HasOwnUsers() (pool string, is bool) {
	before, is := strings.CutSuffix(c.User, ".")
	return before[strings.LastIndexByte(before, '.')+1:], is
}

// UserOf is the user of a node.
func (c Ceph) UserOf(node string) string {
	if _, own := c.HasOwnUsers(); own {
		return c.User + node
	}
	return c.User
}

// RBD is a volume that is an image in a pool of a Ceph cluster.
type RBD struct {
	Cluster   Ceph
	Pool      string
	Namespace string // RADOS namespace in the pool; usually empty
	Image     string // RBDImage of the volume's ID
	ImageID   string // distinguishes the image from a later one of the same name; empty if unknown
}

// RBDImage is the name of the image of a volume. By it a node recognizes the volume's devices when the backend does not answer.
func RBDImage(id ID) string { return "volume." + string(id) }

// CephFS is a volume that is a directory of a CephFS file system. The volume's ID is part of its path.
type CephFS struct {
	Cluster    Ceph
	FileSystem string
	Path       string
}
