package backend

// Access says how a node uses a volume. Exactly one field is set; it is data, and only nodeops acts on it.
type Access struct {
	Image     string // path of a disk image
	Directory string // path of a directory
	NFS       *NFS
	RBD       *RBD
	CephFS    *CephFS
}

// NFS is a volume that a server exports.
type NFS struct {
	Server string // address; empty inside the server itself, which does not know under which it is reached
	Path   string // that clients mount
}

// Ceph is a cluster, and as whom a node speaks to it. The key of that user is no part of it: a node has it from elsewhere.
type Ceph struct {
	FSID     string   // the UUID by which the cluster is known, wherever its monitors are
	Monitors []string // v2:ADDRESS:PORT or v1:ADDRESS:PORT, each of a messenger of a monitor
	User     string   // without client.
	Secure   bool     // all that is sent is encrypted, which takes monitors with the messenger v2
}

// RBD is a volume that is an image in a pool of a Ceph cluster. The volume's ID is its name.
type RBD struct {
	Cluster   Ceph
	Pool      string
	Namespace string // of the pool; most images are in the one without a name
	Image     string
	ImageID   string // of that image, which a later one of its name does not have; empty if it is not known
}

// CephFS is a volume that is a directory of a file system of a Ceph cluster. The volume's ID is in its path.
type CephFS struct {
	Cluster    Ceph
	FileSystem string
	Path       string
}
