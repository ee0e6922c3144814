// Package driver serves a backend over CSI: the identity, controller, group controller and node services on one unix
// socket, all of them for one host, or apart for a cluster. It keeps no state of its own but open descriptors: all
// state is in the backend and in the kernel's mounts, so it may be killed and restarted at any time.
package driver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
)

const (
	// DefaultName is the driver's name in StorageClasses.
	DefaultName = "csi.holdfast.dev"
	// TopologyKey is the node label by which volumes say where they are.
	TopologyKey = "topology.holdfast.dev/node"
	// SharedVolumesKey is the node label that says whether shared volumes can be mounted there.
	SharedVolumesKey = "topology.holdfast.dev/nfs"
	// RBDVolumesKey and CephFSVolumesKey are the node labels that say whether volumes of Ceph pools with that engine can be
	// used there.
	RBDVolumesKey    = "topology.holdfast.dev/rbd"
	CephFSVolumesKey = "topology.holdfast.dev/cephfs"
	// DefaultStopTimeout bounds how long a stop waits for running calls.
	DefaultStopTimeout = 30 * time.Second
	// DefaultPatience is how long a call waits for a server of shared volumes that does not answer. An unmount may wait
	// for it four times.
	DefaultPatience = 10 * time.Second
	// DefaultGiveUpAfter is longer than an NFS server is silent that moves to another node, with the grace period there.
	DefaultGiveUpAfter = 3 * time.Minute
)

// Services says which services a driver has besides identity.
type Services int

const (
	// AllServices is for one host, where all volumes are.
	AllServices Services = iota
	// ControllerServices is for all hosts of a cluster: the backend knows where each volume is.
	ControllerServices
	// NodeServices is for one host of a cluster, whose volumes are made by its own agent.
	NodeServices
)

// Config is what a Driver needs.
type Config struct {
	Name       string // DefaultName if empty
	Version    string
	Services   Services
	NodeID     string          // none with ControllerServices
	Attach     bool            // serve the calls of external-attacher, for clusters whose CSIDriver requires attaching
	Endpoint   string          // unix:///path
	Backend    backend.Backend // a backend.Storage, unless there are NodeServices alone
	MaxVolumes int64           // that this node may use at once; 0 leaves it to the caller
	Inline     Inline
	// Namespaces is a directory such as /proc/1/ns with the network from which servers of shared volumes are reached,
	// and the host name that they know this node by. Mounts last as long as that network namespace. Empty: those of
	// this process.
	Namespaces string
	// CephKeys has the keys of the users as whom this node uses volumes in Ceph clusters; nil: it has none.
	CephKeys CephKeys
	// CephClient is called before a volume in a Ceph cluster is used, with the client of the kernel that is to use it: by
	// that the node can be fenced. The volume is not used if it fails. May be nil.
	CephClient func(context.Context, backend.ID, nodeops.CephClient) error
	// CephShutOut is called before a volume that is staged is published, and fails while the node is to be shut out of the Ceph
	// clusters. dead says that it was: what is staged neither reads nor writes any more. May be nil.
	CephShutOut func(context.Context) (dead bool, err error)
	// CheckComplete is called before a volume is staged or published that its backend has as incomplete, which only the pod that brings
	// its content may use. It is not if that fails. May be nil.
	CheckComplete func(context.Context, backend.ID) error
	Patience      time.Duration // with a server of shared volumes that does not answer; DefaultPatience if 0
	GiveUpAfter   time.Duration // how long such a server is silent before unwritten data is lost; DefaultGiveUpAfter if 0
	StopTimeout   time.Duration
	Leading       <-chan struct{}  // until it is closed, another replica makes the volumes; nil: there is none
	Released      func(backend.ID) // called with each volume that is no longer in use here; may be nil
	Log           *slog.Logger
	Registerer    prometheus.Registerer // nil registers no metrics
}

// Driver serves one backend.
type Driver struct {
	Config
	storage  backend.Storage // may be nil with NodeServices alone
	socket   string
	calls    *calls
	stopping chan struct{}      // closed when Run begins to stop
	ops      backend.Operations // of the node service, by volume
	holds    holds
	found    lookUps                         // for taking volumes off this host
	deleted  lookUps                         // that were of one pod
	recalled lookUps                         // for usage and health
	mounts   func() ([]nodeops.Mount, error) // at the start, among which are the devices to hold again
}

var (
	namePattern = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9.-]{0,61}[a-zA-Z0-9])?$`)
	nodePattern = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9._-]{0,61}[a-zA-Z0-9])?$`)
)

// New checks the configuration.
func New(c Config) (*Driver, error) {
	c.Name = cmp.Or(c.Name, DefaultName)
	c.StopTimeout = cmp.Or(c.StopTimeout, DefaultStopTimeout)
	c.Patience, c.GiveUpAfter = cmp.Or(c.Patience, DefaultPatience), cmp.Or(c.GiveUpAfter, DefaultGiveUpAfter)
	socket, err := SocketPath(c.Endpoint)
	storage, able := c.Backend.(backend.Storage)
	switch {
	case err != nil:
		return nil, err
	case !namePattern.MatchString(c.Name):
		return nil, fmt.Errorf("driver name %s: it must be a domain name of at most 63 bytes, such as %s", backend.Quote(c.Name), DefaultName)
	case c.Services != ControllerServices && !nodePattern.MatchString(c.NodeID):
		return nil, fmt.Errorf("node id %s: it must be 1 to 63 of letters, digits, -, _ and ., and begin and end with a letter or digit", backend.Quote(c.NodeID))
	case len(c.Inline.Pools) > 0 && c.Inline.MaxSize <= 0:
		return nil, fmt.Errorf("inline ephemeral volumes are allowed in pool %s without a largest size; %s sets it", c.Inline.Pools[0], c.Inline.Field)
	case c.MaxVolumes < 0:
		return nil, fmt.Errorf("max volumes %d is negative; 0 means no limit", c.MaxVolumes)
	case c.Backend == nil, c.Services != NodeServices && !able:
		return nil, errors.New("a driver needs a backend, which can grow, copy and restore volumes unless the driver has NodeServices alone")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Leading == nil {
		always := make(chan struct{})
		close(always)
		c.Leading = always
	}
	d := &Driver{Config: c, storage: storage, socket: socket, stopping: make(chan struct{}), mounts: nodeops.Mounts}
	d.calls = &calls{c.Log, newMetrics(&d.ops, c.Registerer)}
	return d, nil
}
