package ceph

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"strings"
)

// One copy of all on one disk: what that needs, and what makes it answer fast. Patience with those who do not answer is
// short, so that tests of failures are.
const config = `[global]
fsid = %[1]s
mon host = [v2:%[3]s,v1:%[4]s]
mon initial members = a
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
auth allow insecure global id reclaim = false
keyring = %[2]s/ceph.client.admin.keyring
run dir = %[2]s
crash dir = %[2]s/crash
admin socket = %[2]s/$name.asok
log to file = false
log to stderr = false
mon cluster log to file = false
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 8
osd pool default pgp num = 8
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0

[mon]
public addrv = [v2:%[3]s,v1:%[4]s]
mon data = %[2]s/mon
keyring = %[2]s/mon/keyring
mon allow pool delete = true
mon allow pool size one = true
mon warn on pool no redundancy = false
mon max pg per osd = 5000
mon mgr beacon grace = 600
mon data avail crit = 0
mon data avail warn = 0
paxos propose interval = 0.05
paxos min wait = 0.02

[mgr]
public addr = %[5]s
mgr data = %[2]s/mgr
keyring = %[2]s/mgr/keyring
mgr initial modules = iostat
mgr tick period = 1
mgr stats period = 1

[osd]
public addr = %[5]s
cluster addr = %[5]s
osd data = %[2]s/osd
keyring = %[2]s/osd/keyring
osd objectstore = bluestore
bluestore block size = %[6]d
bluestore block create = true
bluestore cache autotune = false
bluestore cache size = 268435456
osd memory target = 939524096
osd max pg per osd hard ratio = 100
osd mgr stats report interval = 1
osd delete sleep = 0
osd numa auto affinity = false

[mds]
public addr = %[5]s
mds data = %[2]s/mds
keyring = %[2]s/mds/keyring
mds cache memory limit = 268435456

[client]
admin socket =
`

func (c *Cluster) configure() (err error) {
	if c.FSID, err = newUUID(); err != nil {
		return err
	}
	if c.Monitor, err = freeAddress(c.options.Address); err != nil {
		return err
	}
	if c.MonitorV1, err = freeAddress(c.options.Address); err != nil {
		return err
	}
	text := fmt.Sprintf(config, c.FSID, c.Dir, c.Monitor, c.MonitorV1, c.options.Address, c.options.Bytes)
	errs := []error{os.WriteFile(c.file("ceph.conf"), []byte(text), 0o600)}
	for _, dir := range []string{"mon", "mgr", "osd", "mds", "crash"} {
		errs = append(errs, os.Mkdir(c.file(dir), 0o700))
	}
	return errors.Join(errs...)
}

func newUUID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/uuid")
	return strings.TrimSpace(string(b)), err
}

// freeAddress finds a port outside of the range from which the kernel takes those of clients: a monitor that was killed
// must find its own free again.
func freeAddress(host string) (string, error) {
	const lowest, ports, tries = 10_000, 20_000, 100
	var last error
	for range tries {
		n, err := rand.Int(rand.Reader, big.NewInt(ports))
		if err != nil {
			return "", err
		}
		address := net.JoinHostPort(host, fmt.Sprint(lowest+n.Int64()))
		listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", address)
		if err != nil {
			last = err
			continue
		}
		return address, listener.Close()
	}
	return "", fmt.Errorf("no port of %s is free: %w", host, last)
}
