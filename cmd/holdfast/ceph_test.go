package main

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// newCeph is what a command line makes.
func newCeph(t *testing.T, args ...string) *cephPool {
	t.Helper()
	flags := pflag.NewFlagSet("ceph", pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	c := cephFlags(flags)
	given := []string{"--pool=block", "--engine=RBD", "--fsid=11111111-2222-3333-4444-555555555555", "--monitors=v2:10.0.0.1:3300", "--ceph-pool=p", "--key-file=/key"}
	check.OK(t, flags.Parse(append(given, args...)))
	return c
}

func TestCephFlags_ThatCannotServeAreRefused(t *testing.T) {
	for args, says := range map[string]string{
		"--pool=":                              `pool ""`,
		"--pool=a.b":                           `pool "a.b"`,
		"--pool=block-":                        `pool "block-"`,
		"--engine=":                            `engine ""`,
		"--engine=ZFS":                         "RBD or CephFS",
		"--engine=cephfs":                      "name of a file system",
		"--engine=cephfs --ceph-filesystem=f":  "and no pool",
		"--ceph-pool=":                         "name of a pool",
		"--ceph-pool=a/b":                      `pool "a/b"`,
		"--ceph-filesystem=f":                  "and no file system",
		"--ceph-namespace=a/b":                 `namespace "a/b"`,
		"--ceph-data-pool=a/b":                 `data pool "a/b"`,
		"--fsid=":                              "ceph fsid",
		"--fsid=11111111":                      `fsid "11111111"`,
		"--monitors=":                          "no monitor",
		"--monitors=v2:10.0.0.1:3300,a/b":      `monitor "a/b"`,
		"--monitors=v1:10.0.0.1:6789 --secure": "only the messenger v2 encrypts",
		"--user=":                              "user",
		"--user=client/a":                      `user "client/a"`,
		"--node-user=a/b":                      `user of nodes "a/b"`,
		"--key-file=":                          "file of the key",
		"--key-file=key":                       "absolute",
		"--node-key-file=key":                  "file of the key of nodes",
		"--overcommit=0.01":                    "overcommit 0.01",
		"--overcommit=NaN":                     "overcommit NaN",
		"--reserved=100%":                      `reserved "100%"`,
		"--trash-retention=long":               `--trash-retention "long"`,
	} {
		err := newCeph(t, strings.Fields(args)...).check()
		if !errors.Is(err, errUsage) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", args, err)
		}
	}
}

func TestCephFlags_AreThoseOfThePool(t *testing.T) {
	c := newCeph(t, "--monitors=v2:10.0.0.1:3300,v1:10.0.0.1:6789", "--trash-retention=7d", "--secure")
	if err := c.check(); err != nil || len(c.site.Ceph.Monitors) != 2 || c.site.TrashRetention != 7*24*time.Hour || c.site.Ceph.User != "holdfast" || c.site.Ceph.ForNodes().User != "holdfast-node" || !c.site.Ceph.ForNodes().Secure {
		t.Errorf("%+v, %v", c.site, err)
	}
	c = newCeph(t, "--trash-retention=0s", "--engine=cephfs", "--ceph-pool=", "--ceph-filesystem=files")
	if err := c.check(); err != nil || c.site.TrashRetention != backend.NoTrash {
		t.Errorf("%+v, %v", c.site, err)
	}
}
