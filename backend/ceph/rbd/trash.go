//go:build ceph

package rbd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ceph/go-ceph/rbd"
	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/crashpoint"
)

// discarded is an image in Ceph's trash that was ours.
type discarded struct {
	*record
	promise
	deleted time.Time
	shared  bool // with copies, which must be flattened before it can go
	kept    bool // Ceph has lost its list, and does not remove it
}

func (b *Backend) Delete(ctx context.Context, id backend.ID) error {
	if !valid(id) {
		return nil // none has that ID
	}
	_, err := do(ctx, b, id, "delete", func(ctx context.Context) (any, error) {
		r, err := b.find(ctx, volumes, id)
		if err != nil {
			return nil, err
		}
		if r == nil {
			return nil, b.clearRemains(ctx, volumes, id)
		}
		return nil, b.remove(ctx, r)
	})
	return err
}

// clearRemains removes what a creation that failed has left. What is not ours is none of it.
func (b *Backend) clearRemains(ctx context.Context, k kind, id backend.ID) error {
	if !valid(id) {
		return nil
	}
	if _, err := b.clear(ctx, imageName(k, id)); !errors.Is(err, backend.ErrExists) {
		return err
	}
	return nil
}

// remove takes an image away in two steps, so that a crash leaves it where it was or in the trash.
func (b *Backend) remove(ctx context.Context, r *record) error {
	if errors.Is(r.damage, errNewer) {
		return fmt.Errorf("%w: %w; delete it with the newer program", backend.ErrPrecondition, r.damaged())
	}
	if errors.Is(r.damage, errMissing) {
		return b.forget(ctx, r)
	}
	next := b.discardedAs(r)
	_, err := call(ctx, b, "moving image "+r.name+" to the trash", func(s *session) (any, error) {
		if err := s.unused(r); err != nil {
			return nil, err
		}
		entries, err := s.ledger.get(r.name)
		if err != nil {
			return nil, err
		}
		err = s.moveToTrash(r, max(0, b.TrashRetention))
		if isErrno(err, unix.EBUSY) {
			return nil, inUse(r, "by what has it open")
		}
		if err != nil && !absent(err) {
			return nil, err
		}
		crashpoint.Here(crashpoint.ImageTrashed)
		p := promise{Charge: max(entries[r.name].Charge, r.size), State: next, Deleted: time.Now().UTC()}
		return nil, s.ledger.change(map[string]*promise{r.name: nil, trashKey(r.image): &p}, nil)
	})
	if err != nil || next == trashed {
		return err
	}
	return b.purge(ctx, r.image, r.name)
}

// moveToTrash moves an image to Ceph's trash. Ceph takes from the list of images which one has the name.
func (s *session) moveToTrash(r *record, keep time.Duration) error {
	if err := s.relist(r); err != nil {
		return err
	}
	return s.despiteTheDead(r.image, func() error { return rbd.GetImage(s.ioctx, r.name).Trash(keep) })
}

// relist gives an image its place in the list of images again, where that has one for its name that was deleted before.
func (s *session) relist(r *record) error {
	listed, err := s.listedAs(r.name)
	if err != nil || listed == "" || listed == r.image {
		return err
	}
	deleted, err := s.wasDeleted(listed, nil)
	if err != nil || !deleted {
		return err
	}
	if err := s.ioctx.RmOmapKeys(directoryObject, []string{"id_" + listed}); err != nil {
		return err
	}
	return s.rename(r.image, r.name)
}

// forget ends the promise to an image that is not there any more, unless the list of images still has it.
func (b *Backend) forget(ctx context.Context, r *record) error {
	_, err := call(ctx, b, "forgetting image "+r.name, func(s *session) (any, error) {
		if _, err := s.unname(r.name); err != nil {
			return nil, err
		}
		image, err := s.listedAs(r.name)
		if err != nil {
			return nil, err
		}
		if image != "" {
			return nil, fmt.Errorf("%w: %w; Ceph's list of images still has it, as %s: if that is gone for good, run `%s` first", backend.ErrPrecondition, r.damaged(), image, s.rados("rmomapkey "+directoryObject+" name_"+r.name))
		}
		b.log.Warn("a deleted image was not there any more", "image", r.name)
		return nil, s.ledger.change(map[string]*promise{r.name: nil}, nil)
	})
	return err
}

// discardedAs is the state of an image that is moved to the trash.
func (b *Backend) discardedAs(r *record) state {
	if r.kind != volumes || b.TrashRetention == backend.NoTrash || r.meta != nil && r.meta.Ephemeral {
		return removing
	}
	return trashed
}

func inUse(r *record, by string) error {
	return fmt.Errorf("%w: %s %s is in use (%s); delete the pods that use it first", backend.ErrPrecondition, r.kind, r.id, by)
}

// unused fails while a node has an image mapped. What this process has open, or had when the cluster did not answer, is no
// use: no other operation of it runs on the image.
func (s *session) unused(r *record) error {
	image, err := rbd.OpenImageReadOnly(s.ioctx, r.name, rbd.NoSnapshot)
	if err != nil {
		return err
	}
	defer image.Close()
	user, err := s.userOf(image)
	if err != nil || user == "" {
		return err
	}
	return inUse(r, "at "+user)
}

// ClientOf lists who watches the image, which is who has it open to write.
func (b *Backend) ClientOf(ctx context.Context, id backend.ID, known []string) (address string, err error) {
	return do(ctx, b, id, "list the clients of", func(ctx context.Context) (string, error) {
		r, err := b.need(ctx, volumes, id, "")
		if err != nil {
			return "", err
		}
		return call(ctx, b, "listing the clients of image "+r.name, func(s *session) (string, error) {
			image, err := rbd.OpenImageReadOnly(s.ioctx, r.name, rbd.NoSnapshot)
			if err != nil {
				return "", err
			}
			defer image.Close()
			return s.userOf(image, known...)
		})
	})
}

// userOf returns the address of a living client of an image that is neither this process nor known; "" if there is none.
func (s *session) userOf(image *rbd.Image, known ...string) (string, error) {
	watchers, err := image.ListWatchers()
	if err != nil {
		return "", err
	}
	watchers = slices.DeleteFunc(watchers, func(w rbd.ImageWatcher) bool {
		return uint64(w.Id) == s.conn.GetInstanceID() || slices.Contains(known, w.Addr)
	})
	if len(watchers) == 0 {
		return "", nil
	}
	living, err := s.living(watchers)
	if err != nil || len(living) == 0 {
		return "", err
	}
	return living[0].Addr, nil
}

// unusedTrash fails while a client has an image in the trash open.
func (s *session) unusedTrash(image *rbd.Image) error {
	user, err := s.userOf(image)
	if err != nil || user == "" {
		return err
	}
	return fmt.Errorf("%w: an image in the trash is in use (at %s), and is not removed before that ends", backend.ErrPrecondition, user)
}

// purge removes an image that is in the trash for good. Where copies share its content it stays until they are flattened,
// and so does its promise.
func (b *Backend) purge(ctx context.Context, image, name string) error {
	_, err := do(ctx, b, backend.ID("trash/"+image), "remove", func(ctx context.Context) (any, error) {
		return call(ctx, b, "removing image "+name, func(s *session) (any, error) {
			key := trashKey(image)
			entries, err := s.ledger.get(key)
			p, known := entries[key]
			if err != nil || !known { // restored, or removed
				return nil, err
			}
			state, err := s.trashState(image)
			if err == nil && state == trashRestoring {
				err = fmt.Errorf("%w: image %s is being restored from the trash; the next start of the pool's process ends that", backend.ErrPrecondition, name)
			}
			if err != nil {
				return nil, err
			}
			if p.State != removing {
				if err := s.withID(image, s.unusedTrash); err != nil && !absent(err) {
					return nil, err
				}
				p.State = removing
				if err := s.ledger.change(map[string]*promise{key: &p}, nil); err != nil {
					return nil, err
				}
			}
			crashpoint.Here(crashpoint.ImageGiven)
			gone, err := s.erase(image)
			if err != nil || !gone {
				return nil, err
			}
			crashpoint.Here(crashpoint.ImageRemoved)
			return nil, s.ledger.change(map[string]*promise{key: nil}, nil)
		})
	})
	return err
}

// erase removes an image in the trash, or, where copies need its content, all else of it.
func (s *session) erase(image string) (gone bool, err error) {
	err = s.withID(image, func(open *rbd.Image) error { return unsnap(open, contentSnapshot) })
	if absent(err) {
		err = nil // there is less than an image
	}
	if err != nil {
		return false, err
	}
	err = s.despiteTheDead(image, func() error { return rbd.TrashRemove(s.ioctx, image, true) })
	if err == nil || absent(err) {
		return true, nil
	}
	if !isErrno(err, unix.ENOTEMPTY) && !isErrno(err, unix.EBUSY) {
		return false, err
	}
	return false, s.withID(image, func(open *rbd.Image) error {
		if err := s.unusedTrash(open); err != nil {
			return err
		}
		return open.Resize(0)
	})
}

// trashedImage is an image of Holdfast in the trash of Ceph.
type trashedImage struct {
	rbd.TrashInfo
	promise
	unlisted *record // Ceph has lost its list, and neither opens nor removes it
}

func (s *session) trash() (ours []trashedImage, err error) {
	entries, err := s.ledger.all()
	if err != nil {
		return nil, err
	}
	list, err := rbd.GetTrashList(s.ioctx)
	if err != nil {
		return nil, err
	}
	for _, t := range list {
		if p, is := entries[trashKey(t.Id)]; is {
			ours = append(ours, trashedImage{TrashInfo: t, promise: p})
			delete(entries, trashKey(t.Id))
		}
	}
	for key, p := range entries {
		image, is := strings.CutPrefix(key, trashKey(""))
		if !is || p.State != trashed {
			continue
		}
		r, err := s.lookUnnamed(image)
		if err != nil {
			return nil, err
		}
		if r != nil {
			ours = append(ours, trashedImage{TrashInfo: rbd.TrashInfo{Id: image, Name: r.name}, promise: p, unlisted: r})
		}
	}
	return ours, nil
}

// trash returns the volumes that can be restored, the last deleted first.
func (b *Backend) trash(ctx context.Context) ([]*discarded, error) {
	return call(ctx, b, "listing the trash", func(s *session) (all []*discarded, err error) {
		list, err := s.trash()
		if err != nil {
			return nil, err
		}
		for _, t := range list {
			if k, _, named := parseName(t.Name); t.State != trashed || !named || k != volumes {
				continue
			}
			if t.unlisted != nil {
				all = append(all, &discarded{record: t.unlisted, promise: t.promise, deleted: t.Deleted, kept: true})
				continue
			}
			d, err := s.readTrash(t.TrashInfo, t.promise)
			if err != nil {
				return nil, err
			}
			if d != nil {
				all = append(all, d)
			}
		}
		slices.SortFunc(all, func(x, y *discarded) int { return y.deleted.Compare(x.deleted) })
		return all, nil
	})
}

func (s *session) readTrash(t rbd.TrashInfo, p promise) (*discarded, error) {
	d := &discarded{promise: p, deleted: p.Deleted}
	if d.deleted.IsZero() {
		d.deleted = t.DeletionTime
	}
	image, err := rbd.OpenImageByIdReadOnly(s.ioctx, t.Id, rbd.NoSnapshot)
	if absent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer image.Close()
	if d.record, err = s.readImage(t.Id, t.Name); err != nil || d.record == nil {
		return nil, err
	}
	children, err := image.ListChildrenAttributes()
	d.shared = len(children) > 0
	return d, err
}

// Trash lists deleted volumes that can be restored, the last deleted first.
func (b *Backend) Trash(ctx context.Context) ([]backend.Trashed, error) {
	all, err := b.trash(ctx)
	if err != nil {
		return nil, err
	}
	var found []backend.Trashed
	for _, d := range all {
		t := backend.Trashed{ID: d.id, Pool: b.Name, Deleted: d.deleted, Expires: d.deleted.Add(max(0, b.TrashRetention))}
		if d.meta != nil {
			t.Name, t.Size, t.Labels, t.Incomplete = d.meta.Name, d.meta.Size, d.meta.Labels, d.meta.Incomplete
		}
		found = append(found, t)
	}
	return found, nil
}

// Undelete takes the last deleted volume of that ID out of the trash. Its room was promised all the time.
func (b *Backend) Undelete(ctx context.Context, id backend.ID) (*backend.Volume, error) {
	return do(ctx, b, id, "undelete", func(ctx context.Context) (*backend.Volume, error) {
		if _, err := backend.ParseID(string(id)); err != nil {
			return nil, fmt.Errorf("%w: volume %s is not in the trash", backend.ErrNotFound, backend.Quote(string(id)))
		}
		r, err := b.find(ctx, volumes, id)
		if err != nil {
			return nil, err
		}
		if r != nil {
			return nil, fmt.Errorf("%w: volume %s exists in pool %s", backend.ErrExists, id, b.Name)
		}
		if _, err := b.clear(ctx, imageName(volumes, id)); err != nil {
			return nil, err
		}
		all, err := b.trash(ctx)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(all, func(d *discarded) bool { return d.id == id })
		if i < 0 {
			return nil, fmt.Errorf("%w: volume %s is not in the trash of pool %s", backend.ErrNotFound, id, b.Name)
		}
		return b.revive(ctx, all[i])
	})
}

func (b *Backend) revive(ctx context.Context, d *discarded) (*backend.Volume, error) {
	return do(ctx, b, backend.ID("trash/"+d.image), "undelete", func(ctx context.Context) (*backend.Volume, error) {
		return call(ctx, b, "restoring image "+d.name, func(s *session) (*backend.Volume, error) {
			key := trashKey(d.image)
			entries, err := s.ledger.get(key)
			if err != nil {
				return nil, err
			}
			if entries[key].State != trashed {
				return nil, fmt.Errorf("%w: volume %s is no longer in the trash of pool %s: it expired, or its space was needed", backend.ErrNotFound, d.id, b.Name)
			}
			if d.kept {
				err = s.rename(d.image, d.name)
			} else {
				err = rbd.TrashRestore(s.ioctx, d.image, d.name)
			}
			if err != nil {
				return nil, err
			}
			b.deleted.Forget(d.image)
			crashpoint.Here(crashpoint.ImageRevived)
			p := promise{Charge: d.Charge, State: complete}
			if err := s.ledger.change(map[string]*promise{key: nil, d.name: &p}, nil); err != nil {
				return nil, err
			}
			return b.volume(d.record), nil
		})
	})
}

// valid says whether anything can have an ID that came from outside.
func valid(id backend.ID) bool {
	_, err := backend.ParseID(string(id))
	return err == nil
}
