package upgrade

import (
	"time"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/operator/rollout"
)

// observed is all that a decision depends on.
type observed struct {
	now     time.Time
	cluster *v1beta1.StorageCluster // nil: there is none
	current v1beta1.Image           // that the cluster should run, by its spec or the release
	other   string                  // the upgrade that runs first
	job     *v1beta1.NodeJob        // that pulls the image; nil: there is none
	nfsJob  *v1beta1.NodeJob        // that pulls the image of NFS servers; nil: there is none
	cephJob *v1beta1.NodeJob        // that pulls the image of pools in Ceph clusters; nil: there is none
	nodes   nodes
	// controller is the controller's own workload; its zero value with what is waited for if it was deleted.
	controller rollout.Workload
	// metadata is the version of the format on disk.
	metadata int
	nfs      servers
	ceph     v1beta1.Image // to pull for pools in Ceph clusters, which follow the StorageCluster; empty: none
	apps     applications  // only if the upgrade stops them
	trouble  string        // why the last pass failed
}

// nodes is the state of the node pods.
type nodes struct {
	none    bool          // the cluster is to have no node plugin
	image   v1beta1.Image // in the DaemonSet; empty: it was deleted
	rollout rollout.Result
	unready []unreadyNode
}

type unreadyNode struct{ name, why string }

// servers are the NFS servers.
type servers struct {
	image     v1beta1.Image // to pull on their nodes; empty: none
	nodes     []string
	unknown   bool     // they could not be looked at
	next      string   // NAMESPACE/NAME of the one that is being updated; empty: all are
	waiting   string   // what it waits for
	unawaited []string // did not serve when the upgrade began, or cannot be updated
}

// application uses volumes and can be stopped.
type application struct {
	kind, namespace, name string
	version               string // the resourceVersion of the object, against overwriting changes
	replicas              int32
	before                string // the replicas before it was stopped; empty: it was not
}

func (a application) String() string { return a.kind + " " + a.namespace + "/" + a.name }

// applications are those that use volumes of Holdfast.
type applications struct {
	unknown  bool // they could not be listed
	running  []application
	stopped  []application // by an upgrade
	blockers []string      // what uses volumes and cannot be stopped
	pods     []string      // that use volumes
}
