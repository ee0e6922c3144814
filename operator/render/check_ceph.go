package render

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// checkCeph refuses a pool that cannot be in a Ceph cluster.
func (p *plan) checkCeph(at string, pool v1beta1.PoolSpec) error {
	c := pool.Ceph
	switch {
	case pool.Engine == v1beta1.EngineRBD && c.Filesystem != "":
		return fmt.Errorf("%s.ceph.filesystem: %s is not allowed: pool %s has the engine RBD, whose images are in ceph.pool; leave it out", at, c.Filesystem, pool.Name)
	case pool.Engine == v1beta1.EngineCephFS && c.Pool != "":
		return fmt.Errorf("%s.ceph.pool: %s is not allowed: pool %s has the engine CephFS, whose directories are in ceph.filesystem; leave it out", at, c.Pool, pool.Name)
	case c.UserName() == c.NodeUserName():
		return fmt.Errorf("%s.ceph.nodeUser: %s is the user of the pool as well: nodes get a key that can do no more than use volumes; name another user", at, c.NodeUserName())
	case c.HasNodeUsers() && strings.HasPrefix(c.UserName(), userOfNodes(pool)):
		return fmt.Errorf("%s.ceph.user: %s is not allowed: the users of nodes begin with %s; name another user", at, c.UserName(), userOfNodes(pool))
	case c.SecretRef.Name == c.NodeSecretRef.Name:
		return fmt.Errorf("%s.ceph.nodeSecretRef: %s is the secret of the pool as well: nodes get a key that can do no more than use volumes; name another secret", at, c.NodeSecretRef.Name)
	}
	if c.HasNodeUsers() {
		return checkMonitors(at, c)
	}
	return errors.Join(checkMonitors(at, c), p.checkNodeKeys(at, pool))
}

func checkMonitors(at string, c *v1beta1.CephSpec) error {
	encrypting := 0
	for i, m := range c.Monitors {
		version, address, _ := strings.Cut(m, ":")
		if parsed, err := netip.ParseAddrPort(address); err != nil || parsed.Port() == 0 || version != "v1" && version != "v2" {
			return fmt.Errorf("%s.ceph.monitors[%d]: %.80q is not allowed: it must be v2:ADDRESS:PORT or v1:ADDRESS:PORT, such as v2:10.0.0.1:3300", at, i, m)
		}
		if version == "v2" {
			encrypting++
		}
	}
	if c.Secure && encrypting == 0 {
		return fmt.Errorf("%s.ceph.secure: only the messenger v2 encrypts, and no monitor has it: add v2:ADDRESS:PORT to ceph.monitors, or leave out ceph.secure", at)
	}
	return nil
}

// checkNodeKeys refuses two keys for one user, of which nodes could not know the right one; and a key for nodes that another
// pool does not give to them.
func (p *plan) checkNodeKeys(at string, pool v1beta1.PoolSpec) error {
	for _, other := range v1beta1.CephPools(p.pools) {
		own, its := pool.Ceph, other.Ceph
		if nodeKeyFile(own) == nodeKeyFile(its) && own.NodeSecretRef != its.NodeSecretRef && !its.HasNodeUsers() {
			return fmt.Errorf("%s.ceph.nodeSecretRef: pools %s and %s are used by client.%s of one Ceph cluster, with the keys of the secrets %s and %s: name one of them in both",
				at, pool.Name, other.Name, own.NodeUserName(), own.NodeSecretRef.Name, its.NodeSecretRef.Name)
		}
		if own.NodeSecretRef == its.SecretRef {
			return fmt.Errorf("%s.ceph.nodeSecretRef: the secret %s has the key that makes the volumes of pool %s, and no node may get that: name another secret", at, own.NodeSecretRef.Name, other.Name)
		}
	}
	return nil
}

// checkCephKeys refuses secrets that are missing or have no key of Ceph, before anything is changed because of them.
func checkCephKeys(p *plan) error {
	if p.CephKeys == nil { // no cluster is at hand
		return nil
	}
	for i, pool := range p.pools {
		if pool.Ceph == nil {
			continue
		}
		at := fmt.Sprintf("spec.pools[%d].ceph", i)
		own, err := p.cephKey(at+".secretRef", pool.Ceph.SecretRef.Name, pool.Ceph.UserName())
		if err != nil {
			return err
		}
		if pool.Ceph.HasNodeUsers() {
			continue
		}
		nodes, err := p.cephKey(at+".nodeSecretRef", pool.Ceph.NodeSecretRef.Name, pool.Ceph.NodeUserName())
		if err != nil {
			return err
		}
		if bytes.Equal(own, nodes) {
			return fmt.Errorf("%s.nodeSecretRef: the %ws %s and %s have the same key: nodes get a key that can do no more than use volumes; make it that of client.%s",
				at, ErrSecret, pool.Ceph.SecretRef.Name, pool.Ceph.NodeSecretRef.Name, pool.Ceph.NodeUserName())
		}
	}
	return nil
}

// ErrSecret is in errors about a secret, which is no part of the spec.
var ErrSecret = errors.New("secret")

// cephKey returns the key in a secret. An error has nothing of it.
func (p *plan) cephKey(field, secret, user string) ([]byte, error) {
	const least, most = 12 + 16, 1 << 10 // its head and the shortest key; more than any
	remedy := fmt.Sprintf("run ceph auth get-key client.%s | kubectl -n %s create secret generic %s --from-file=%s=/dev/stdin", user, p.Namespace, secret, v1beta1.CephKeyName)
	text, there := p.CephKeys[secret]
	if !there {
		return nil, fmt.Errorf("%s: there is no %w %s/%s: %s", field, ErrSecret, p.Namespace, secret, remedy)
	}
	if len(text) == 0 {
		return nil, fmt.Errorf("%s: the %w %s/%s has no key named %s: delete it, and %s", field, ErrSecret, p.Namespace, secret, v1beta1.CephKeyName, remedy)
	}
	decoded, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(decoded) < least || len(decoded) > most {
		return nil, fmt.Errorf("%s: what the %w %s/%s has under %s is no key of Ceph: it must be what ceph auth get-key client.%s prints, and nothing else", field, ErrSecret, p.Namespace, secret, v1beta1.CephKeyName, user)
	}
	return decoded, nil
}
