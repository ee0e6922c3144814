//go:build ceph

package rbd

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ceph/go-ceph/rados"
	"github.com/ceph/go-ceph/rbd"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/ceph"
)

// loss is what Ceph has lost of a pool, as after `ceph pg force-create-pg`, or taken back, as after `mark_unfound_lost revert`.
type loss struct {
	object  string
	damaged []backend.ID // of the volumes a, b and c
}

var losses = map[string]loss{
	"directory":      {object: directoryObject},
	"trash":          {object: "rbd_trash"},
	"image metadata": {object: "", damaged: []backend.ID{"a"}},
	"image ID":       {object: idObject + "volume.a"},
	"ledger":         {object: ledgerObject},
}

// dataOf are the objects that have the content of images, and their headers.
func dataOf(t *testing.T, at ceph.Config) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	hands(t, at, func(pool *rados.IOContext) {
		err := pool.ListObjects(func(name string) {
			if strings.HasPrefix(name, "rbd_data.") || strings.HasPrefix(name, "rbd_header.") {
				found[name] = true
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	return found
}

// lostPool has the volumes a, b and c, of which a has content, a snapshot of it, and the deleted volume t.
// Of its first days there is a copy of an object.
func lostPool(t *testing.T, object string) (at ceph.Config, content []byte) {
	t.Helper()
	at, b, end := openWith(t, Config{TrashRetention: time.Hour}, "a", "early")
	ctx := t.Context()
	_, content = filled(t, at, b)
	if err := b.Delete(ctx, "early"); err != nil {
		t.Fatal(err)
	}
	if object != "" {
		inPool(t, at, "cp", object, "older")
	}
	if err := errors.Join(created(ctx, b, "b", "c", "t"), b.Delete(ctx, "t")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Snapshot(ctx, backend.SnapshotSpec{Name: "s", Source: "a"}); err != nil {
		t.Fatal(err)
	}
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
	switch {
	case l.object != "" && older:
		inPool(t, at, "cp", "older", l.object)
	case l.object != "":
		inPool(t, at, "rm", l.object)
	default:
		hands(t, at, func(pool *rados.IOContext) {
			image, err := rbd.OpenImage(pool, "volume.a", rbd.NoSnapshot)
			if err != nil {
				t.Fatal(err)
			}
			defer image.Close()
			err = image.RemoveMetadata(metaKey)
			if older {
				err = image.SetMetadata(metaKey, `{"version":1,"kind":"volume","id":"a","image":"older"}`)
			}
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestLoss_OfAnObjectOfCephCostsNoData(t *testing.T) {
	for name, l := range losses {
		for _, older := range []bool{false, true} {
			title := map[bool]string{false: " removed", true: " of an older version"}[older]
			t.Run(name+title, func(t *testing.T) {
				at, content := lostPool(t, l.object)
				before := dataOf(t, at)
				l.happens(t, at, older)
				for range 2 {
					b, end := open(t, at, Config{TrashRetention: time.Hour})
					l.check(t, b)
					if err := b.emptyTrash(ceph.Background(t.Context()), time.Now()); err != nil {
						t.Error(err)
					}
					end()
				}
				for object := range maps.Keys(before) {
					if !dataOf(t, at)[object] {
						t.Errorf("%s is gone", object)
					}
				}
				b, end := open(t, at, Config{TrashRetention: time.Hour})
				defer end()
				a, err := b.Get(t.Context(), "a")
				if err != nil {
					t.Fatal(err)
				}
				if got := read(t, at, a, len(content)); !bytes.Equal(got, content) {
					t.Error("volume a has lost its content")
				}
				for _, id := range []backend.ID{"t", "early"} {
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
	if err != nil {
		t.Fatal(err)
	}
	var ids []backend.ID
	for _, v := range all {
		ids = append(ids, v.ID)
		if v.Condition.Abnormal != slices.Contains(l.damaged, v.ID) {
			t.Errorf("volume %s: %+v", v.ID, v.Condition)
		}
	}
	if want := []backend.ID{"a", "b", "c"}; !slices.Equal(ids, want) {
		t.Errorf("there are the volumes %v, want %v", ids, want)
	}
	if err := created(ctx, b, "a"); (err == nil) != (len(l.damaged) == 0) {
		t.Errorf("volume a is made again: %v", err)
	}
	snapshots, err := b.ListSnapshots(ctx)
	if err != nil || len(snapshots) != 1 {
		t.Errorf("there are %d snapshots, want 1: %v", len(snapshots), err)
	}
	trash, err := b.Trash(ctx)
	if err != nil || len(trash) != 2 {
		t.Errorf("the trash has %+v, %v", trash, err)
	}
	if is, err := b.Capacity(ctx, ""); err != nil || is.Promised < 6*size {
		t.Errorf("promised are %d, %v, to six images of %d", is.Promised, err, size)
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
		if err := b.Delete(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	if all, err := b.List(t.Context()); err != nil || len(all) != 2 {
		t.Errorf("there are %+v, %v", all, err)
	}
	if after := dataOf(t, at); !maps.Equal(before, after) {
		t.Errorf("of %d objects %d are left", len(before), len(after))
	}
}
