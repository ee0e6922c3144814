package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/cluster/artifact"
	"github.com/holdfast-storage/holdfast/test/cluster/host"
)

// Down removes everything the cluster made, whatever of it is left. It goes on after an error, and can be repeated.
func (c *Cluster) Down(ctx context.Context, steps Steps) error {
	if err := c.Load(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var errs []error
	for _, step := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"end processes", c.endProcesses},
		{"network", c.removeNetwork},
		{"unmount", func(context.Context) error { return c.unmount() }},
		{"loop devices", func(context.Context) error { return c.removeAllocated() }},
		{"traces elsewhere", func(context.Context) error { return c.removeTraces() }},
		{"directories", c.removeDirectories},
	} {
		errs = append(errs, steps.Do(ctx, step.name, quiet(step.run)))
	}
	return errors.Join(errs...)
}

// endProcesses kills: nothing that the cluster keeps is needed any more. Containers are beneath the cluster's cgroup.
func (c *Cluster) endProcesses(ctx context.Context) error {
	records, err := filepath.Glob(c.record("*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, record := range records {
		errs = append(errs, c.stop(ctx, strings.TrimSuffix(filepath.Base(record), ".json"), 0))
	}
	return errors.Join(append(errs, host.RemoveCgroup(ctx, c.cgroup()))...)
}

// The loop devices that the node plugin makes to allocate them.
const firstLent, mostLent = 4096, 4096

// lentLoops are the numbers of those that there are.
func lentLoops() (numbers []int) {
	for n := firstLent; n < firstLent+mostLent; n++ {
		if _, err := os.Stat(fmt.Sprintf("/sys/block/loop%d", n)); err == nil {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// removeAllocated takes away the loop devices that were made for NFS servers. Those that were there before the cluster stay,
// and so do those in use, and all of them where there is another cluster, whose they may be.
func (c *Cluster) removeAllocated() error {
	claimed, err := claims()
	if err != nil || slices.ContainsFunc(claimed, func(other claim) bool { return other.Dir != c.Dir }) {
		return err
	}
	control, err := os.Open("/dev/loop-control")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer control.Close()
	for _, n := range lentLoops() {
		if !slices.Contains(c.State.Lent, n) {
			_ = unix.IoctlSetInt(int(control.Fd()), unix.LOOP_CTL_REMOVE, n) // busy
		}
	}
	return nil
}

// directories are where the cluster may have mounted something.
func (c *Cluster) directories() []string {
	dirs := []string{c.Dir}
	if root := c.State.KubeletRoot; root != "" && !host.Below(root, c.Dir) {
		dirs = append(dirs, root)
	}
	return dirs
}

// unmount finds the loop devices before their mounts are gone, and detaches them again when nothing uses them any more.
func (c *Cluster) unmount() error {
	var errs []error
	for _, dir := range c.directories() {
		loops, err := host.Loops(dir)
		errs = append(errs, err, host.DetachLoops(loops), host.UnmountBelow(dir), host.DetachLoops(loops))
	}
	return errors.Join(errs...)
}

func (c *Cluster) removeNetwork(ctx context.Context) error {
	return errors.Join(c.removeLink(ctx), host.RemoveNetNS(c.netns()))
}

// removeTraces removes what others insist on writing to fixed places: the kubelet its links to logs, the CNI library its
// results, containerd its sockets.
func (c *Cluster) removeTraces() error {
	artifact.AllowServices()
	errs := []error{
		removeMatching("/var/log/containers/*", func(path string) bool {
			target, err := os.Readlink(path)
			return err == nil && host.Below(target, c.Dir)
		}),
		removeMatching("/var/lib/cni/results/*", func(path string) bool {
			result, err := os.ReadFile(path) // it names the pod's network namespace, which lies in our directory
			return err == nil && bytes.Contains(result, []byte(c.Dir+"/"))
		}),
		removeMatching("/run/containerd/s/*", deadSocket),
	}
	for _, dir := range []string{
		"/var/log/containers", "/var/lib/cni/results", "/var/lib/cni", "/run/containerd/s", "/run/containerd",
	} {
		_ = os.Remove(dir) // only if empty
	}
	return errors.Join(errs...)
}

func removeMatching(pattern string, match func(path string) bool) error {
	paths, err := filepath.Glob(pattern)
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range paths {
		if !match(path) {
			continue
		}
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) { // another cluster that ends now removes it as well
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// deadSocket reports whether no process listens on a socket any more.
func deadSocket(path string) bool {
	listening, err := os.ReadFile("/proc/net/unix")
	return err == nil && !strings.Contains(string(listening), path)
}

func (c *Cluster) removeDirectories(ctx context.Context) error {
	unlock, err := lockClaims(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	claimed, err := claims()
	if err != nil {
		return err
	}
	if err := c.removeDefaultKubelet(defaultKubeletRoot, claimed); err != nil {
		return err
	}
	if !slices.ContainsFunc(claimed, func(o claim) bool { return o.Dir != c.Dir }) {
		_ = os.Remove("/var/lib/holdfast") // only if empty, as nodes leave it that have no volumes
	}
	if err := c.removeOwn(); err != nil {
		return err
	}
	if err := os.Remove(c.claimFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, dir := range []string{claimsDir, defaultBase, filepath.Dir(c.Dir)} {
		_ = os.Remove(dir) // only if empty
	}
	return nil
}

// removeDefaultKubelet removes what is in a kubelet's default directory, if only clusters have used it. As long as there
// are others, what all kubelets of a machine share stays.
func (c *Cluster) removeDefaultKubelet(root string, claimed []claim) error {
	own := slices.IndexFunc(claimed, func(o claim) bool { return o.Dir == c.Dir })
	if own < 0 || !claimed[own].DefaultOurs {
		return nil
	}
	if len(claimed) == 1 {
		return host.RemoveTree(root)
	}
	if claimed[own].KubeletRoot != root {
		return nil
	}
	entries, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if e.Name() == "device-plugins" {
			continue
		}
		if err := host.RemoveTree(filepath.Join(root, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// removeOwn removes the state last, so that an interrupted removal can be repeated.
func (c *Cluster) removeOwn() error {
	entries, err := os.ReadDir(c.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == stateFile {
			continue
		}
		if err := host.RemoveTree(c.path(e.Name())); err != nil {
			return fmt.Errorf("%w; the cluster's state is kept, so that down can be repeated", err)
		}
	}
	return host.RemoveTree(c.Dir)
}
