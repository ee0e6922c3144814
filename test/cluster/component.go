package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/holdfast-storage/holdfast/test/cluster/host"
)

// component is one daemon of the cluster on this machine.
type component struct {
	name  string
	argv  []string
	ready func(ctx context.Context) error
}

const (
	startLimit = 5 * time.Minute
	stopGrace  = 10 * time.Second
	logTail    = 3000
)

// start starts the component unless it runs, and waits until it is ready.
func (c *Cluster) start(ctx context.Context, d component) (said string, err error) {
	const system = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	return c.launch(ctx, d, host.Daemon{
		Argv: d.argv, Dir: c.Dir, Log: c.log(d.name), Record: c.record(d.name), NetNS: c.netns(), Cgroup: c.cgroup() + "/daemons",
		Env: []string{"PATH=" + c.path("bin") + ":" + system, "KUBECONFIG="},
	})
}

func (c *Cluster) launch(ctx context.Context, d component, daemon host.Daemon) (said string, err error) {
	said = "runs already"
	process, err := host.ReadProcess(c.record(d.name))
	if err != nil || !process.Alive() {
		said = "started"
		if process, err = host.Start(ctx, daemon); err != nil {
			return "", c.explain(d.name, err)
		}
	}
	err = host.Until(ctx, startLimit, func() error {
		if !process.Alive() {
			return host.Final(errors.New("it has ended"))
		}
		return d.ready(ctx)
	})
	if err != nil {
		return "", c.explain(d.name, err)
	}
	return fmt.Sprintf("%s, pid %d", said, process.PID), nil
}

// runs reports whether the process that has that record is alive.
func (c *Cluster) runs(name string) bool {
	process, err := host.ReadProcess(c.record(name))
	return err == nil && process.Alive()
}

// explain adds the end of a component's log to an error.
func (c *Cluster) explain(name string, err error) error {
	return fmt.Errorf("%w\n--- the end of %s:\n%s", err, c.log(name), strings.TrimSpace(host.Tail(c.log(name), logTail)))
}

// stop ends the component. One that does not run is no error.
func (c *Cluster) stop(ctx context.Context, name string, grace time.Duration) error {
	process, err := host.ReadProcess(c.record(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := process.Stop(ctx, grace); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return os.Remove(c.record(name))
}

// components returns the daemons of this machine in the order in which they start.
func (c *Cluster) components() ([]component, error) {
	probe, err := c.newProbe()
	if err != nil {
		return nil, err
	}
	return append(c.controlPlane(probe), c.State.Nodes[0].daemons(c, probe)...), nil
}

// find returns the component of that name.
func (c *Cluster) find(name string) (component, error) {
	all, err := c.components()
	if err != nil {
		return component{}, err
	}
	var names []string
	for _, d := range all {
		if d.name == name {
			return d, nil
		}
		names = append(names, d.name)
	}
	return component{}, fmt.Errorf("there is no component %q; there are %s", name, strings.Join(names, ", "))
}
