// Package kube is what an end-to-end test needs of a cluster: a namespace of its own, pods and claims in it, waits on
// watches, and everything that the cluster can show when the test fails.
package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
)

// Cluster is a cluster that Holdfast is installed in: one of test/cluster, or one that was given.
type Cluster struct {
	Name    string // or the path of its kubeconfig, if it was given
	Client  kubernetes.Interface
	Dynamic dynamic.Interface

	config     *rest.Config
	mapper     meta.ResettableRESTMapper
	dir        string // where the cluster keeps its logs
	kubeconfig string
	source     string // of the program that runs clusters
	scratch    string // has that program, built
	building   sync.Mutex
	holdfast   string // path of the tested program, once it is built
	run        string // is in the label of all namespaces
	turn       *os.File
	given      bool // it was not made by test/cluster: its machines are out of reach
}

// runLabel distinguishes the namespaces of runs.
const runLabel = "e2e.holdfast.dev/run"

// Connect finds a cluster by name with the program whose source is given, and waits until no other run uses it: a node
// may lose its power at any time. Close must be called in the end.
func Connect(ctx context.Context, name, source string) (*Cluster, error) {
	scratch, err := os.MkdirTemp("", "holdfast-e2e-program-")
	if err != nil {
		return nil, err
	}
	c := newCluster(name)
	c.source, c.scratch = source, scratch
	if err := c.connect(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("cluster %q: %w", name, err), c.release())
	}
	return c, nil
}

func newCluster(name string) *Cluster { return &Cluster{Name: name, run: rand.String(8)} }

func (c *Cluster) connect(ctx context.Context) error {
	build := exec.CommandContext(ctx, "go", "build", "-o", c.program(), ".")
	build.Dir = c.source
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w: %s", c.source, err, out)
	}
	out, err := c.Do(ctx, "kubeconfig")
	if err != nil {
		return err
	}
	kubeconfig := strings.TrimSpace(out)
	c.dir = filepath.Dir(kubeconfig)
	lock, err := os.OpenFile(filepath.Join(c.dir, "e2e.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := c.takeTurn(lock, os.Stderr); err != nil {
		return err
	}
	return c.clients(kubeconfig)
}

func (c *Cluster) clients(kubeconfig string) (err error) {
	c.kubeconfig = kubeconfig
	c.config, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	c.config.QPS = -1 // the tests do not wait for themselves
	c.Client, err = kubernetes.NewForConfig(c.config)
	if err != nil {
		return err
	}
	c.Dynamic, err = dynamic.NewForConfig(c.config)
	if err != nil {
		return err
	}
	c.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.Client.Discovery()))
	return nil
}

// takeTurn holds the lock of a file until Close or the end of the process.
func (c *Cluster) takeTurn(file *os.File, out io.Writer) error {
	c.turn = file
	err := unix.Flock(int(c.turn.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		fmt.Fprintf(out, "waiting for another run of the tests in cluster %s to end\n", c.Name)
		err = unix.Flock(int(c.turn.Fd()), unix.LOCK_EX)
	}
	return err
}

// Close waits until nothing is left of the tests, removes what Connect built, and lets the next run begin.
func (c *Cluster) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	left := ended(ctx, c, c.Client.CoreV1().Namespaces(), metav1.ListOptions{LabelSelector: runLabel + "=" + c.run}, every)
	return errors.Join(left, c.release())
}

func (c *Cluster) release() error {
	if c.turn != nil {
		c.turn.Close()
	}
	if c.scratch == "" {
		return nil
	}
	return os.RemoveAll(c.scratch)
}

func (c *Cluster) program() string { return filepath.Join(c.scratch, "cluster") }

// Do runs a command of the cluster's program and returns what it printed.
func (c *Cluster) Do(ctx context.Context, args ...string) (string, error) {
	if c.given {
		return "", fmt.Errorf("cluster of %s: it is no cluster of test/cluster, whose program does %q", c.Name, args)
	}
	var errs strings.Builder
	cmd := exec.CommandContext(ctx, c.program(), append([]string{"-name", c.Name}, args...)...)
	cmd.Dir, cmd.Stderr = c.source, &errs
	cmd.WaitDelay = 10 * time.Second // a daemon that it started may hold its output
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("cluster -name %s %s: %w: %s%s", c.Name, strings.Join(args, " "), err, out, errs.String())
	}
	return string(out), nil
}
