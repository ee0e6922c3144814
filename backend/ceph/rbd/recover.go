//go:build ceph

package rbd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ceph/go-ceph/rbd"
	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
)

// recover puts right what a killed process has left: it has the pool, so nothing is being made. Images that are complete
// are promised to, those that were being made are discarded, and what is not ours is left as it is. What was complete and
// cannot be found, since Ceph has lost or taken back an object of its own, is named again, or kept as damaged.
func (b *Backend) recover(s *session) error {
	entries, err := s.ledger.all()
	if err != nil {
		return err
	}
	names, err := rbd.GetImageNames(s.ioctx)
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, name := range names {
		there[name] = true
	}
	if err := b.recoverNames(s, there, entries); err != nil {
		return err
	}
	foreign := 0
	for _, name := range slices.Sorted(maps.Keys(there)) {
		ours, err := b.recoverImage(s, name, entries)
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
	inTrash, err := b.recoverTrash(s, entries)
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
			err = s.dropTrashed(key, id)
		case trash && p.State == removing:
			err = s.eraseClaimed(id)
		case !trash && !there[key] && p.State == building: // perhaps less than an image
			err = s.discard(key, p)
		}
		if err != nil {
			return err
		}
	}
	return s.ledger.sumUp()
}

// manyLost is from how many images on a pool is not taken that has lost half of them.
const manyLost = 3

// recoverNames looks for images that are complete and are not in the list of images, of which there has the names, and adds
// them to both. Where many cannot be found the pool is another one, or an older copy: no image in it is changed.
func (b *Backend) recoverNames(s *session, there map[string]bool, entries map[string]promise) error {
	trash, err := rbd.GetTrashList(s.ioctx)
	if err != nil {
		return err
	}
	moved := map[string]bool{} // perhaps by a process that was killed before it has recorded that
	for _, t := range trash {
		moved[t.Name] = true
	}
	var lost []string
	all := 0
	for name, p := range entries {
		if _, _, named := parseName(name); !named || p.State != complete {
			continue
		}
		all++
		if !there[name] {
			lost = append(lost, name)
		}
	}
	if lost, err = b.nameAgain(s, there, lost, entries); err != nil {
		return err
	}
	lost = slices.DeleteFunc(lost, func(name string) bool { return moved[name] })
	slices.Sort(lost)
	if len(lost) >= manyLost && 2*len(lost) >= all {
		return fmt.Errorf("%w: pool %s of the Ceph cluster lacks %d of the %d images that it is to have, such as %s: it is another pool, or an older copy, or Ceph has lost objects of it. No image in it is changed. "+
			"Bring it back; or, if they are gone for good, forget each with `%s`", backend.ErrUnavailable, s.config.Pool, len(lost), all, lost[0], s.rados("rmomapkey "+ledgerObject+" "+lost[0]))
	}
	for _, name := range lost {
		b.log.Error("an image that was complete is not in the pool any more; what room it has stays promised until its volume or snapshot is deleted", "image", name)
	}
	return nil
}

// nameAgain puts those images into Ceph's list again that can be opened by their names, and returns which others there are. A
// copy is opened only once that of which it is one is in the list.
func (b *Backend) nameAgain(s *session, there map[string]bool, names []string, entries map[string]promise) (lost []string, err error) {
	for {
		lost = nil
		for _, name := range names {
			k, id, _ := parseName(name)
			r, err := s.current(k, id, entries)
			if err != nil {
				return nil, err
			}
			if r == nil || r.damage != nil {
				lost = append(lost, name)
				continue
			}
			b.log.Error("an image was not in Ceph's list of images any more, and is put there again", "image", r.name, "id", r.image)
			if err := s.rename(r.image, r.name); err != nil {
				return nil, err
			}
			there[r.name] = true
		}
		if len(lost) == len(names) || len(lost) == 0 {
			return lost, nil
		}
		names = lost
	}
}

// rados is a command of an administrator for the pool.
func (s *session) rados(command string) string {
	in := "rados -p " + s.config.Pool
	if s.config.Namespace != "" {
		in += " -N " + s.config.Namespace
	}
	return in + " " + command
}

// The objects by which Ceph finds an image: one for each name has its ID, and one of the pool has all names and IDs.
const (
	directoryObject = "rbd_directory"
	idObject        = "rbd_id."
	trashObject     = "rbd_trash"
)

// What Ceph's list of the trash says of an image.
const (
	trashNone      = -1
	trashNormal    = 0
	trashMoving    = 1
	trashRemoving  = 2
	trashRestoring = 3
)

// trashEntry is the key of an image in Ceph's list of the trash.
func trashEntry(image string) string { return "id_" + image }

// trashState returns what Ceph's list of the trash says of an image.
func (s *session) trashState(image string) (int, error) {
	value, at, err := s.inTrash(image)
	switch {
	case err != nil || value == nil:
		return trashNone, err
	case at >= len(value): // of the first version
		return trashNormal, nil
	}
	return int(value[at]), nil
}

func (s *session) setTrashState(image string, state byte) error {
	value, at, err := s.inTrash(image)
	if err != nil || at >= len(value) {
		return err
	}
	value[at] = state
	return s.ioctx.SetOmap(trashObject, map[string][]byte{trashEntry(image): value})
}

// inTrash returns the entry of an image in Ceph's list of the trash, and where in that its state is; nil: there is none.
func (s *session) inTrash(image string) (value []byte, at int, err error) {
	key := trashEntry(image)
	found, err := s.ioctx.GetOmapValues(trashObject, "", key, 1)
	if absent(err) {
		return nil, 0, nil
	}
	value, is := found[key]
	if err != nil || !is {
		return nil, 0, err
	}
	// The version, the oldest that can read it, the length, where it comes from, its name with the length, two times, the state.
	const header, length, times = 1 + 1 + 4, 4, 8 + 8
	at = header + 1
	if len(value) < at+length {
		return nil, 0, fmt.Errorf("the entry %s of %s has %d bytes", key, trashObject, len(value))
	}
	return value, at + length + int(binary.LittleEndian.Uint32(value[at:])) + times, nil
}

// rename gives an image its name again, which no other image has.
func (s *session) rename(image, name string) error {
	encoded := func(text string) []byte {
		return append(binary.LittleEndian.AppendUint32(nil, uint32(len(text))), text...)
	}
	if err := s.ioctx.WriteFull(idObject+name, encoded(image)); err != nil {
		return err
	}
	return s.ioctx.SetOmap(directoryObject, map[string][]byte{"name_" + name: encoded(image), "id_" + image: encoded(name)})
}

// listedAs returns the ID that the list of images has for a name; "" if it has none.
func (s *session) listedAs(name string) (string, error) {
	key := "name_" + name
	found, err := s.ioctx.GetOmapValues(directoryObject, "", key, 1)
	if absent(err) {
		return "", nil
	}
	if value := found[key]; err == nil && len(value) >= 4 {
		return string(value[4:]), nil
	}
	return "", err
}

// nameListed gives the image that the list of images has for a name that leads to none its name again, if it is complete; nil:
// there is none.
func (s *session) nameListed(name string) (*record, error) {
	image, err := s.listedAs(name)
	if err != nil || image == "" {
		return nil, err
	}
	r, err := s.lookInTrash(image, name)
	if err != nil || r == nil || r.damage != nil {
		return nil, err
	}
	deleted, err := s.wasDeleted(image, nil)
	if err != nil || deleted {
		return nil, err
	}
	return r, s.rename(image, name)
}

// dropTrashed ends the promise to what was in the trash of Ceph, and was removed or restored. Where the image is there without
// a name, Ceph has lost its list.
func (s *session) dropTrashed(key, image string) error {
	restored, err := s.lookInTrash(image, "")
	if err != nil {
		return err
	}
	if restored == nil {
		if _, err = s.ioctx.Stat(headerObject(image)); err == nil {
			s.log.Error("a deleted image is not in Ceph's list of its trash any more; it is kept, and can be restored", "id", image)
			return nil
		}
		if !absent(err) {
			return err
		}
	}
	return s.ledger.change(map[string]*promise{key: nil}, nil)
}

// recoverImage puts one image right, and says whether it is ours.
func (b *Backend) recoverImage(s *session, name string, entries map[string]promise) (ours bool, err error) {
	k, id, named := parseName(name)
	if !named {
		return false, nil
	}
	p, promised := entries[name]
	r, err := s.current(k, id, entries)
	if err != nil {
		return false, err
	}
	switch {
	case r == nil || errors.Is(r.damage, errIncomplete):
		if !promised {
			return false, nil
		}
		if p.State == complete {
			return true, b.recoverDamaged(s, name, r)
		}
		b.log.Info("an image that was not completed is discarded", "image", name)
		return true, s.discard(name, p)
	}
	if err := s.finish(r, p); err != nil {
		return true, err
	}
	if n, err := s.depth(name); err == nil && n > shallow {
		b.flattenLater(name)
	}
	return true, nil
}

// recoverDamaged handles an image that was complete and has no metadata of its own (r), or cannot be opened by its name (nil):
// then Ceph may have lost the name alone.
func (b *Backend) recoverDamaged(s *session, name string, r *record) error {
	if r != nil {
		b.log.Error("a damaged image, left alone", "image", name, "error", errReplaced)
		return nil
	}
	r, err := s.nameListed(name)
	switch {
	case err != nil:
		return err
	case r == nil:
		b.log.Error("a damaged image, left alone", "image", name, "error", errMissing)
	default:
		b.log.Error("Ceph did not find an image by its name any more, and does again", "image", name, "id", r.image)
	}
	return nil
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

// eraseClaimed removes an image that is in the trash for good, and its promise, unless copies need it.
func (s *session) eraseClaimed(image string) error {
	gone, err := s.erase(image)
	if isErrno(err, unix.EUCLEAN) {
		s.log.Warn("an image was not moved to the trash wholly, and another has its name: delete or rename that one, and start again", "id", image)
		return nil
	}
	if errors.Is(err, backend.ErrPrecondition) { // tried again when the trash is emptied
		s.log.Warn("a deleted image cannot be removed", "id", image, "error", err)
		return nil
	}
	if err != nil || !gone {
		return err
	}
	return s.ledger.change(map[string]*promise{trashKey(image): nil}, nil)
}

// recoverTrash makes sure that what is ours in Ceph's trash is promised to, and returns all that is there.
func (b *Backend) recoverTrash(s *session, entries map[string]promise) (map[string]bool, error) {
	list, err := rbd.GetTrashList(s.ioctx)
	if err != nil {
		return nil, err
	}
	there := map[string]bool{}
	for _, t := range list {
		if there[t.Id], err = b.recoverTrashed(s, t, entries); err != nil {
			return nil, err
		}
	}
	return there, nil
}

// recoverTrashed says whether an image in the trash is there indeed, and promises to it if it is ours.
func (b *Backend) recoverTrashed(s *session, t rbd.TrashInfo, entries map[string]promise) (bool, error) {
	if _, known := entries[trashKey(t.Id)]; known {
		return s.finishMove(t, entries)
	}
	r, err := s.lookInTrash(t.Id, t.Name)
	if err != nil || r == nil || r.meta == nil { // not ours
		return true, err
	}
	moved, err := s.finishMove(t, entries)
	if err != nil || !moved {
		return moved, err
	}
	return true, b.recoverMove(s, r, t.DeletionTime, entries)
}

// finishMove ends the move of an image to the trash, or out of it. Ceph lists it there first, then removes its name, and says last
// that it has moved: before that it can neither be removed nor restored. An image that has its name has not moved, was
// restored, or Ceph has taken its list back: it is not in the trash, and the next request to delete it begins again.
func (s *session) finishMove(t rbd.TrashInfo, entries map[string]promise) (moved bool, err error) {
	k, id, named := parseName(t.Name)
	if !named {
		return true, nil
	}
	r, err := s.current(k, id, entries)
	if err != nil {
		return false, err
	}
	if r != nil && r.image == t.Id {
		return false, s.takeOut(r, entries[t.Name])
	}
	state, err := s.trashState(t.Id)
	if err == nil && state == trashRestoring { // and has no name yet
		err = s.setTrashState(t.Id, trashNormal)
	}
	if err != nil || r != nil || state != trashMoving {
		return true, err
	}
	if listed, err := s.listedAs(t.Name); err != nil || listed != "" && listed != t.Id { // another image, which would be moved
		return true, err
	}
	if err := s.despiteTheDead(t.Id, func() error { return rbd.GetImage(s.ioctx, t.Name).Trash(0) }); err != nil && !absent(err) { // absent: it has moved
		return false, fmt.Errorf("moving image %s to the trash: %w", t.Name, err)
	}
	return true, nil
}

// takeOut takes an image that has its name out of Ceph's list of the trash.
func (s *session) takeOut(r *record, p promise) error {
	s.log.Warn("an image that has its name is in Ceph's list of the trash, and is taken out of that", "image", r.name, "id", r.image)
	listed, err := s.listedAs(r.name)
	if err == nil && listed == "" { // its restoration ended in between
		err = s.rename(r.image, r.name)
	}
	if err == nil {
		err = s.ioctx.RmOmapKeys(trashObject, []string{trashEntry(r.image)})
	}
	if err != nil || r.damage != nil {
		return err
	}
	return s.finish(r, p)
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
