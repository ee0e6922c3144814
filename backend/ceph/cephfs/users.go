//go:build ceph

package cephfs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/ceph/go-ceph/rados"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/ceph"
)

// A user whom the manager authorizes for a volume reaches the directory of the volume, and of the objects of files those in the
// RADOS namespace of the volume. A copy has the namespace of its source, and what was made without one shares that of the pool.

// Confine has a user with these caps reach the volumes that are attached, and of those that it had reached also those in use. The
// manager makes a user with its first volume. It says whether the user is to reach any.
func (b *Backend) Confine(ctx context.Context, user string, caps map[string]string, attached, inUse []backend.ID) (any bool, err error) {
	p, err := b.use(ctx)
	if err != nil {
		return false, err
	}
	had, reach := pathsIn(caps["mds"]), map[string]string{} // the subvolumes that it is to reach, by their directories
	lacks := caps["mon"] == "" && len(had) > 0
	for _, id := range attached {
		e, err := p.find(ctx, id)
		if err != nil {
			return false, err
		}
		if e == nil || !e.volume.live() { // not made yet, or damaged
			continue
		}
		if reach[e.volume.Path] = e.name; !slices.Contains(had, e.volume.Path) { // before others are taken away: with the last one the key goes
			if err := p.authorize(ctx, "authorize", e.name, user); err != nil {
				return false, err
			}
		}
	}
	var errs []error
	for _, dir := range had {
		name := path.Base(path.Dir(dir))
		if id, _ := idOf(name); reach[dir] != "" || slices.Contains(inUse, id) {
			reach[dir] = name
			continue
		}
		lacks = true
		if err := p.authorize(ctx, "deauthorize", name, user); !gone(err) { // the volume may be deleted
			errs = append(errs, err)
		}
	}
	if lacks { // deauthorize takes the caps for the monitors away, too, and authorize gives them
		for _, name := range reach {
			errs = append(errs, p.authorize(ctx, "authorize", name, user))
			break
		}
	}
	return len(reach) > 0, errors.Join(errs...)
}

// pathsIn returns the directories that caps such as "allow rw fsname=cephfs path=/a, allow rw path=/b" are for.
func pathsIn(caps string) (all []string) {
	for word := range strings.FieldsFuncSeq(caps, func(r rune) bool { return r == ' ' || r == ',' }) {
		if dir, is := strings.CutPrefix(word, "path="); is {
			all = append(all, strings.Trim(dir, `"`))
		}
	}
	return all
}

// authorize has the manager give a user the caps for a subvolume, or take them away.
func (p *pool) authorize(ctx context.Context, verb, name, user string) error {
	query, err := json.Marshal(map[string]string{
		"prefix": "fs subvolume " + verb, "vol_name": p.in.FileSystem, "sub_name": name, "group_name": p.Group, "auth_id": user,
	})
	if err != nil {
		return err
	}
	_, err = ceph.Call(ctx, p.cluster.Manager(), fmt.Sprintf("ceph fs subvolume %s %s %s %s", verb, p.in.FileSystem, name, user), func(conn *rados.Conn) (any, error) {
		_, message, err := conn.MgrCommand([][]byte{query}) // it answers with the key
		if err != nil && message != "" {
			err = fmt.Errorf("%w: %s", err, message)
		}
		return nil, err
	})
	return p.judge(err)
}
