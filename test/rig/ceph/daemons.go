package ceph

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-storage/holdfast/nodeops/child"
)

// Daemon names one of the cluster's processes.
type Daemon string

// The daemons, with the names that Ceph knows them by.
const (
	Monitor Daemon = "mon.a"
	Manager Daemon = "mgr.x"
	OSD     Daemon = "osd.0"
	MDS     Daemon = "mds.m"
)

type process struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

// Start starts a daemon that was killed, or was not there yet. It does not wait until it serves.
func (c *Cluster) Start(d Daemon) error {
	kind, id, _ := strings.Cut(string(d), ".")
	cmd := exec.Command("ceph-"+kind, "--foreground", "--conf", c.file("ceph.conf"), "--id", id)
	cmd.Stdout, cmd.Stderr = c.log, c.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a terminal does not interrupt it
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.daemons[d] != nil {
		return fmt.Errorf("%s runs already", d)
	}
	ended, err := child.Start(cmd)
	if err != nil {
		return err
	}
	p := &process{cmd: cmd, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		fmt.Fprintf(c.log, "%s ended: %v\n", d, <-ended)
	}()
	c.daemons[d] = p
	return nil
}

// Kill ends a daemon at once, as a power cut does, and waits for its end.
func (c *Cluster) Kill(d Daemon) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.daemons[d]; p != nil {
		p.cmd.Process.Kill()
		<-p.ended
		delete(c.daemons, d)
	}
}

// Pause makes a daemon as silent as one whose host hangs, until it is resumed.
func (c *Cluster) Pause(d Daemon) error { return c.signal(d, syscall.SIGSTOP) }

// Resume ends what Pause began.
func (c *Cluster) Resume(d Daemon) error { return c.signal(d, syscall.SIGCONT) }

func (c *Cluster) signal(d Daemon, s syscall.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.daemons[d]
	if p == nil {
		return fmt.Errorf("%s does not run", d)
	}
	return p.cmd.Process.Signal(s)
}

func (c *Cluster) ended(d Daemon) bool {
	c.mu.Lock()
	p := c.daemons[d]
	c.mu.Unlock()
	if p == nil {
		return true
	}
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// await asks again until it is so, a daemon ends, or ctx does.
func (c *Cluster) await(ctx context.Context, what string, so func(context.Context) error) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := so(ctx)
		if err == nil {
			return nil
		}
		c.mu.Lock()
		var running []Daemon
		for d := range c.daemons {
			running = append(running, d)
		}
		c.mu.Unlock()
		for _, d := range running {
			if c.ended(d) {
				return fmt.Errorf("%s ended while waiting for %s: %w", d, what, err)
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w: %w", what, context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}

func (c *Cluster) beginMonitor(ctx context.Context) error {
	keyring := c.file("mon/keyring")
	admin := c.file("ceph.client.admin.keyring")
	for _, argv := range [][]string{
		{"ceph-authtool", "--create-keyring", admin, "--gen-key", "-n", "client.admin", "--cap", "mon", "allow *", "--cap", "osd", "allow *", "--cap", "mgr", "allow *", "--cap", "mds", "allow *"},
		{"ceph-authtool", "--create-keyring", c.file("initial"), "--gen-key", "-n", "mon.", "--cap", "mon", "allow *"},
		{"ceph-authtool", c.file("initial"), "--import-keyring", admin},
		{"ceph-mon", "--conf", c.file("ceph.conf"), "--mkfs", "--id", "a", "--keyring", c.file("initial")},
	} {
		if out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, out)
		}
	}
	if _, err := os.Stat(keyring); err != nil {
		return err
	}
	if err := c.Start(Monitor); err != nil {
		return err
	}
	return c.await(ctx, "quorum", func(ctx context.Context) error {
		_, err := c.Ceph(ctx, "--connect-timeout", "5", "quorum_status")
		return err
	})
}

// key makes the account of a daemon and writes its keyring.
func (c *Cluster) key(ctx context.Context, d Daemon, caps ...string) error {
	kind, _, _ := strings.Cut(string(d), ".")
	_, err := c.Ceph(ctx, append([]string{"auth", "get-or-create", string(d), "-o", c.file(kind + "/keyring")}, caps...)...)
	return err
}

func (c *Cluster) beginManager(ctx context.Context) error {
	if err := c.key(ctx, Manager, "mon", "allow profile mgr", "osd", "allow *", "mds", "allow *"); err != nil {
		return err
	}
	return c.Start(Manager)
}

func (c *Cluster) beginOSD(ctx context.Context) error {
	id, err := newUUID()
	if err != nil {
		return err
	}
	if _, err := c.Ceph(ctx, "osd", "new", id); err != nil {
		return err
	}
	if err := c.key(ctx, OSD, "mon", "allow profile osd", "mgr", "allow profile osd", "osd", "allow *"); err != nil {
		return err
	}
	mkfs := exec.CommandContext(ctx, "ceph-osd", "--conf", c.file("ceph.conf"), "--id", "0", "--mkfs", "--osd-uuid", id)
	if out, err := mkfs.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", mkfs, err, out)
	}
	return c.Start(OSD)
}

func (c *Cluster) beginMDS(ctx context.Context) error {
	if err := c.key(ctx, MDS, "mon", "profile mds", "mgr", "profile mds", "mds", "allow *", "osd", "allow *"); err != nil {
		return err
	}
	if err := errors.Join(c.CreatePool(ctx, FileSystem+".meta"), c.CreatePool(ctx, FileSystem+".data")); err != nil {
		return err
	}
	if _, err := c.Ceph(ctx, "fs", "new", FileSystem, FileSystem+".meta", FileSystem+".data"); err != nil {
		return err
	}
	return c.Start(MDS)
}
