//go:build ceph

package rbd

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ceph/go-ceph/rbd"
	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
)

// recover puts right what a killed process has left: it has the pool, so nothing is being made. Images that are complete
// are promised to, others that were promised to are removed, and what is not ours is left as it is.
func (b *Backend) recover(s *session) error {
	entries, err := s.ledger.all()
	if err != nil {
		return err
	}
	groups, err := s.groups()
	if err != nil {
		return err
	}
	names, err := rbd.GetImageNames(s.ioctx)
	if err != nil {
		return err
	}
	there := map[string]bool{}
	foreign := 0
	for _, name := range names {
		there[name] = true
		ours, err := b.recoverImage(s, name, entries, groups)
		if err != nil {
			return err
		}
		if !ours {
			foreign++
		}
	}
	if foreign > 0 {
		b.log.Warn("the pool has images that are not of Holdfast; they are left alone", "count", foreign)
	}
	inTrash, err := b.recoverTrash(s, there, entries)
	if err != nil {
		return err
	}
	if entries, err = s.ledger.all(); err != nil {
		return err
	}
	for key, p := range entries {
		id, trash := strings.CutPrefix(key, trashKey(""))
		switch {
		case trash && !inTrash[id]:
			err = s.ledger.change(map[string]*promise{key: nil}, nil)
		case trash && p.State == removing:
			err = s.eraseClaimed(id)
		case !trash && !there[key]: // perhaps less than an image
			err = s.discard(key, p)
		}
		if err != nil {
			return err
		}
	}
	return s.ledger.sumUp()
}

// recoverImage puts one image right, and says whether it is ours.
func (b *Backend) recoverImage(s *session, name string, entries map[string]promise, groups map[backend.ID]*groupRecord) (ours bool, err error) {
	k, id, named := parseName(name)
	if !named {
		return false, nil
	}
	p, promised := entries[name]
	r, err := s.look(k, id)
	if err != nil {
		return false, err
	}
	switch {
	case r == nil || errors.Is(r.damage, errIncomplete):
		if !promised {
			return false, nil
		}
		if r != nil && p.State == complete {
			b.log.Error("a damaged image, left alone", "image", name, "error", errReplaced)
			return true, nil
		}
		b.log.Info("an image that was not completed is removed", "image", name)
		return true, s.discard(name, p)
	case r.meta != nil && r.meta.Group != "" && groups[r.meta.Group] == nil:
		b.log.Info("a snapshot of a group that was not completed is removed", "image", name)
		return true, s.trashAndErase(r)
	}
	if err := s.finish(r, p); err != nil {
		return true, err
	}
	if n, err := s.depth(name); err == nil && n > shallow {
		b.flattenLater(name)
	}
	return true, nil
}

// finish does what was left to do of making or growing an image that is complete.
func (s *session) finish(r *record, p promise) error {
	if p.Source != "" {
		if err := s.dropTemporary(p.Source, r.name); err != nil {
			return err
		}
	}
	want := promise{Charge: r.size, State: complete}
	if r.meta != nil {
		want.Charge = max(r.size, r.meta.Size)
		if r.size > r.meta.Size { // growth that was not recorded
			r.meta.Size = r.size
			if err := s.writeMeta(r.meta); err != nil {
				return err
			}
		}
	}
	if p == want {
		return nil
	}
	return s.ledger.change(map[string]*promise{r.name: &want}, nil)
}

// trashAndErase removes an image that no caller knows.
func (s *session) trashAndErase(r *record) error {
	if err := s.despiteTheDead(r.image, func() error { return rbd.GetImage(s.ioctx, r.name).Trash(0) }); err != nil {
		return err
	}
	p := &promise{Charge: r.size, State: removing}
	if err := s.ledger.change(map[string]*promise{r.name: nil, trashKey(r.image): p}, nil); err != nil {
		return err
	}
	return s.eraseClaimed(r.image)
}

// eraseClaimed removes an image that is in the trash for good, and its promise, unless copies need it.
func (s *session) eraseClaimed(image string) error {
	gone, err := s.erase(image)
	if isErrno(err, unix.EUCLEAN) {
		s.log.Warn("an image was not moved to the trash wholly, and another has its name: delete or rename that one, and start again", "id", image)
		return nil
	}
	if err != nil || !gone {
		return err
	}
	return s.ledger.change(map[string]*promise{trashKey(image): nil}, nil)
}

// recoverTrash makes sure that what is ours in Ceph's trash is promised to, and returns all that is there. names are those of
// images that are not.
func (b *Backend) recoverTrash(s *session, names map[string]bool, entries map[string]promise) (map[string]bool, error) {
	list, err := rbd.GetTrashList(s.ioctx)
	if err != nil {
		return nil, err
	}
	there := map[string]bool{}
	for _, t := range list {
		if there[t.Id], err = b.recoverTrashed(s, t, names, entries); err != nil {
			return nil, err
		}
	}
	return there, nil
}

// recoverTrashed says whether an image in the trash is there indeed, and promises to it if it is ours.
func (b *Backend) recoverTrashed(s *session, t rbd.TrashInfo, names map[string]bool, entries map[string]promise) (bool, error) {
	p, known := entries[trashKey(t.Id)]
	if known && p.State == trashed {
		return true, nil
	}
	if known {
		return s.finishMove(t, names)
	}
	r, err := s.lookInTrash(t.Id, t.Name)
	if err != nil || r == nil || r.meta == nil { // not ours
		return true, err
	}
	moved, err := s.finishMove(t, names)
	if err != nil || !moved {
		return moved, err
	}
	return true, b.recoverMove(s, r, t.DeletionTime, entries)
}

// finishMove ends the move of an image to the trash. Ceph lists it there first, then removes its name, and says last that it
// has moved: before that it can neither be removed nor restored. An image that still has its name has not moved: the
// next request to delete it begins again.
func (s *session) finishMove(t rbd.TrashInfo, names map[string]bool) (moved bool, err error) {
	if names[t.Name] { // perhaps of another image, which would be moved
		id, err := s.idOf(t.Name)
		return id != t.Id, err
	}
	if err := s.despiteTheDead(t.Id, func() error { return rbd.GetImage(s.ioctx, t.Name).Trash(0) }); err != nil && !absent(err) { // absent: it has moved
		return false, fmt.Errorf("moving image %s to the trash: %w", t.Name, err)
	}
	return true, nil
}

// recoverMove records that an image was moved to the trash.
func (b *Backend) recoverMove(s *session, r *record, moved time.Time, entries map[string]promise) error {
	p := &promise{Charge: max(r.size, r.meta.Size), State: b.discardedAs(r), Deleted: moved.UTC()}
	change := map[string]*promise{trashKey(r.image): p}
	if _, recorded := entries[r.name]; recorded {
		another, err := s.look(r.kind, r.id)
		if err != nil {
			return err
		}
		if another == nil {
			change[r.name] = nil
			delete(entries, r.name)
		}
	}
	return s.ledger.change(change, nil)
}
