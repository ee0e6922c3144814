// Package driver serves a backend over CSI: the identity, controller, group controller and node services on one
// unix socket. It keeps no state of its own: what the backend says and what the kernel has mounted is all it knows,
// so it may be killed and started again at any time.
package driver

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-storage/holdfast/backend"
)

const (
	// DefaultName is the driver's name in StorageClasses.
	DefaultName = "csi.holdfast.dev"
	// TopologyKey is the node label by which volumes say where they are.
	TopologyKey = "topology.holdfast.dev/node"
	// DefaultStopTimeout bounds how long a stop waits for running calls.
	DefaultStopTimeout = 30 * time.Second
)

// Config is what a Driver needs.
type Config struct {
	Name        string // DefaultName if empty
	Version     string
	NodeID      string
	Endpoint    string // unix:///path
	Backend     backend.Backend
	MaxVolumes  int64 // that this node may use at once; 0 leaves it to the caller
	StopTimeout time.Duration
	Log         *slog.Logger
	Registerer  prometheus.Registerer // nil registers no metrics
}

// Driver serves one backend.
type Driver struct {
	Config
	socket string
	calls  *calls
	ops    backend.Operations // of the node service, by volume
}

var (
	namePattern = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9.-]{0,61}[a-zA-Z0-9])?$`)
	nodePattern = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9._-]{0,61}[a-zA-Z0-9])?$`)
)

// New checks the configuration.
func New(c Config) (*Driver, error) {
	c.Name = cmp.Or(c.Name, DefaultName)
	c.StopTimeout = cmp.Or(c.StopTimeout, DefaultStopTimeout)
	socket, err := socketPath(c.Endpoint)
	switch {
	case err != nil:
		return nil, err
	case !namePattern.MatchString(c.Name):
		return nil, fmt.Errorf("driver name %s: it must be a domain name of at most 63 bytes, such as %s", backend.Quote(c.Name), DefaultName)
	case !nodePattern.MatchString(c.NodeID):
		return nil, fmt.Errorf("node id %s: it must be 1 to 63 of letters, digits, -, _ and ., and begin and end with a letter or digit", backend.Quote(c.NodeID))
	case c.MaxVolumes < 0:
		return nil, fmt.Errorf("max volumes %d is negative; 0 means no limit", c.MaxVolumes)
	case c.Backend == nil:
		return nil, errors.New("a driver needs a backend")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	d := &Driver{Config: c, socket: socket}
	d.calls = newCalls(c.Log, &d.ops)
	if c.Registerer != nil {
		if err := d.calls.register(c.Registerer); err != nil {
			return nil, err
		}
	}
	return d, nil
}
