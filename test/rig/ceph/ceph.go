// Package ceph runs a real, small Ceph cluster for tests: a monitor, a manager, an OSD and, on request, a metadata server,
// as plain child processes in a scratch directory. Each can be killed and started again.
//
// Nothing of it outlives its caller, also when that is killed: the kernel ends the daemons with it, and a keeper removes
// the directory.
package ceph

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

// Options say what to run. The zero value is what the most tests need.
type Options struct {
	Address string    // where the daemons listen: 127.0.0.1 unless a guest must reach them
	Bytes   int64     // of the OSD's disk, which is a sparse file; 0: 32 GiB
	MDS     bool      // a metadata server too, and the file system FileSystem
	Log     io.Writer // gets what the daemons print; may be nil
}

// Cluster is a running Ceph.
type Cluster struct {
	FSID      string
	Monitor   string // address of the monitor: HOST:PORT, of the protocol's version 2
	MonitorV1 string // the same, of version 1, which old kernels speak
	Dir       string // has ceph.conf and ceph.client.admin.keyring

	options Options
	log     *output
	release io.Closer // of the keeper

	mu      sync.Mutex
	daemons map[Daemon]*process
}

// FileSystem is the name of the file system of a cluster with a metadata server.
const FileSystem = "files"

// Patience is far more than anything here takes, also on a machine of which others have most.
const Patience = 10 * time.Minute

// Missing says what is not installed, or "".
func Missing() string {
	for _, name := range []string{"ceph-mon", "ceph-mgr", "ceph-osd", "ceph-mds", "ceph"} {
		if _, err := exec.LookPath(name); err != nil {
			return name + " is not installed; the Debian packages ceph-mon, ceph-mgr, ceph-osd, ceph-mds and ceph-common bring it"
		}
	}
	return ""
}

// Require skips a test where Ceph is not installed.
func Require(t testing.TB) {
	t.Helper()
	if missing := Missing(); missing != "" {
		hostfs.Skip(t, "ceph", missing)
	}
}

// Start runs a cluster until the test ends.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	Require(t)
	c := check.Got(Run(t.Context(), o))(t)
	t.Cleanup(func() {
		check.Report(t, c.Stop())
	})
	return c
}

// Main runs the tests of a package with one cluster for all of them, which stays nil where Ceph is not installed. What it
// returns is the status of the process.
func Main(tests func() int, o Options, cluster **Cluster) int {
	if Missing() == "" {
		c, err := Run(context.Background(), o)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = c.Stop() }() // what is left is removed by its keeper
		*cluster = c
	}
	return tests()
}

// Run starts a cluster and returns when it is healthy. Its caller stops it.
func Run(ctx context.Context, o Options) (_ *Cluster, err error) {
	const bytes = 32 << 30
	o.Address, o.Bytes = cmp.Or(o.Address, "127.0.0.1"), cmp.Or(o.Bytes, bytes)
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	c := &Cluster{options: o, log: &output{also: o.Log}, daemons: map[Daemon]*process{}}
	if c.Dir, err = os.MkdirTemp("", "holdfast-ceph-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("starting Ceph: %w; it printed:\n%s", err, c.log), c.Stop())
		}
	}()
	if err := c.keep(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(c.Dir))
	}
	if err := c.configure(); err != nil {
		return nil, err
	}
	for _, begin := range []func(context.Context) error{c.beginMonitor, c.beginManager, c.beginOSD} {
		if err := begin(ctx); err != nil {
			return nil, err
		}
	}
	if o.MDS {
		if err := c.beginMDS(ctx); err != nil {
			return nil, err
		}
	}
	if err := c.AwaitHealthy(ctx); err != nil || !o.MDS {
		return c, err
	}
	return c, c.await(ctx, "the room of the file system", func(ctx context.Context) error { return c.measured(ctx, FileSystem+".data") })
}

// keeper removes the directory when its standard input ends, which is when its owner closes it or dies. What the daemons
// write while they die may be in its way for a moment.
const keeper = `read -r _; i=0; until rm -rf "$1" 2>/dev/null || [ $((i += 1)) -gt 100 ]; do sleep 0.1; done`

func (c *Cluster) keep() error {
	cmd := exec.Command("sh", "-c", keeper, "sh", c.Dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a terminal does not interrupt it
	held, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	c.release = closer(func() error {
		held.Close()
		return cmd.Wait()
	})
	return nil
}

type closer func() error

func (c closer) Close() error { return c() }

// Stop ends all daemons and removes all of the cluster.
func (c *Cluster) Stop() error {
	for _, d := range []Daemon{MDS, Manager, OSD, Monitor} {
		c.Kill(d)
	}
	if c.release == nil {
		return nil
	}
	return c.release.Close()
}

// Ceph runs the command line of an administrator and returns what it prints.
func (c *Cluster) Ceph(ctx context.Context, args ...string) (string, error) {
	return c.Command(ctx, "ceph", args...)
}

// Command runs one of Ceph's programs, such as rbd, with the rights of an administrator.
func (c *Cluster) Command(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, append([]string{"--conf", c.file("ceph.conf")}, args...)...)
	var out, said strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, said.String())
	}
	return strings.TrimSpace(out.String()), nil
}

func (c *Cluster) file(name string) string { return filepath.Join(c.Dir, name) }

// output keeps the end of what the daemons print.
type output struct {
	mu   sync.Mutex
	b    []byte
	also io.Writer
}

const kept = 64 << 10

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.b = append(o.b, p...)
	if over := len(o.b) - kept; over > 0 {
		o.b = o.b[over:]
	}
	if o.also != nil {
		return o.also.Write(p)
	}
	return len(p), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.b)
}
