package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/holdfast-storage/holdfast/test/cluster/host"
)

// Both lie outside of any cluster: a removed one can be locked too, and all know of each other.
const (
	locks     = "/run/holdfast-cluster"
	claimsDir = defaultBase + "/.claims"
)

// Lock keeps other commands away from this cluster. It waits for longer than a node takes to boot.
func (c *Cluster) Lock(ctx context.Context) (unlock func(), err error) {
	file := filepath.Join(locks, c.cgroup())
	if unlock, err = host.Lock(ctx, file, time.Second); err != nil {
		fmt.Fprintf(os.Stderr, "another command works on cluster %s; waiting for it\n", c.Name)
		unlock, err = host.Lock(ctx, file, 10*time.Minute)
	}
	if err != nil {
		return nil, fmt.Errorf("another command works on cluster %s, and has not ended; end it: %w", c.Name, err)
	}
	return unlock, nil
}

// Claim takes what clusters must not share, a network and a kubelet directory, and writes it down.
func (c *Cluster) Claim(ctx context.Context) error {
	unlock, err := lockClaims(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := c.Load(); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	claimed, err := claims()
	if err != nil {
		return err
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return err
	}
	if c.State.Network, err = freeNetwork(int(c.hash()%networks), claimed, addresses); err != nil {
		return err
	}
	c.State.KubeletRoot = c.freeKubeletRoot(defaultKubeletRoot, claimed)
	defaultOurs := c.State.KubeletRoot == defaultKubeletRoot || slices.ContainsFunc(claimed, func(o claim) bool { return o.DefaultOurs })
	c.State.Lent = lentLoops()
	c.State.Nodes = []Node{{Name: "node1", Number: 1}}
	data, err := json.Marshal(claim{Dir: c.Dir, Network: c.State.Network, KubeletRoot: c.State.KubeletRoot, DefaultOurs: defaultOurs})
	if err != nil {
		return err
	}
	// The claim first: a claim without a cluster counts for nothing.
	return errors.Join(host.WriteFile(c.claimFile(), data, 0o644), c.save())
}

// lockClaims keeps others from claiming, and from leaving what they have claimed.
func lockClaims(ctx context.Context) (unlock func(), err error) {
	return host.Lock(ctx, filepath.Join(locks, "claims"), time.Minute)
}

func (c *Cluster) claimFile() string { return filepath.Join(claimsDir, c.cgroup()) }

// claim is what others must know, wherever this cluster's directory is.
type claim struct {
	Dir         string `json:"dir"`
	Network     int    `json:"network"`
	KubeletRoot string `json:"kubeletRoot"`
	// DefaultOurs: only kubelets of clusters have ever been in the default directory. Wherever a kubelet lives, it talks
	// to device plugins there, and pods may make directories there.
	DefaultOurs bool `json:"defaultOurs"`
}

// claims returns what the clusters of this machine have taken.
func claims() ([]claim, error) {
	files, err := filepath.Glob(filepath.Join(claimsDir, "*"))
	if err != nil {
		return nil, err
	}
	var all []claim
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var c claim
		if err := json.Unmarshal(data, &c); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if _, err := os.Stat(filepath.Join(c.Dir, stateFile)); err == nil {
			all = append(all, c)
		}
	}
	return all, nil
}

const firstNetwork, networks = 128, 96

// freeNetwork returns the second octet of a /16 that no cluster has claimed and no interface of the machine uses.
func freeNetwork(wish int, claimed []claim, addresses []net.Addr) (int, error) {
	for i := range networks {
		network := firstNetwork + (wish+i)%networks
		taken := slices.ContainsFunc(claimed, func(c claim) bool { return c.Network == network })
		if !taken && !usedBy(network, addresses) {
			return network, nil
		}
	}
	return 0, fmt.Errorf("all networks from 10.%d.0.0/16 to 10.%d.0.0/16 are in use", firstNetwork, firstNetwork+networks-1)
}

func usedBy(network int, addresses []net.Addr) bool {
	return slices.ContainsFunc(addresses, func(a net.Addr) bool {
		ipnet, ok := a.(*net.IPNet)
		if !ok || ipnet.IP.To4() == nil {
			return false
		}
		ip := ipnet.IP.To4()
		return ip[0] == 10 && (int(ip[1]) == network || ipnet.Contains(net.IPv4(10, byte(network), 0, 1)))
	})
}

// freeKubeletRoot prefers the default, where test suites look; only one cluster can have it.
func (c *Cluster) freeKubeletRoot(wish string, claimed []claim) string {
	entries, err := os.ReadDir(wish)
	free := errors.Is(err, fs.ErrNotExist) || (err == nil && len(entries) == 0)
	if !free || slices.ContainsFunc(claimed, func(o claim) bool { return o.KubeletRoot == wish }) {
		return c.path("kubelet")
	}
	return wish
}
