// Package artifact brings what a cluster is made of: Debian packages and the programs that are built once.
package artifact

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/holdfast-storage/holdfast/test/cluster/host"
)

// Packages is everything a cluster needs of Debian.
var Packages = []string{
	"busybox-static", "ca-certificates", "conntrack", "containerd", "containernetworking-plugins", "etcd-server", "iproute2",
	"iptables", "mount", "nftables", "runc", "util-linux",
}

// Install installs the packages that are missing and returns them.
func Install(ctx context.Context, packages []string) ([]string, error) {
	var missing []string
	for _, p := range packages {
		status, _ := host.Run(ctx, "dpkg-query", "-W", "-f", "${Status}", p)
		if !strings.HasSuffix(status, " installed") {
			missing = append(missing, p)
		}
	}
	if len(missing) == 0 {
		return nil, ctx.Err()
	}
	restore, err := withoutServices()
	if err != nil {
		return nil, err
	}
	defer restore()
	argv := append([]string{"apt-get", "-o", "DPkg::Lock::Timeout=300", "install", "-qq", "-y", "--no-install-recommends"}, missing...)
	if _, err := host.Run(ctx, argv...); err == nil {
		return missing, nil
	}
	// The package lists may be old or missing.
	if _, err := host.Run(ctx, "apt-get", "update", "-qq"); err != nil {
		return nil, err
	}
	if _, err := host.Run(ctx, argv...); err != nil {
		return nil, fmt.Errorf("install %s: %w", strings.Join(missing, " "), err)
	}
	return missing, nil
}

// withoutServices keeps packages from starting their own daemons: only the programs are wanted.
func withoutServices() (restore func(), err error) {
	const policy = "/usr/sbin/policy-rc.d"
	f, err := os.OpenFile(policy, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return func() {}, nil // the machine has a policy of its own
	}
	if err != nil {
		return nil, err
	}
	_, err = f.WriteString("#!/bin/sh\nexit 101\n")
	return func() { _ = os.Remove(policy) }, errors.Join(err, f.Close())
}
