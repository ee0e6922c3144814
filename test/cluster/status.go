package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/holdfast-storage/holdfast/test/cluster/host"
)

// Status reports of every component whether it runs and is ready, and fails when one is not.
func (c *Cluster) Status(ctx context.Context, out io.Writer) error {
	if err := c.Load(); err != nil {
		return err
	}
	components, err := c.components()
	if err != nil {
		return err
	}
	probe, err := c.newProbe()
	if err != nil {
		return err
	}
	for _, n := range c.guests() {
		components = append(components, n.guest(c, probe))
	}
	fmt.Fprintf(out, "cluster %s in %s, API server %s\n", c.Name, c.Dir, c.server())
	bad := 0
	for _, d := range components {
		said, ok := c.condition(ctx, d)
		if !ok {
			bad++
		}
		fmt.Fprintf(out, "  %-24s %s\n", d.name, said)
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d components are not ready; their logs are in %s; up starts what is missing", bad, len(components), c.path("logs"))
	}
	nodes, err := host.Run(ctx, c.kubectl("get", "nodes", "-o", "wide")...)
	fmt.Fprint(out, nodes)
	return err
}

func (c *Cluster) condition(ctx context.Context, d component) (said string, ok bool) {
	process, err := host.ReadProcess(c.record(d.name))
	if err != nil || !process.Alive() {
		return "does not run", false
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := d.ready(ctx); err != nil {
		return fmt.Sprintf("pid %d, not ready: %v", process.PID, err), false
	}
	return fmt.Sprintf("ready, pid %d", process.PID), true
}

// Restart ends one component and starts it again.
func (c *Cluster) Restart(ctx context.Context, steps Steps, name string) error {
	if err := c.Load(); err != nil {
		return err
	}
	d, err := c.find(name)
	if err != nil {
		return err
	}
	return steps.Do(ctx, "restart "+name, func(ctx context.Context, _ progress) (string, error) {
		if err := c.stop(ctx, name, stopGrace); err != nil {
			return "", err
		}
		return c.start(ctx, d)
	})
}
