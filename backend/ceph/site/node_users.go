//go:build ceph

package site

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ceph/go-ceph/rados"
	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/ceph"
	"github.com/holdfast-storage/holdfast/backend/ceph/cephfs"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// noNode is no name of a node. Its user is made and removed, to find out whether those of nodes can be.
const noNode = "-"

// Monitors compare only caps that are given: what is not needed is given as a cap that allows nothing.
var noCaps = map[string]string{"mgr": "allow service none r", "mds": "allow r path=/none"}

// ofNode is the user that a node has for itself. The caps of one that is confined are the manager's to give.
func (p *pool) ofNode(node string) account {
	a := p.mounter()
	a.user = p.Ceph.ForNodes().UserOf(node)
	if p.Confined() {
		a.caps = nil
		return a
	}
	for of, none := range noCaps {
		if a.caps[of] == "" {
			a.caps[of] = none
		}
	}
	return a
}

// makesUsers are the caps for mon that let the maker of volumes make and remove such users, and no others. Those that are confined
// the manager makes.
func (p *pool) makesUsers() string {
	a := p.ofNode("")
	prefix := fmt.Sprintf(` with entity prefix "client.%s"`, a.user)
	if p.Confined() {
		return `allow command "auth get"` + prefix + `, allow command "auth rm"` + prefix
	}
	exactly := prefix
	for _, of := range partsOfCeph {
		exactly += fmt.Sprintf(` caps_%s="%s"`, of, a.caps[of])
	}
	return `allow command "auth get-or-create"` + exactly + `, allow command "auth caps"` + exactly + `, allow command "auth rm"` + prefix
}

// sealedKey is what a node was handed.
type sealedKey struct {
	key               ceph.Key
	publicKey, sealed string
}

var _ backend.NodeUsers = (*pool)(nil)

// Confined: no caps distinguish images.
func (p *pool) Confined() bool {
	_, own := p.Ceph.ForNodes().HasOwnUsers()
	return own && p.Engine == CephFS
}

// NodeUser seals a key once.
func (p *pool) NodeUser(ctx context.Context, node, publicKey string, attached, inUse []backend.ID) (string, error) {
	as := p.ofNode(node)
	key, err := use(ctx, p, func(s *serving) (ceph.Key, error) {
		if p.Confined() {
			return p.confine(ctx, s, as, attached, inUse)
		}
		return p.addUser(ctx, s.cluster, as)
	})
	if err != nil || key == "" {
		return "", err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if was := p.sealed[node]; was.key == key && was.publicKey == publicKey {
		return was.sealed, nil
	}
	sealed, err := nodeops.SealForNode(publicKey, p.Ceph.FSID+"."+as.user, []byte(key))
	if err != nil {
		return "", fmt.Errorf("%w node %s: %w", backend.ErrInvalid, node, err)
	}
	if p.sealed == nil {
		p.sealed = map[string]sealedKey{}
	}
	p.sealed[node] = sealedKey{key, publicKey, sealed}
	return sealed, nil
}

// RemoveNodeUser forgets the key too.
func (p *pool) RemoveNodeUser(ctx context.Context, node string) error {
	p.mu.Lock()
	delete(p.sealed, node)
	p.mu.Unlock()
	return p.do(ctx, func(s *serving) error { return p.removeUser(ctx, s.cluster, p.ofNode(node)) })
}

// lookAtNodeUsers tries whether users can be made. A connection has the caps that its user had when it was made: where another
// one may do more, the pool is served by that.
func (p *pool) lookAtNodeUsers(ctx context.Context) error {
	s := p.serving()
	err := p.tryNodeUsers(ctx, s.cluster)
	if _, refused := errors.AsType[refusal](err); !refused {
		return err
	}
	fresh, failed := p.connect(ctx, s.key)
	if failed != nil {
		return err
	}
	if err := p.tryNodeUsers(ctx, fresh); err != nil {
		p.abandon("a connection", fresh.Close)
		return err
	}
	_, err = p.replace(ctx, s, fresh, s.key)
	return err
}

// tryNodeUsers makes the user of no node, and asks whether it could use volumes.
func (p *pool) tryNodeUsers(ctx context.Context, cluster *ceph.Cluster) error {
	as := p.ofNode(noNode)
	if p.Confined() { // without a volume there is none
		_, err := p.findUser(ctx, cluster, as)
		return errors.Join(err, p.removeUser(ctx, cluster, as))
	}
	key, err := p.addUser(ctx, cluster, as)
	if err != nil {
		return err
	}
	return errors.Join(p.checkNodeUser(ctx, as, key), p.removeUser(ctx, cluster, as))
}

// confine gives a user the volumes that are attached to its node, and returns its key; none if it has no volumes.
func (p *pool) confine(ctx context.Context, s *serving, as account, attached, inUse []backend.ID) (ceph.Key, error) {
	u, err := p.findUser(ctx, s.cluster, as)
	if err != nil {
		return "", err
	}
	any, err := s.engine.(*cephfs.Backend).Confine(ctx, as.user, u.Caps, attached, inUse)
	switch {
	case err != nil:
		return "", p.refused(err, "mgr", "let the manager make users of nodes: ceph fs subvolume authorize")
	case !any:
		return "", p.removeUser(ctx, s.cluster, as)
	case u.Key == "":
		u, err = p.findUser(ctx, s.cluster, as)
	}
	return u.Key, err
}

// user is one of Ceph, as the monitors know it.
type user struct {
	Key  ceph.Key
	Caps map[string]string
}

// findUser returns a user without a key if there is none.
func (p *pool) findUser(ctx context.Context, cluster *ceph.Cluster, as account) (user, error) {
	text, err := p.auth(ctx, cluster, "get", as, nil)
	if errors.Is(err, unix.ENOENT) {
		return user{}, nil
	}
	if err != nil {
		return user{}, err
	}
	return readUser(text, as)
}

func readUser(text []byte, as account) (user, error) {
	var users []user
	if json.Unmarshal(text, &users) != nil || len(users) != 1 || users[0].Key.Check(as.user) != nil {
		return user{}, fmt.Errorf("%w: the answer of the monitors has no key of client.%s", backend.ErrUnavailable, as.user)
	}
	return users[0], nil
}

// addUser makes a user with its caps, or finds it and corrects them. The answers of the monitors have the key.
func (p *pool) addUser(ctx context.Context, cluster *ceph.Cluster, as account) (ceph.Key, error) {
	text, err := p.auth(ctx, cluster, "get-or-create", as, as.caps)
	if errors.Is(err, unix.EINVAL) { // it has other caps
		if _, err = p.auth(ctx, cluster, "caps", as, as.caps); err == nil {
			text, err = p.auth(ctx, cluster, "get-or-create", as, as.caps)
		}
	}
	if err != nil {
		return "", err
	}
	u, err := readUser(text, as)
	return u.Key, err
}

func (p *pool) removeUser(ctx context.Context, cluster *ceph.Cluster, as account) error {
	_, err := p.auth(ctx, cluster, "rm", as, nil)
	return err
}

func (p *pool) auth(ctx context.Context, cluster *ceph.Cluster, verb string, as account, caps map[string]string) ([]byte, error) {
	command := struct {
		Prefix string   `json:"prefix"`
		Entity string   `json:"entity"`
		Caps   []string `json:"caps,omitempty"`
		Format string   `json:"format"`
	}{Prefix: "auth " + verb, Entity: "client." + as.user, Format: "json"}
	for _, of := range partsOfCeph {
		if caps != nil {
			command.Caps = append(command.Caps, of, caps[of])
		}
	}
	query, err := json.Marshal(command)
	if err != nil {
		return nil, err
	}
	what := "ceph " + command.Prefix + " " + command.Entity
	text, err := ceph.Call(ctx, cluster, what, func(conn *rados.Conn) ([]byte, error) {
		text, _, err := conn.MonCommand(query)
		return text, err
	})
	return text, p.refused(err, "mon", "make and remove the users of nodes: "+what)
}
