//go:build ceph

package ceph

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/ceph/go-ceph/rados"

	"github.com/holdfast-storage/holdfast/backend"
)

// Cluster is a connection to a Ceph cluster, which is made when it is first needed, and again after Forget.
type Cluster struct {
	config Config
	log    *slog.Logger

	of *Cluster // whose commands to the manager it carries; nil: it carries all others

	mu         sync.Mutex
	manager    *Cluster    // nil: not needed yet
	conn       *rados.Conn // nil: there is none
	dialing    *dialing    // nil: none is being made
	closed     bool
	running    map[*running]struct{}
	operations map[operationKey]*operation
}

// dialing is an attempt to connect, on which all wait that need the connection.
type dialing struct {
	done chan struct{}
	err  error
}

// New returns a cluster without connecting to it.
func New(c Config, log *slog.Logger) (*Cluster, error) {
	if err := c.Complete(); err != nil {
		return nil, err
	}
	return &Cluster{
		config: c, log: log.With("cluster", strings.Join(c.Monitors, ","), "user", c.User),
		running: map[*running]struct{}{}, operations: map[operationKey]*operation{},
	}, nil
}

// Manager is the cluster by another connection, for commands to its manager. They have no limit of time in Ceph's library:
// when it gives such a command up, it frees the memory into which it writes the answer that comes late, and the process
// dies of that. Call limits the time of callers here too.
func (c *Cluster) Manager() *Cluster {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.manager == nil {
		c.manager = &Cluster{
			of: c, config: c.config, log: c.log, closed: c.closed,
			running: map[*running]struct{}{}, operations: map[operationKey]*operation{},
		}
	}
	return c.manager
}

// Config is what the cluster was made with, with what was left to choose.
func (c *Cluster) Config() Config { return c.config }

var errClosed = errors.New("the connection to Ceph was closed")

// Close waits until no call runs, or ctx ends, and ends the connection.
func (c *Cluster) Close(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
	manager := c.manager
	c.mu.Unlock()
	if manager != nil {
		if err := manager.Close(ctx); err != nil {
			return err
		}
	}
	if err := c.Idle(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		c.conn.Shutdown()
		c.conn = nil
	}
	return nil
}

// Idle waits until no call runs, not even one whose caller has given it up, or ctx ends.
func (c *Cluster) Idle(ctx context.Context) error {
	for {
		r := c.oldest()
		if r == nil {
			return nil
		}
		select {
		case <-r.done:
		case <-ctx.Done():
			return fmt.Errorf("%w: %s: %w", backend.ErrUnavailable, r, ctx.Err())
		}
	}
}

// Forget gives up a connection that the cluster has cut off. The next call makes another one.
func (c *Cluster) Forget(conn *rados.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn != nil && c.conn == conn {
		c.conn = nil // its memory is freed when the last call that uses it has ended
	}
}

// connect returns the connection, and makes it if there is none. All who want it wait for one attempt.
func (c *Cluster) connect() (*rados.Conn, error) {
	c.mu.Lock()
	switch {
	case c.conn != nil:
		defer c.mu.Unlock()
		return c.conn, nil
	case c.dialing != nil:
		d := c.dialing
		c.mu.Unlock()
		<-d.done
		c.mu.Lock()
		defer c.mu.Unlock()
		if d.err != nil {
			return nil, d.err
		}
		if c.conn == nil {
			return nil, errClosed
		}
		return c.conn, nil
	}
	d := &dialing{done: make(chan struct{})}
	c.dialing = d
	c.mu.Unlock()
	conn, err := c.dial()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn, c.dialing, d.err = conn, nil, err
	close(d.done)
	return conn, err
}

// dial connects. Nothing is read of the host's own configuration and keyrings.
func (c *Cluster) dial() (*rados.Conn, error) {
	conn, err := rados.NewConnWithUser(c.config.User)
	if err != nil {
		return nil, err
	}
	seconds := func(d time.Duration) string { return fmt.Sprint(max(1, int(d.Seconds()))) }
	monitors := seconds(c.config.Patience)
	if c.of != nil {
		monitors = "0"
	}
	mode := "crc secure" // as Ceph has it
	if c.config.Secure {
		mode = "secure"
	}
	for _, o := range [][2]string{
		{"mon_host", strings.Join(c.config.Spoken(), ",")},
		{"keyring", "/dev/null"},
		{"key", string(c.config.Key)},
		{"ms_client_mode", mode},
		{"ms_mon_client_mode", mode},
		{"log_file", ""},
		{"log_to_stderr", "false"},
		{"err_to_stderr", "false"},
		{"admin_socket", ""},
		{"client_mount_timeout", seconds(c.config.Patience)},
		{"rados_mon_op_timeout", monitors},
		// What waits for a disk goes on when that is back, and its caller is not kept (Call). With a limit the library gives
		// up what is being changed, and does not survive it: connections stay deaf, and opening images crashes.
		{"rados_osd_op_timeout", "0"},
		{"client_mount_uid", "0"}, // as any user of this host; the caps limit what it can do in a file system
		{"client_mount_gid", "0"},
		{"rbd_cache", "false"}, // what manages images writes nothing to them
	} {
		if err := conn.SetConfigOption(o[0], o[1]); err != nil {
			return nil, fmt.Errorf("option %s of Ceph's library: %w", o[0], err) // without the value, which may be the key
		}
	}
	if err := conn.Connect(); err != nil {
		return nil, err
	}
	is, err := conn.GetFSID()
	if err == nil && c.config.FSID != "" && is != c.config.FSID {
		err = fmt.Errorf("%w: the monitors %s are of the Ceph cluster with the fsid %s, and not of the configured one, %s; correct the monitors or the fsid", backend.ErrUnavailable, strings.Join(c.config.Monitors, ","), is, c.config.FSID)
	}
	if err != nil {
		conn.Shutdown()
		return nil, err
	}
	c.log.Info("connected to Ceph", "fsid", is)
	return conn, nil
}
