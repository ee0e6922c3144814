package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfast-storage/holdfast/test/cluster/artifact"
	"github.com/holdfast-storage/holdfast/test/cluster/config"
	"github.com/holdfast-storage/holdfast/test/cluster/host"
)

type progress = func(string)

// Up makes the cluster run, whatever of it runs already.
func (c *Cluster) Up(ctx context.Context, steps Steps) error {
	for _, step := range []struct {
		name string
		run  func(context.Context, progress) (string, error)
	}{
		{"packages", installPackages},
		{"limits", raiseLimits},
		{"claim a network", c.claimStep},
		{"build", c.build},
		{"certificates", quiet(func(context.Context) error { return c.configure() })},
		{"cgroups", quiet(func(context.Context) error { return c.makeCgroups() })},
		{"network", c.networkStep},
		{"mounts", quiet(func(context.Context) error { return host.ShareMounts(c.State.KubeletRoot) })},
	} {
		if err := steps.Do(ctx, step.name, step.run); err != nil {
			return err
		}
	}
	return c.startAll(ctx, steps)
}

// ofAPI are the components without a node and what runs there.
var ofAPI = []string{"etcd", "kube-apiserver", "kube-controller-manager"}

func (c *Cluster) startAll(ctx context.Context, steps Steps) error {
	components, err := c.components()
	if err != nil {
		return err
	}
	if c.APIOnly {
		components = slices.DeleteFunc(components, func(d component) bool { return !slices.Contains(ofAPI, d.name) })
	}
	for _, d := range components {
		err := steps.Do(ctx, d.name, func(ctx context.Context, _ progress) (string, error) { return c.start(ctx, d) })
		if err != nil {
			return err
		}
		switch d.name {
		case "kube-apiserver":
			err = steps.Do(ctx, "first objects", quiet(c.applyBase))
		case "containerd":
			err = steps.Do(ctx, "images", c.loadStock)
		}
		if err != nil {
			return err
		}
	}
	if c.APIOnly {
		return nil
	}
	err = steps.Do(ctx, "node "+c.State.Nodes[0].Name, func(ctx context.Context, _ progress) (string, error) {
		return "ready", c.waitReady(ctx, c.State.Nodes[0])
	})
	if err != nil {
		return err
	}
	if len(c.guests()) == 0 {
		return nil
	}
	if err := c.furnishGuests(ctx, steps); err != nil {
		return err
	}
	for _, n := range c.guests() {
		if err := c.bringUp(ctx, steps, n); err != nil {
			return err
		}
	}
	return nil
}

func quiet(f func(context.Context) error) func(context.Context, progress) (string, error) {
	return func(ctx context.Context, _ progress) (string, error) { return "", f(ctx) }
}

func installPackages(ctx context.Context, _ progress) (string, error) {
	return install(ctx, artifact.Packages)
}

func install(ctx context.Context, packages []string) (string, error) {
	installed, err := artifact.Install(ctx, packages)
	if len(installed) == 0 {
		return "all there", err
	}
	return "installed " + strings.Join(installed, " "), err
}

func (c *Cluster) claimStep(ctx context.Context, _ progress) (string, error) {
	err := c.Claim(ctx)
	return c.address(0, 0) + "/16, kubelet in " + c.State.KubeletRoot, err
}

func (c *Cluster) networkStep(ctx context.Context, _ progress) (string, error) {
	return "this machine is " + c.machineAddress() + " on " + c.link(), c.makeNetwork(ctx)
}

// build builds the programs and links them into the cluster's bin directory.
func (c *Cluster) build(ctx context.Context, report progress) (string, error) {
	built, err := c.buildPrograms(ctx, artifact.Programs, report)
	if err == nil && c.OldestAPI {
		return c.buildPrograms(ctx, artifact.OfOldest, report)
	}
	return built, err
}

func (c *Cluster) buildPrograms(ctx context.Context, programs func(module string) []artifact.Program, report progress) (string, error) {
	module, err := moduleDir()
	if err != nil {
		return "", err
	}
	for _, p := range programs(module) {
		dir, err := p.Build(ctx, func(s string) { report(p.Name + ": " + s) })
		if err != nil {
			return "", err
		}
		for _, name := range append(p.Links, p.Name) {
			if err := relink(filepath.Join(dir, name), c.path("bin", name)); err != nil {
				return "", err
			}
		}
	}
	return "", nil
}

// moduleDir is where the sources of the cluster's programs are: in the repository where this runs, or in that where it was
// built.
func moduleDir() (string, error) {
	here, err := os.Getwd()
	if err != nil {
		return "", err
	}
	program, err := os.Executable()
	if err != nil {
		return "", err
	}
	for _, start := range []string{here, filepath.Dir(program)} {
		for dir := start; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
			sources := filepath.Join(dir, "test/cluster")
			if _, err := os.Stat(filepath.Join(sources, "go.mod")); err == nil {
				return sources, nil
			}
		}
	}
	return "", fmt.Errorf("the sources of the cluster's programs, test/cluster, are neither above %s nor above %s; start it by go run -C test/cluster . up", here, program)
}

func relink(target, link string) error {
	if now, err := os.Readlink(link); err == nil && now == target {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
		return err
	}
	fresh := link + ".new"
	_ = os.Remove(fresh)
	if err := os.Symlink(target, fresh); err != nil {
		return err
	}
	return os.Rename(fresh, link)
}

func (c *Cluster) configure() error {
	if err := c.makeIdentities(); err != nil {
		return err
	}
	for _, n := range c.State.Nodes {
		if err := n.configure(c); err != nil {
			return err
		}
	}
	data, err := config.DNS{Address: c.controlAddress(), Dir: c.Dir}.Corefile()
	if err != nil {
		return err
	}
	audit, err := config.Audit()
	if err != nil {
		return err
	}
	return errors.Join(host.WriteFile(c.path("Corefile"), data, 0o644), host.WriteFile(c.path("audit.yaml"), audit, 0o644))
}

func (c *Cluster) makeCgroups() error {
	if err := host.MakeCgroup(c.cgroup() + "/daemons"); err != nil {
		return err
	}
	return host.WeighCgroup(c.cgroup(), 8)
}

func (c *Cluster) applyBase(ctx context.Context) error {
	manifest, err := config.Base{Address: c.controlAddress(), DNSAddress: c.dnsAddress()}.Manifest()
	if err != nil {
		return err
	}
	_, err = host.RunInput(ctx, string(manifest), c.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-")...)
	return err
}
