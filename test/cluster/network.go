package main

import (
	"context"
	"net"
	"strings"

	"github.com/holdfast-storage/holdfast/test/cluster/host"
)

const nodeBridge = "nodes"

// makeNetwork makes the cluster's own network: a namespace with a bridge for the nodes, and a wire from the machine to
// that bridge. All addresses, ports and firewall rules of the cluster are in the namespace, so that two clusters never
// meet, the machine's rules stay as they are, and with the namespace everything is gone.
func (c *Cluster) makeNetwork(ctx context.Context) error {
	if err := host.MakeNetNS(c.netns()); err != nil {
		return err
	}
	wired, err := c.wired(ctx)
	if err != nil {
		return err
	}
	if !wired {
		if err := c.wire(ctx); err != nil {
			return err
		}
	}
	// The machine reaches services and pods through the first node.
	for _, cidr := range []string{c.serviceCIDR(), c.podCIDR()} {
		if _, err := host.Run(ctx, "ip", "route", "replace", cidr, "via", c.controlAddress(), "dev", c.link()); err != nil {
			return err
		}
	}
	const forward = "echo 1 >/proc/sys/net/ipv4/ip_forward"
	_, err = host.Run(ctx, "nsenter", "--net="+c.netns(), "sh", "-c", forward)
	return err
}

func (c *Cluster) inside(ctx context.Context, command string) (string, error) {
	return host.Run(ctx, append([]string{"nsenter", "--net=" + c.netns(), "ip"}, strings.Fields(command)...)...)
}

// wired looks for what wire makes last.
func (c *Cluster) wired(ctx context.Context) (bool, error) {
	route, err := c.inside(ctx, "route show default")
	return strings.Contains(route, nodeBridge), err
}

func (c *Cluster) wire(ctx context.Context) error {
	if err := c.removeLink(ctx); err != nil {
		return err
	}
	_, _ = c.inside(ctx, "link delete "+nodeBridge) // half made before a crash, or not there
	outside := func(ctx context.Context, command string) (string, error) {
		return host.Run(ctx, append([]string{"ip"}, strings.Fields(command)...)...)
	}
	for _, step := range []struct {
		run     func(context.Context, string) (string, error)
		command string
	}{
		{outside, "link add " + c.link() + " type veth peer name uplink netns " + c.netns()},
		{outside, "address add " + c.machineAddress() + "/24 dev " + c.link()},
		{outside, "link set " + c.link() + " up"},
		{c.inside, "link set lo up"},
		{c.inside, "link add " + nodeBridge + " type bridge"},
		{c.inside, "address add " + c.controlAddress() + "/24 dev " + nodeBridge},
		{c.inside, "link set uplink master " + nodeBridge + " up"},
		{c.inside, "link set " + nodeBridge + " up"},
		{c.inside, "route add default via " + c.machineAddress()},
	} {
		if _, err := step.run(ctx, step.command); err != nil {
			return err
		}
	}
	return nil
}

// removeLink removes both ends of the wire. The kernel does so itself, a moment after the namespace is gone.
func (c *Cluster) removeLink(ctx context.Context) error {
	_, err := host.Run(ctx, "ip", "link", "delete", c.link())
	if !linked(c.link()) {
		return nil
	}
	return err
}

func linked(name string) bool {
	_, err := net.InterfaceByName(name)
	return err == nil
}
