package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/cluster/config"
	"github.com/holdfast-storage/holdfast/test/cluster/host"
)

const (
	disk     = "/dev/ubdb"
	programs = "/run/programs"
)

// ownDisk makes /var the node's own, and brings back what of the host lay below it.
func ownDisk(_ context.Context, g config.Guest) error {
	if err := mount(disk, "xfs", "/var", 0, "prjquota"); err != nil {
		return err
	}
	// The host's program for modules lies in the boot directory, which the kernel calls from now on as well.
	err := errors.Join(
		// What a boot knows of its sandboxes and their network must not outlive it, nor be found half written.
		mount("tmpfs", "tmpfs", filepath.Dir(g.Socket), 0, "mode=0755"),
		mount("tmpfs", "tmpfs", "/var/lib/cni", 0, "mode=0755"),
		mount("hostfs", "hostfs", g.Cluster, unix.MS_RDONLY, g.Cluster),
		mount("hostfs", "hostfs", g.Boot, 0, g.Boot),
		os.MkdirAll("/var/log", 0o755), os.MkdirAll("/var/tmp", 0o777),
	)
	for _, dir := range g.Own {
		err = errors.Join(err, keepOwn(dir))
	}
	return err
}

// mendContainerd removes the identity of containerd where a power cut left none in the file: it is written without fsync, and
// with an empty one containerd refuses to work.
func mendContainerd(_ context.Context, g config.Guest) error {
	file := filepath.Join(filepath.Dir(g.Socket), "../containerd/io.containerd.grpc.v1.introspection/uuid")
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil || info.Size() != 0:
		return err
	}
	return os.Remove(file)
}

// keepOwn makes a directory one of the own disk also where the host's tree has come back.
func keepOwn(dir string) error {
	own := filepath.Join("/var/lib/own", dir)
	if err := os.MkdirAll(own, 0o755); err != nil {
		return err
	}
	return mount(own, "", dir, unix.MS_BIND, "")
}

func joinNetwork(ctx context.Context, g config.Guest) error {
	if err := unix.Sethostname([]byte(g.Name)); err != nil {
		return err
	}
	if _, err := host.Run(ctx, "ip", "address", "add", g.Address+"/"+strconv.Itoa(g.Prefix), "dev", nic); err != nil {
		return err
	}
	if err := openNetwork(ctx, g); err != nil {
		return err
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)
}

// prepareKernel gives containers what they expect of a kernel.
func prepareKernel(context.Context, config.Guest) error {
	if err := mount("cgroup2", "cgroup2", "/sys/fs/cgroup", 0, ""); err != nil {
		return err
	}
	if err := describeProcessor(); err != nil {
		return err
	}
	return unix.Mount("", "/", "", unix.MS_SHARED|unix.MS_REC, "")
}

// describeProcessor adds a line to /proc/cpuinfo without which cadvisor, and so the kubelet, gives up.
func describeProcessor() error {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return err
	}
	first, _, _ := bytes.Cut(info, []byte("\n\n"))
	const copied = "/run/cpuinfo"
	if err := os.WriteFile(copied, append(bytes.TrimSpace(first), "\ncpu MHz\t\t: 1000.000\n\n"...), 0o444); err != nil {
		return err
	}
	return mount(copied, "", "/proc/cpuinfo", unix.MS_BIND, "")
}

// linkPrograms puts the iptables of the older kernel interface first in the path: this kernel has no chains of
// nftables that translate addresses.
func linkPrograms(context.Context, config.Guest) error {
	if err := os.MkdirAll(programs, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"} {
		if err := os.Symlink("/usr/sbin/xtables-legacy-multi", filepath.Join(programs, name)); err != nil {
			return err
		}
	}
	return nil
}

func mount(source, fstype, target string, flags uintptr, options string) error {
	_, err := os.Stat(target)
	if errors.Is(err, os.ErrNotExist) {
		err = os.MkdirAll(target, 0o755)
	}
	if err == nil {
		err = unix.Mount(source, target, fstype, flags, options)
	}
	if err != nil {
		return fmt.Errorf("mounting %s at %s: %w", source, target, err)
	}
	return nil
}
