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

// GuestPackages is what nodes with a kernel of their own need in addition; a C compiler makes what that kernel lacks.
var GuestPackages = []string{"e2fsprogs", "gcc", "iptables", "libc6-dev", "nfs-common", "user-mode-linux", "xfsprogs"}

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
	if err := forbidServices(); err != nil {
		return nil, err
	}
	defer AllowServices()
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

const (
	policyFile = "/usr/sbin/policy-rc.d"
	policyText = "#!/bin/sh\n# From the installation of a test cluster. Remove it if none is running.\nexit 101\n"
)

// forbidServices keeps packages from starting their own daemons: only the programs are needed. A policy that the
// machine has already stays.
func forbidServices() error {
	f, err := os.OpenFile(policyFile, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(policyText)
	return errors.Join(err, f.Close())
}

// AllowServices takes back what an installation forbade, also one that was killed.
func AllowServices() {
	if text, err := os.ReadFile(policyFile); err == nil && string(text) == policyText {
		_ = os.Remove(policyFile)
	}
}
