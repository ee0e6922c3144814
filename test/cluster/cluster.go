package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"github.com/holdfast-storage/holdfast/test/cluster/host"
)

// Cluster is one cluster on this machine. Everything it keeps lies in its directory; everything else it makes has a
// name that follows from its own, so that a crash loses nothing.
type Cluster struct {
	Name      string
	Dir       string
	State     State
	OldestAPI bool // up builds and starts the API server and the scheduler of the oldest Kubernetes that is supported
	APIOnly   bool // up starts etcd, the API server and the controllers, and neither a node nor a scheduler
}

// State is what cannot be derived from the name.
type State struct {
	Network     int    `json:"network"` // the cluster has 10.<Network>.0.0/16
	KubeletRoot string `json:"kubeletRoot"`
	Nodes       []Node `json:"nodes"`
	Lent        []int  `json:"lent,omitempty"` // loop devices of the node plugin that were there before
}

const (
	defaultBase        = "/var/lib/holdfast-cluster"
	defaultKubeletRoot = "/var/lib/kubelet"
	stateFile          = "cluster.json"
)

var nameRule = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,28}[a-z0-9])?$`)

// NewCluster names a cluster; whether it exists, Load says.
func NewCluster(base, name string) (*Cluster, error) {
	if !nameRule.MatchString(name) {
		return nil, fmt.Errorf("name %q: give 1 to 30 of a-z, 0-9 and -, with - not first or last", name)
	}
	base, err := filepath.Abs(base)
	if err != nil {
		return nil, err
	}
	return &Cluster{Name: name, Dir: filepath.Join(base, name)}, nil
}

// Load reads the state; a cluster that does not exist is fs.ErrNotExist.
func (c *Cluster) Load() error {
	data, err := os.ReadFile(c.path(stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no cluster %q in %s: %w", c.Name, filepath.Dir(c.Dir), err)
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, &c.State); err != nil {
		return fmt.Errorf("%s: %w", c.path(stateFile), err)
	}
	return nil
}

func (c *Cluster) save() error {
	data, err := json.MarshalIndent(c.State, "", "  ")
	if err != nil {
		return err
	}
	return host.WriteFile(c.path(stateFile), data, 0o644)
}

func (c *Cluster) path(elements ...string) string {
	return filepath.Join(append([]string{c.Dir}, elements...)...)
}

func (c *Cluster) hash() uint32 {
	h := fnv.New32a()
	h.Write([]byte(c.Dir))
	return h.Sum32()
}

// cgroup is the group of all processes of the cluster, in every hierarchy. The hash distinguishes clusters of one name
// in different directories.
func (c *Cluster) cgroup() string { return fmt.Sprintf("hfc-%s-%08x", c.Name, c.hash()) }

// link is the machine's end of the wire to the cluster's network.
func (c *Cluster) link() string { return fmt.Sprintf("hfc%08x", c.hash()) }

func (c *Cluster) netns() string { return c.path("netns") }

func (c *Cluster) record(process string) string { return c.path("run", process+".json") }

func (c *Cluster) log(process string) string { return c.path("logs", process+".log") }

// pools is a directory that each node has to itself, for what is to go with the cluster.
func (c *Cluster) pools() string { return c.path("pools") }

// address returns an address in the cluster's /16.
func (c *Cluster) address(third, fourth int) string {
	return fmt.Sprintf("10.%d.%d.%d", c.State.Network, third, fourth)
}

// The /16: .0.0/24 the nodes and, as its last address, the machine; .64.0/18 services; .128.0/17 pods, a /24 for each node.
func (c *Cluster) machineAddress() string { return c.address(0, 254) }
func (c *Cluster) controlAddress() string { return c.address(0, 1) }
func (c *Cluster) serviceCIDR() string    { return c.address(64, 0) + "/18" }
func (c *Cluster) firstService() string   { return c.address(64, 1) }
func (c *Cluster) dnsAddress() string     { return c.address(64, 10) }
func (c *Cluster) podCIDR() string        { return c.address(128, 0) + "/17" }
func (c *Cluster) server() string         { return "https://" + c.controlAddress() + ":6443" }
func (c *Cluster) kubeconfig() string     { return c.path("kubeconfig") }
