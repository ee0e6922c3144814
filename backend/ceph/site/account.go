//go:build ceph

package site

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
	directories "github.com/holdfast-storage/holdfast/backend/ceph/cephfs"
)

// partsOfCeph are what caps are for.
var partsOfCeph = []string{"mon", "mgr", "mds", "osd"}

// account is a user of the Ceph cluster, with all the caps that it needs for the pool.
type account struct {
	user   string // without "client."
	caps   map[string]string
	secret string // whose secret has its key
}

// maker is the user that makes the volumes: docs/ceph.md says the same of its caps.
func (p *pool) maker() account {
	c := p.Ceph
	a := account{user: c.User, secret: "the pool"}
	if p.Engine == CephFS {
		a.caps = map[string]string{"mon": "allow r, " + shutOut, "mgr": "allow rw", "mds": "allow rwp fsname=" + c.FileSystem, "osd": "allow r tag cephfs data=" + c.FileSystem}
	} else {
		a.caps = map[string]string{"mon": "profile rbd, " + shutOut, "osd": p.profiles("")}
	}
	if _, own := c.ForNodes().HasOwnUsers(); own {
		a.caps["mon"] = taken(a.caps["mon"] + ", " + p.makesUsers())
	}
	return a
}

// mounter is the user as whom nodes use the volumes, with the least caps that mounting needs, as docs/ceph.md has them.
func (p *pool) mounter() account {
	c := p.Ceph
	a := account{user: c.ForNodes().User, secret: "nodeSecretRef"}
	if p.Engine == CephFS {
		a.caps = map[string]string{"mon": "allow r fsname=" + c.FileSystem, "mds": "allow rw fsname=" + c.FileSystem + " path=" + p.group(), "osd": "allow rw tag cephfs data=" + c.FileSystem}
		return a
	}
	within := ""
	if c.Namespace != "" {
		within = " namespace=" + c.Namespace
	}
	a.caps = map[string]string{"mon": "profile rbd", "osd": p.profiles(within)}
	return a
}

// profiles are the caps for the pools of the engine rbd.
func (p *pool) profiles(within string) string {
	c := p.Ceph
	osd := "profile rbd pool=" + c.Pool + within
	if c.DataPool != "" && c.DataPool != c.Pool {
		osd += ", profile rbd pool=" + c.DataPool + within
	}
	return osd
}

// group is the directory of the engine cephfs.
func (p *pool) group() string {
	return "/volumes/" + cmp.Or(p.Ceph.Namespace, directories.DefaultGroup)
}

// taken is a cap that monitors take: one whose length has 0 as its lowest byte is none to them.
func taken(caps string) string {
	const byteOfLength = 256
	if len(caps)%byteOfLength == 0 {
		return strings.Replace(caps, ", ", ",  ", 1)
	}
	return caps
}

// shutOut lets the user shut the clients of a lost node out of the cluster, and let them in again.
const shutOut = `allow command "osd blocklist"`

// refusal is what Ceph does not let an account do.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

// isRefused says whether Ceph did not let the user do something.
func isRefused(err error) bool { return errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) }

// refused says of an error that Ceph lets the account not do something, which caps it needs. Any other stays what it is.
func (a account) refused(err error, of, what string) error {
	if !isRefused(err) {
		return err
	}
	return refusal{fmt.Errorf("%w: client.%s has too small caps: it may not %s, for which it needs %s '%s'; `%s` gives it all that this pool needs, and takes what it has for others: add that",
		backend.ErrUnavailable, a.user, what, of, a.caps[of], a.grant("caps"))}
}

// refusedKey is the error of an account that cannot connect.
func (a account) refusedKey(file string) error {
	return refusal{fmt.Errorf("%w: the Ceph cluster refuses client.%s with the key in %s: it has another key, does not exist, or has no caps for mon; `ceph auth get client.%s` prints what it has: write its key into the secret of %s, or make the user: `%s`",
		backend.ErrUnavailable, a.user, file, a.user, a.secret, a.grant("get-or-create"))}
}

// grant is the command of an administrator that gives the account its caps.
func (a account) grant(verb string) string {
	words := []string{"ceph auth", verb, "client." + a.user}
	for _, of := range partsOfCeph {
		if what := a.caps[of]; what != "" {
			words = append(words, of, "'"+what+"'")
		}
	}
	return strings.Join(words, " ")
}
