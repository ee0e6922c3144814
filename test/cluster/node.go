package main

import (
	"context"
	"path/filepath"
	"time"

	"github.com/holdfast-storage/holdfast/test/cluster/config"
	"github.com/holdfast-storage/holdfast/test/cluster/host"
	"github.com/holdfast-storage/holdfast/test/cluster/image"
	"github.com/holdfast-storage/holdfast/test/cluster/pki"
)

// Node is one node. The first is this machine, all others are guests.
type Node struct {
	Name   string `json:"name"`
	Number int    `json:"number"` // from 1; its address and the network of its pods follow from it
}

func (n Node) machine() bool { return n.Number == 1 }

func (n Node) address(c *Cluster) string { return c.address(0, n.Number) }

func (n Node) podCIDR(c *Cluster) string { return c.address(128+n.Number, 0) + "/24" }

// file is one that this machine writes for the node.
func (n Node) file(c *Cluster, name string) string { return c.path("nodes", n.Name, name) }

// state is where the node keeps what it makes, as it sees it itself.
func (n Node) state(c *Cluster) string {
	if n.machine() {
		return c.path("nodes", n.Name)
	}
	return guestState
}

func (n Node) socket(c *Cluster) string { return filepath.Join(n.state(c), "run/containerd.sock") }

func (n Node) config(c *Cluster) config.Node {
	settings := config.Node{
		Name: n.Name, Address: n.address(c), Config: n.file(c, ""), Dir: n.state(c), PKI: c.path("pki"), Socket: n.socket(c),
		Pause: image.PauseName, Network: c.cgroup(), PodCIDR: n.podCIDR(c), ClusterCIDR: c.podCIDR(),
		CgroupRoot: "/" + c.cgroup(), ProxyMode: "nftables", DNSAddress: c.dnsAddress(),
	}
	if !n.machine() {
		settings.CgroupRoot, settings.ProxyMode = "/", "iptables" // the kernel of a guest lacks chains of nftables that translate addresses
	}
	return settings
}

// configure writes everything that the node's components read.
func (n Node) configure(c *Cluster) error {
	ca, err := pki.OpenAuthority(c.path("pki"), "ca")
	if err != nil {
		return err
	}
	kubelet := pki.Subject{User: "system:node:" + n.Name, Groups: []string{"system:nodes"}, Hosts: []string{n.Name, n.address(c)}}
	if err := ca.Issue(n.Name, kubelet); err != nil {
		return err
	}
	proxy := n.Name + "-proxy"
	if err := ca.Issue(proxy, pki.Subject{User: "system:kube-proxy"}); err != nil {
		return err
	}
	for user, file := range map[string]string{n.Name: "kubelet.kubeconfig", proxy: "kube-proxy.kubeconfig"} {
		if err := c.writeKubeconfig(user, n.file(c, file)); err != nil {
			return err
		}
	}
	settings := n.config(c)
	for file, render := range map[string]func() ([]byte, error){
		"containerd.toml": settings.Containerd, "registries/_default/hosts.toml": config.Registry,
		"cni/10-pods.conflist": settings.CNI, "kubelet.yaml": settings.Kubelet, "kube-proxy.yaml": settings.Proxy,
	} {
		data, err := render()
		if err != nil {
			return err
		}
		if err := host.WriteFile(n.file(c, file), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// daemons are what runs on every node.
func (n Node) daemons(c *Cluster, p *probe) []component {
	return []component{
		{"containerd", []string{"containerd", "--config", n.file(c, "containerd.toml")}, func(ctx context.Context) error {
			_, err := n.ctr(ctx, c, "version")
			return err
		}},
		{"kubelet", []string{
			c.path("bin", "kubelet"), "--config=" + n.file(c, "kubelet.yaml"), "--kubeconfig=" + n.file(c, "kubelet.kubeconfig"),
			"--root-dir=" + c.State.KubeletRoot, "--cert-dir=" + filepath.Join(n.state(c), "certificates"),
			"--hostname-override=" + n.Name, "--node-ip=" + n.address(c),
			// The usage of each container is requested each minute: every ten seconds is a third of what a guest does that idles.
			"--housekeeping-interval=1m",
		}, p.get("http://" + n.address(c) + ":10248/healthz")},
		// After the kubelet: without a Node it waits half a minute.
		{
			"kube-proxy",
			[]string{c.path("bin", "kube-proxy"), "--config=" + n.file(c, "kube-proxy.yaml")},
			p.get("http://" + n.address(c) + ":10256/healthz"),
		},
	}
}

func (n Node) ctr(ctx context.Context, c *Cluster, args ...string) (string, error) {
	return host.Run(ctx, append([]string{"ctr", "--address", n.socket(c), "--namespace", "k8s.io"}, args...)...)
}

// patience is far above what the API server needs to hear of anything on a machine that does other things too.
const patience = 5 * time.Minute

// waitReady waits until the API server has heard from the kubelet that it can run pods.
func (c *Cluster) waitReady(ctx context.Context, n Node) error {
	if err := c.waitFor(ctx, "node/"+n.Name, "create", "condition=Ready"); err != nil {
		return c.explain("kubelet", err)
	}
	// Pods are refused until the namespace has its account.
	return c.waitFor(ctx, "serviceaccount/default", "create")
}

// waitFor waits for each in turn. kubectl gives up at the first connection that is not made, as on a machine that has
// just been resumed, so it is called again until the time is over.
func (c *Cluster) waitFor(ctx context.Context, object string, all ...string) error {
	for _, what := range all {
		err := host.Until(ctx, patience, func() error {
			_, err := host.Run(ctx, c.kubectl("wait", "--for="+what, "--timeout=1m", object)...)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) kubectl(args ...string) []string {
	return append([]string{c.path("bin", "kubectl"), "--kubeconfig=" + c.kubeconfig()}, args...)
}
