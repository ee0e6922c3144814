//go:build ceph

package rbd

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ceph/go-ceph/rados"
	"github.com/ceph/go-ceph/rbd"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/ceph"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// loss is what Ceph has lost of a pool, as after `ceph pg force-create-pg`, or taken back, as after `mark_unfound_lost revert`.
type loss struct {
	objects []string
	first   bool         // the older version is from before the first volume was deleted
	damaged []backend.ID // of the volumes
}

// Groups have no row: pools of images refuse group snapshots, so there is no object that says which snapshots belong together.
var losses = map[string]loss{
	"directory":              {objects: []string{directoryObject}},
	"trash":                  {objects: []string{trashObject}},
	"directory and trash":    {objects: []string{directoryObject, trashObject}},
	"image metadata":         {damaged: []backend.ID{"a"}},
	"image ID":               {objects: []string{idObject + "volume.again"}, first: true},
	"image ID and directory": {objects: []string{idObject + "volume.again", directoryObject}, first: true, damaged: []backend.ID{"again"}},
	"ledger":                 {objects: []string{ledgerObject}},
}

// dataOf are the objects that have the content of images, and their headers.
func dataOf(t *testing.T, at ceph.Config) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	hands(t, at, func(pool *rados.IOContext) {
		check.OK(t, pool.ListObjects(func(name string) {
			if strings.HasPrefix(name, "rbd_data.") || strings.HasPrefix(name, "rbd_header.") {
				found[name] = true
			}
		}))
	})
	return found
}

// pool has the volumes a, again, b, c and restored, of which a and again have content, a snapshot of a, and the deleted volumes
// early, t and an earlier one with the name again.
func (l loss) pool(t *testing.T) (at ceph.Config, content []byte) {
	t.Helper()
	at, b, end := openWith(t, Config{TrashRetention: time.Hour}, "a", "again", "early", "restored")
	ctx := t.Context()
	_, content = filled(t, at, b)
	older := func() {
		for i, object := range l.objects {
			inPool(t, at, "cp", object, fmt.Sprint("older", i))
		}
	}
	if l.first {
		older()
	}
	check.OK(t, errors.Join(b.Delete(ctx, "again"), b.Delete(ctx, "early"), b.Delete(ctx, "restored")))
	if !l.first {
		older()
	}
	_, err := b.Undelete(ctx, "restored")
	check.OK(t, errors.Join(err, created(ctx, b, "again", "b", "c", "t"), b.Delete(ctx, "t")))
	again, err := b.Get(ctx, "again")
	check.OK(t, err)
	write(t, at, again, content)
	check.Got(b.Snapshot(ctx, backend.SnapshotSpec{Name: "s", Source: "a"}))(t)
	end()
	return at, content
}

func inPool(t *testing.T, at ceph.Config, args ...string) {
	t.Helper()
	if out, err := small.Command(t.Context(), "rados", append([]string{"-p", at.Pool}, args...)...); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func (l loss) happens(t *testing.T, at ceph.Config, older bool) {
	t.Helper()
	for i, object := range l.objects {
		if older {
			inPool(t, at, "cp", fmt.Sprint("older", i), object)
		} else {
			inPool(t, at, "rm", object)
		}
	}
	if l.objects == nil {
		hands(t, at, func(pool *rados.IOContext) {
			image, err := rbd.OpenImage(pool, "volume.a", rbd.NoSnapshot)
			check.OK(t, err)
			defer image.Close()
			err = image.RemoveMetadata(metaKey)
			if older {
				err = image.SetMetadata(metaKey, `{"version":1,"kind":"volume","id":"a","image":"older"}`)
			}
			check.OK(t, err)
		})
	}
}

func TestLoss_OfAnObjectOfCephCostsNoData(t *testing.T) {
	for name, l := range losses {
		for _, older := range []bool{false, true} {
			title := map[bool]string{false: " removed", true: " of an older version"}[older]
			t.Run(name+title, func(t *testing.T) {
				at, content := l.pool(t)
				before := dataOf(t, at)
				l.happens(t, at, older)
				for range 2 {
					b, end := open(t, at, Config{TrashRetention: time.Hour})
					l.check(t, b)
					check.Report(t, b.emptyTrash(ceph.Background(t.Context()), time.Now()))
					end()
				}
				for object := range maps.Keys(before) {
					if !dataOf(t, at)[object] {
						t.Errorf("%s is gone", object)
					}
				}
				hands(t, at, func(pool *rados.IOContext) {
					trash, err := rbd.GetTrashList(pool)
					check.Report(t, err)
					for _, is := range trash { // as `rbd trash purge` would remove it
						if is.Name == "volume.restored" {
							t.Error("the volume restored is in Ceph's list of deleted images")
						}
					}
				})
				b, end := open(t, at, Config{TrashRetention: time.Hour})
				defer end()
				for _, id := range []backend.ID{"a", "again"} {
					v := check.Got(b.Get(t.Context(), id))(t)
					if id == "again" && slices.Contains(l.damaged, id) {
						continue
					}
					if got := read(t, at, v, len(content)); !bytes.Equal(got, content) {
						t.Errorf("volume %s has lost its content", id)
					}
				}
				check.Report(t, b.Delete(t.Context(), "restored"))
				for _, id := range []backend.ID{"t", "early", "restored"} {
					if v, err := b.Undelete(t.Context(), id); err != nil || v.Condition.Abnormal {
						t.Errorf("volume %s is not restored: %+v, %v", id, v, err)
					}
				}
			})
		}
	}
}

func (l loss) check(t *testing.T, b *Backend) {
	t.Helper()
	ctx := t.Context()
	all, err := b.List(ctx)
	check.OK(t, err)
	var ids []backend.ID
	for _, v := range all {
		ids = append(ids, v.ID)
		if v.Condition.Abnormal != slices.Contains(l.damaged, v.ID) {
			t.Errorf("volume %s: %+v", v.ID, v.Condition)
		}
	}
	if want := []backend.ID{"a", "again", "b", "c", "restored"}; !slices.Equal(ids, want) {
		t.Errorf("there are the volumes %v, want %v", ids, want)
	}
	for _, id := range ids {
		if err := created(ctx, b, string(id)); (err != nil) != slices.Contains(l.damaged, id) {
			t.Errorf("volume %s is made again: %v", id, err)
		}
	}
	snapshots, err := b.ListSnapshots(ctx)
	if err != nil || len(snapshots) != 1 {
		t.Errorf("there are %d snapshots, want 1: %v", len(snapshots), err)
	}
	trash, err := b.Trash(ctx)
	if err != nil || len(trash) != 3 {
		t.Errorf("the trash has %+v, %v", trash, err)
	}
	if is, err := b.Capacity(ctx, ""); err != nil || is.Promised < 9*size {
		t.Errorf("promised are %d, %v, to nine images of %d", is.Promised, err, size)
	}
}

// By its metadata the volume is smaller than its image, which the pool finds when it starts.
func TestLoss_MetadataFromBeforeAVolumeGrewCostsNoData(t *testing.T) {
	at, b, end := openWith(t, Config{}, "a")
	content, back, older := []byte("at the end"), make([]byte, len("at the end")), ""
	onImage := func(f func(*rbd.Image) error) {
		t.Helper()
		hands(t, at, func(pool *rados.IOContext) {
			image := check.Got(rbd.OpenImage(pool, "volume.a", rbd.NoSnapshot))(t)
			defer image.Close()
			check.OK(t, f(image))
		})
	}
	onImage(func(image *rbd.Image) (err error) {
		older, err = image.GetMetadata(metaKey)
		return err
	})
	check.Got(b.Expand(t.Context(), "a", backend.Size{Required: 3 * size}))(t)
	onImage(func(image *rbd.Image) error {
		_, err := image.WriteAt(content, 3*size-int64(len(content)))
		return errors.Join(err, image.SetMetadata(metaKey, older))
	})
	end()
	b, end = open(t, at, Config{})
	defer end()
	if v, err := b.Get(t.Context(), "a"); err != nil || v.Condition.Abnormal || v.Size != 3*size {
		t.Errorf("it is %+v, %v", v, err)
	}
	check.Got(b.Expand(t.Context(), "a", backend.Size{Required: 2 * size}))(t)
	onImage(func(image *rbd.Image) error {
		_, err := image.ReadAt(back, 3*size-int64(len(content)))
		return err
	})
	if !bytes.Equal(back, content) {
		t.Errorf("its end has %q", back)
	}
}

func TestLoss_OfManyImagesAtOnceLeavesThePoolAlone(t *testing.T) {
	at, b, end := openWith(t, Config{}, "a", "b", "c", "d", "e")
	filled(t, at, b)
	end()
	before := dataOf(t, at)
	for _, object := range []string{idObject + "volume.a", idObject + "volume.b", idObject + "volume.c", directoryObject} {
		inPool(t, at, "rm", object)
	}
	b, end = open(t, at, Config{})
	_, err := b.List(t.Context())
	if !errors.Is(err, backend.ErrUnavailable) || !strings.Contains(err.Error(), "lacks 3 of the 5 images") || !strings.Contains(err.Error(), "`rados -p "+at.Pool+" rmomapkey holdfast.promises volume.a`") {
		t.Errorf("the pool is taken: %v", err)
	}
	end()
	inPool(t, at, "rmomapkey", ledgerObject, "volume.c") // by an administrator who knows that it is gone for good
	b, end = open(t, at, Config{})
	defer end()
	for _, id := range []backend.ID{"a", "b"} {
		v, err := b.Get(t.Context(), id)
		if err != nil || !v.Condition.Abnormal || !strings.Contains(v.Condition.Message, "does not find it any more") {
			t.Errorf("volume %s: %+v, %v", id, v, err)
		}
		if err := created(t.Context(), b, string(id)); !errors.Is(err, backend.ErrPrecondition) {
			t.Errorf("volume %s is made again: %v", id, err)
		}
		check.Report(t, b.Delete(t.Context(), id))
	}
	if all, err := b.List(t.Context()); err != nil || len(all) != 2 {
		t.Errorf("there are %+v, %v", all, err)
	}
	if after := dataOf(t, at); !maps.Equal(before, after) {
		t.Errorf("of %d objects %d are left", len(before), len(after))
	}
}

// The process that restored the volume was killed in between, or lost the pool.
func TestUndelete_ThatEndedHalfwayIsFinished(t *testing.T) {
	for _, listed := range []bool{true, false} { // Ceph writes the object of the name first, and then its list
		t.Run(fmt.Sprint("listed ", listed), func(t *testing.T) { undeleteEndsHalfway(t, listed) })
	}
}

func undeleteEndsHalfway(t *testing.T, listed bool) {
	at, b, end := openWith(t, Config{TrashRetention: time.Hour}, "a")
	a, content := filled(t, at, b)
	check.OK(t, b.Delete(t.Context(), "a"))
	image := a.Access.RBD.ImageID
	hands(t, at, func(pool *rados.IOContext) {
		s := &session{ioctx: pool}
		expect := func(want int) {
			t.Helper()
			if is, err := s.trashState(image); is != want || err != nil {
				t.Errorf("Ceph has it in the trash as %d, %v, want %d", is, err, want)
			}
		}
		expect(trashNormal)
		key := trashEntry(image)
		found, err := pool.GetOmapValues(trashObject, "", key, 1)
		if err != nil || len(found[key]) == 0 {
			t.Fatal(found, err)
		}
		entry := found[key]
		entry[len(entry)-1] = trashRestoring
		check.OK(t, errors.Join(pool.SetOmap(trashObject, map[string][]byte{key: entry}), s.rename(image, "volume.a")))
		if !listed {
			check.OK(t, pool.RmOmapKeys(directoryObject, []string{"name_volume.a", "id_" + image}))
		}
		expect(trashRestoring)
	})
	if err := b.purge(ceph.Background(t.Context()), image, "volume.a"); !errors.Is(err, backend.ErrPrecondition) {
		t.Errorf("it is removed: %v", err)
	}
	for range 2 {
		end()
		b, end = open(t, at, Config{TrashRetention: time.Hour})
		is, err := b.Get(t.Context(), "a")
		if err != nil || is.Condition.Abnormal {
			t.Fatalf("%+v, %v", is, err)
		}
		if trash, err := b.Trash(t.Context()); len(trash) > 0 || err != nil {
			t.Errorf("the trash has %+v, %v", trash, err)
		}
		if all, err := b.List(t.Context()); len(all) != 1 || err != nil {
			t.Errorf("there are %+v, %v", all, err)
		}
		check.Report(t, b.emptyTrash(ceph.Background(t.Context()), time.Now().Add(2*time.Hour)))
		if !bytes.Equal(read(t, at, is, len(content)), content) {
			t.Error("it has lost its content")
		}
	}
}

// Nothing has the name since the volume was deleted.
func TestLoss_NameThatLeadsToADeletedImageIsThatOfANewVolume(t *testing.T) {
	at, b, end := openWith(t, Config{TrashRetention: time.Hour}, "a")
	filled(t, at, b)
	inPool(t, at, "cp", idObject+"volume.a", "older0")
	inPool(t, at, "cp", directoryObject, "older1")
	check.OK(t, b.Delete(t.Context(), "a"))
	end()
	inPool(t, at, "cp", "older0", idObject+"volume.a")
	inPool(t, at, "cp", "older1", directoryObject)
	b, end = open(t, at, Config{TrashRetention: time.Hour})
	defer end()
	if v, err := b.Get(t.Context(), "a"); !errors.Is(err, backend.ErrNotFound) {
		t.Errorf("the deleted volume is there: %+v, %v", v, err)
	}
	check.OK(t, created(t.Context(), b, "a"))
	v, err := b.Get(t.Context(), "a")
	check.OK(t, err)
	trash, err := b.Trash(t.Context())
	if err != nil || len(trash) != 1 {
		t.Errorf("the trash has %+v, %v", trash, err)
	}
	deleted, err := b.trash(t.Context())
	if err != nil || len(deleted) != 1 || deleted[0].image == v.Access.RBD.ImageID {
		t.Errorf("the new volume is the deleted one: %+v, %v", deleted, err)
	}
}

// The process that was to restore the volume was killed before it had its name.
func TestUndelete_ThatEndedBeforeItBeganCanBeRepeated(t *testing.T) {
	at, b, end := openWith(t, Config{TrashRetention: time.Hour}, "a")
	a, content := filled(t, at, b)
	check.OK(t, b.Delete(t.Context(), "a"))
	end()
	state := func(set bool) (is int) {
		hands(t, at, func(pool *rados.IOContext) {
			s := &session{ioctx: pool}
			var err error
			if set {
				err = s.setTrashState(a.Access.RBD.ImageID, trashRestoring)
			}
			if is, err = s.trashState(a.Access.RBD.ImageID); err != nil {
				t.Fatal(err)
			}
		})
		return is
	}
	if is := state(true); is != trashRestoring {
		t.Fatalf("Ceph has it in the trash as %d", is)
	}
	b, end = open(t, at, Config{TrashRetention: time.Hour})
	defer end()
	if trash, err := b.Trash(t.Context()); len(trash) != 1 || err != nil || state(false) != trashNormal {
		t.Errorf("the trash has %+v, %v", trash, err)
	}
	v := check.Got(b.Undelete(t.Context(), "a"))(t)
	if !bytes.Equal(read(t, at, v, len(content)), content) {
		t.Error("it has lost its content")
	}
}

// A volume of the same name was being made, and nothing of it was there yet.
func TestLoss_WhatIsListedAgainIsNotRemovedWithWhatWasBeingMade(t *testing.T) {
	at, b, end := openWith(t, Config{TrashRetention: time.Hour}, "a")
	_, content := filled(t, at, b)
	inPool(t, at, "cp", directoryObject, "older")
	check.OK(t, b.Delete(t.Context(), "a"))
	check.Got(call(ceph.Background(t.Context()), b, "promising", func(s *session) (any, error) {
		return nil, s.ledger.change(map[string]*promise{"volume.a": {Charge: size, State: building}}, nil)
	}))(t)
	end()
	inPool(t, at, "cp", "older", directoryObject)
	b, end = open(t, at, Config{TrashRetention: time.Hour})
	defer end()
	v := check.Got(b.Undelete(t.Context(), "a"))(t)
	if !bytes.Equal(read(t, at, v, len(content)), content) {
		t.Error("the deleted volume has lost its content")
	}
}

// Another image of its name was deleted before, and can be restored.
func TestLoss_WhatIsListedAgainIsNotDeletedInPlaceOfItsSuccessor(t *testing.T) {
	at, b, end := openWith(t, Config{TrashRetention: time.Hour}, "a")
	older, content := filled(t, at, b)
	inPool(t, at, "cp", directoryObject, "older")
	check.OK(t, b.Delete(t.Context(), "a"))
	end()
	b, end = open(t, at, Config{TrashRetention: backend.NoTrash})
	check.OK(t, created(t.Context(), b, "a"))
	successor := check.Got(b.Get(t.Context(), "a"))(t)
	if older.Access.RBD.ImageID == successor.Access.RBD.ImageID {
		t.Fatal("both are one image")
	}
	inPool(t, at, "cp", "older", directoryObject)
	check.OK(t, b.Delete(t.Context(), "a"))
	end()
	hands(t, at, func(pool *rados.IOContext) {
		if _, err := pool.Stat(headerObject(successor.Access.RBD.ImageID)); !absent(err) {
			t.Errorf("what was deleted for good is there still: %v", err)
		}
	})
	b, end = open(t, at, Config{TrashRetention: time.Hour})
	defer end()
	v := check.Got(b.Undelete(t.Context(), "a"))(t)
	if !bytes.Equal(read(t, at, v, len(content)), content) {
		t.Error("the one that was deleted before has lost its content")
	}
}
