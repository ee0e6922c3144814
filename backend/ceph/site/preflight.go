//go:build ceph

package site

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/ceph/go-ceph/rados"
	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/ceph"
)

// check says what keeps the pool from being used by a connection that was just made, and what to do about it.
func (p *pool) check(ctx context.Context, cluster *ceph.Cluster) error {
	if err := p.checkCluster(ctx, cluster); err != nil {
		return err
	}
	if p.Engine == RBD {
		return p.checkImages(ctx, cluster)
	}
	return p.checkFileSystem(ctx, cluster)
}

// checkCluster is the part of check that is not about the pool.
func (p *pool) checkCluster(ctx context.Context, cluster *ceph.Cluster) error {
	silent, err := p.reach(ctx)
	if err != nil {
		return err
	}
	if len(silent) > 0 {
		p.log.Warn("some monitors cannot be reached; the others are used", "monitors", strings.Join(silent, ", "))
	}
	if err := p.identify(ctx, cluster); err != nil {
		return err
	}
	return p.checkRelease(ctx, cluster)
}

// identify connects.
func (p *pool) identify(ctx context.Context, cluster *ceph.Cluster) error {
	err := connect(ctx, cluster)
	if !isRefused(err) {
		return err
	}
	c := cluster.Config()
	if c.Secure && p.connectsPlain(ctx, c) {
		return fmt.Errorf("%w: encryption is requested, and the monitors %s do not offer it: allow it with `ceph config set global ms_mon_service_mode 'secure crc'`, or leave out secure",
			backend.ErrUnavailable, strings.Join(c.Spoken(), ", "))
	}
	return p.maker().refusedKey(p.KeyFile)
}

func connect(ctx context.Context, cluster *ceph.Cluster) error {
	_, err := ceph.Call(ctx, cluster, "connecting", func(*rados.Conn) (any, error) { return nil, nil })
	return err
}

// connectsPlain says whether the monitors take the key of one who does not ask for encryption. The key is not sent for that.
func (p *pool) connectsPlain(ctx context.Context, c ceph.Config) bool {
	c.Secure = false
	cluster, err := ceph.New(c, p.log)
	if err != nil {
		return false
	}
	defer p.abandon("a connection", cluster.Close)
	return connect(ctx, cluster) == nil
}

// oldest is the first release that is supported: that whose libraries the program is built with.
const oldest = 16

var releaseNumber = regexp.MustCompile(`ceph version ([0-9]+)\.`)

// checkRelease refuses a cluster that is older than what this program was tried with.
func (p *pool) checkRelease(ctx context.Context, cluster *ceph.Cluster) error {
	var is struct{ Version string }
	if err := p.monitor(ctx, cluster, map[string]string{"prefix": "version"}, &is); err != nil {
		return err
	}
	return judgeRelease(is.Version, oldest)
}

func judgeRelease(version string, oldest int) error {
	found := releaseNumber.FindStringSubmatch(version)
	if found == nil {
		return nil // one that was built by hand
	}
	if n, err := strconv.Atoi(found[1]); err != nil || n < oldest {
		return fmt.Errorf("%w: the monitors run %q, which is too old: release %d of Ceph or a later one is needed; upgrade the Ceph cluster", backend.ErrUnavailable, version, oldest)
	}
	return nil
}

// monitor asks the monitors, which every user may that has a cap for them.
func (p *pool) monitor(ctx context.Context, cluster *ceph.Cluster, command map[string]string, answer any) error {
	return p.refused(ceph.Ask(ctx, cluster, command, answer), "mon", "ask the monitors: ceph "+command["prefix"])
}

// refused is that of the user that makes the volumes.
func (p *pool) refused(err error, of, what string) error { return p.maker().refused(err, of, what) }

// checkShutOut asks whether an account may shut out a client (add), such as a process that had the pool before, and let it in
// again (rm): the monitors look at the caps before they read the address, which is none.
func checkShutOut(ctx context.Context, cluster *ceph.Cluster, as account, operations ...string) error {
	for _, operation := range operations {
		what := "ceph osd blocklist " + operation
		_, err := ceph.Call(ctx, cluster, what, func(conn *rados.Conn) (any, error) {
			_, _, err := conn.MonCommand([]byte(`{"prefix":"osd blocklist","blocklistop":"` + operation + `","addr":"none/1"}`))
			return nil, err
		})
		if !errors.Is(err, unix.EINVAL) {
			return as.refused(err, "mon", "shut out clients: "+what)
		}
	}
	return nil
}
