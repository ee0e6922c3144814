package main

import (
	"context"
	"fmt"
	"os"
	"slices"
)

// SaveState copies what etcd has at one instant into a directory that does not exist yet, as a backup of the cluster's
// objects does. Nodes and pods go on.
func (c *Cluster) SaveState(ctx context.Context, steps Steps, dir string) error {
	return c.withoutControlPlane(ctx, steps, "save state", func() error {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		return os.CopyFS(dir, os.DirFS(c.path("etcd")))
	})
}

// RestoreState puts etcd back to what SaveState has copied. All that came to the objects since is forgotten; what is on
// the nodes is not.
func (c *Cluster) RestoreState(ctx context.Context, steps Steps, dir string) error {
	return c.withoutControlPlane(ctx, steps, "restore state", func() error {
		if _, err := os.Stat(dir); err != nil {
			return err
		}
		if err := os.RemoveAll(c.path("etcd")); err != nil {
			return err
		}
		return os.CopyFS(c.path("etcd"), os.DirFS(dir))
	})
}

// withoutControlPlane stops the control plane, last what others need, and starts it again in the order in which it began.
func (c *Cluster) withoutControlPlane(ctx context.Context, steps Steps, what string, do func() error) error {
	if err := c.Load(); err != nil {
		return err
	}
	all, err := c.components()
	if err != nil {
		return err
	}
	daemons := map[string]component{}
	for _, d := range all {
		daemons[d.name] = d
	}
	order := []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}
	return steps.Do(ctx, what, func(ctx context.Context, _ progress) (string, error) {
		for _, name := range slices.Backward(order) {
			if err := c.stop(ctx, name, stopGrace); err != nil {
				return "", err
			}
		}
		failed := do()
		for _, name := range order {
			if _, err := c.start(ctx, daemons[name]); err != nil {
				return "", err
			}
		}
		if failed != nil {
			return "", fmt.Errorf("%s: %w", what, failed)
		}
		return "done", nil
	})
}
