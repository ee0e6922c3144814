//go:build ceph

package cephfs

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ceph/go-ceph/cephfs"

	"github.com/holdfast-storage/holdfast/backend"
)

// group is the directory of a subvolume group, as a client of the file system sees it. What it reads comes from the
// client's cache, which the metadata servers keep up to date.
type group struct {
	fs  *cephfs.MountInfo
	dir string // of the group
}

// entry is a subvolume of the group as it is now.
type entry struct {
	name      string // of the subvolume
	id        backend.ID
	volume    *meta // nil: there is none, or it is damaged
	damage    error
	snapshots []*snapshotEntry
}

type snapshotEntry struct {
	id     backend.ID
	meta   *snapshotMeta // nil: damaged
	damage error
}

// stranger says that nothing in the subvolume is of Holdfast.
func (e *entry) stranger() bool { return e.volume == nil && e.damage == nil && len(e.snapshots) == 0 }

// visible says that the entry is to be shown as a volume.
func (e *entry) visible() bool { return e.volume.live() || e.damage != nil }

func (e *entry) snapshot(id backend.ID) *snapshotEntry {
	for _, s := range e.snapshots {
		if s.id == id {
			return s
		}
	}
	return nil
}

// subvolume is the name of the nth subvolume of an ID. The first has the ID itself; later ones are needed while an earlier
// one is in the trash, or keeps snapshots of a volume that is gone.
func subvolume(id backend.ID, n int) string {
	if n == 0 {
		return string(id)
	}
	return string(id) + "." + strconv.Itoa(n)
}

// idOf says which ID a subvolume is named after.
func idOf(name string) (backend.ID, bool) {
	first, number, numbered := strings.Cut(name, ".")
	id, err := backend.ParseID(first)
	if err != nil {
		return "", false
	}
	if numbered {
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 || strconv.Itoa(n) != number {
			return "", false
		}
	}
	return id, true
}

func (g *group) base(name string) string { return path.Join(g.dir, name) }

func (g *group) snapshotPath(name, snapshot string) string {
	return path.Join(g.dir, name, ".snap", snapshot)
}

// names lists the directories of the group.
func (g *group) names() ([]string, error) { return g.list(g.dir) }

// snapshots lists those of a subvolume, those of other programs too.
func (g *group) snapshots(name string) ([]string, error) {
	return g.list(path.Join(g.base(name), ".snap"))
}

func (g *group) list(dir string) (names []string, err error) {
	d, err := g.fs.OpenDir(dir)
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", dir, err)
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	for {
		e, err := d.ReadDir()
		if err != nil {
			return nil, fmt.Errorf("listing %s: %w", dir, err)
		}
		if e == nil {
			return names, nil
		}
		if name := e.Name(); name != "." && name != ".." {
			names = append(names, name)
		}
	}
}

// attr reads an extended attribute; nil where there is none.
func (g *group) attr(at, name string) ([]byte, error) {
	data, err := g.fs.GetXattr(at, name)
	switch {
	case hasErrno(err, syscall.ENODATA):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading %s of %s: %w", name, at, err)
	}
	return data, nil
}

// number reads one of Ceph's own attributes; 0 where it is not set.
func (g *group) number(at, name string) (int64, error) {
	data, err := g.attr(at, name)
	if err != nil || len(data) == 0 {
		return 0, err
	}
	n, err := strconv.ParseInt(string(data), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading %s of %s: %w", name, at, err)
	}
	return n, nil
}

// changed returns when anything in a directory was changed last.
func (g *group) changed(at string) (time.Time, error) {
	data, err := g.attr(at, "ceph.dir.rctime") // SECONDS.NANOSECONDS
	if err != nil || len(data) == 0 {
		return time.Time{}, err
	}
	seconds, _, _ := strings.Cut(string(data), ".")
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("reading ceph.dir.rctime of %s: %w", at, err)
	}
	return time.Unix(n, 0), nil
}

func (g *group) set(at, name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := g.fs.SetXattr(at, name, data, cephfs.XattrDefault); err != nil {
		return fmt.Errorf("writing %s of %s (%d bytes): %w", name, at, len(data), err)
	}
	return nil
}

// unset removes an attribute; what is gone already is no error.
func (g *group) unset(at, name string) error {
	if err := g.fs.RemoveXattr(at, name); err != nil && !hasErrno(err, syscall.ENODATA) && !hasErrno(err, syscall.ENOENT) {
		return fmt.Errorf("removing %s of %s: %w", name, at, err)
	}
	return nil
}

func (g *group) exists(at string) (bool, error) {
	_, err := g.fs.Statx(at, cephfs.StatxMode, cephfs.AtSymlinkNofollow)
	if hasErrno(err, syscall.ENOENT) {
		return false, nil
	}
	return err == nil, err
}

// read looks at a subvolume; nil where there is none. What is wrong with it is kept in the entry and hides no other.
func (g *group) read(name string) (*entry, error) {
	id, ok := idOf(name)
	if !ok {
		return nil, nil
	}
	e := &entry{name: name, id: id}
	attrs, err := g.fs.ListXattr(g.base(name))
	switch {
	case hasErrno(err, syscall.ENOENT):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading the attributes of %s: %w", g.base(name), err)
	}
	slices.Sort(attrs)
	for _, attr := range attrs {
		snapshot, isSnapshot := strings.CutPrefix(attr, snapshotsAttr)
		if attr != volumeAttr && !isSnapshot {
			continue
		}
		data, err := g.attr(g.base(name), attr)
		switch {
		case hasErrno(err, syscall.ENOENT):
			return nil, nil
		case err != nil:
			return nil, err
		case data == nil: // removed since it was listed
		case isSnapshot:
			e.addSnapshot(snapshot, data)
		default:
			if e.volume, err = parseVolume(data, id); err != nil {
				e.damage = fmt.Errorf("subvolume %s: %w; its files are in %s", name, err, g.base(name))
			}
		}
	}
	return e, nil
}

func (e *entry) addSnapshot(name string, data []byte) {
	id, err := backend.ParseID(name)
	if err != nil {
		return
	}
	s := &snapshotEntry{id: id}
	if s.meta, err = parseSnapshot(data, id); err != nil {
		s.damage = fmt.Errorf("subvolume %s: %w", e.name, err)
	}
	e.snapshots = append(e.snapshots, s)
}

// entries reads all subvolumes, and names what is none of Holdfast's.
func (g *group) entries() (all []*entry, strangers []string, err error) {
	names, err := g.names()
	if err != nil {
		return nil, nil, err
	}
	slices.Sort(names)
	for _, name := range names {
		e, err := g.read(name)
		switch {
		case err != nil:
			return nil, nil, err
		case e == nil || e.stranger():
			strangers = append(strangers, name)
		default:
			all = append(all, e)
		}
	}
	return all, strangers, nil
}

// of reads the subvolumes that are named after an ID.
func (g *group) of(id backend.ID) (all []*entry, err error) {
	names, err := g.names()
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	for _, name := range names {
		if is, ok := idOf(name); !ok || is != id {
			continue
		}
		e, err := g.read(name)
		if err != nil {
			return nil, err
		}
		if e != nil && !e.stranger() {
			all = append(all, e)
		}
	}
	return all, nil
}

// begun reads the volumes that are being made, by the names of their subvolumes. One that cannot be read is nil.
func (g *group) begun() (map[string]*meta, error) {
	attrs, err := g.fs.ListXattr(g.dir)
	if err != nil {
		return nil, fmt.Errorf("reading the attributes of %s: %w", g.dir, err)
	}
	all := map[string]*meta{}
	for _, attr := range attrs {
		name, ok := strings.CutPrefix(attr, buildingAttr)
		if !ok {
			continue
		}
		id, ok := idOf(name)
		if !ok {
			continue
		}
		data, err := g.attr(g.dir, attr)
		if err != nil {
			return nil, err
		}
		if data != nil {
			all[name], _ = parseVolume(data, id)
		}
	}
	return all, nil
}

// freeName is the first name of an ID that no subvolume has.
func (g *group) freeName(id backend.ID) (string, error) {
	for n := 0; ; n++ {
		name := subvolume(id, n)
		if taken, err := g.exists(g.base(name)); err != nil || !taken {
			return name, err
		}
	}
}

// hasErrno says whether an error has an error number, as go-ceph gives it, or as package ceph does.
func hasErrno(err error, n syscall.Errno) bool {
	var coded interface{ ErrorCode() int }
	return errors.Is(err, n) || errors.As(err, &coded) && coded.ErrorCode() == -int(n)
}

// gone says that what was looked at is not there any more.
func gone(err error) bool { return hasErrno(err, syscall.ENOENT) }
