package v1beta1

// SiteKind says what has pools and is no node.
type SiteKind string

// The kinds of sites. A node has none.
const (
	SiteNFSServer SiteKind = "NFSServer"
	SiteCephPool  SiteKind = "CephPool"
)

// Site is who has the pools of a StorageNode: an NFS server, a Ceph pool, or else a node.
//
// +kubebuilder:object:generate=false
type Site struct {
	Kind SiteKind `json:"-"`
	Name string   `json:"-"` // NAMESPACE/NAME of an NFS server
}

// SiteOf returns who a StorageNode is, and so where the Volumes with its name in spec.node are.
func SiteOf(node string) Site {
	if server := ServerOf(node); server != "" {
		return Site{SiteNFSServer, server}
	}
	if pool := CephPoolOf(node); pool != "" {
		return Site{SiteCephPool, pool}
	}
	return Site{Name: node}
}

// String names it in messages.
func (s Site) String() string {
	switch s.Kind {
	case SiteNFSServer:
		return "NFS server " + s.Name
	case SiteCephPool:
		return "Ceph pool " + s.Name
	}
	return "node " + s.Name
}

// IsSite says whether a node is an NFS server or a Ceph pool. No Node object is behind a site.
func IsSite(node string) bool { return SiteOf(node).Kind != "" }
