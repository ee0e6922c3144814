package backendtest

import (
	"reflect"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// trash returns the backend as a Trasher, and skips the case if it is none.
func (c checker) trash() backend.Trasher {
	c.Helper()
	trash, ok := c.Backend.(backend.Trasher)
	if !ok {
		c.Skip("this backend keeps no trash")
	}
	return trash
}

// inTrash returns the size of the trash, if the backend reports it.
func (c checker) inTrash() (bytes int64, known bool) {
	c.Helper()
	trash, ok := c.Backend.(backend.Trasher)
	if !ok {
		return 0, false
	}
	all := check.Got(trash.Trash(ctx))(c.T)
	for _, t := range all {
		bytes += t.Size
	}
	return bytes, true
}

func (c checker) undelete(id backend.ID) *backend.Volume {
	c.Helper()
	v, err := c.trash().Undelete(ctx, id)
	if err != nil {
		c.Fatalf("undelete %s: %v", id, err)
	}
	return v
}

func undeleted(c checker) {
	trash := c.trash()
	spec := c.spec("Data of Team A")
	spec.Labels = map[string]string{"claim": "a"}
	v := c.create(spec)
	c.Write(c.T, v, content(1))
	c.snapshot("s", v.ID)
	c.remove(v.ID)
	check.OK(c.T, c.Backend.DeleteSnapshot(ctx, "s")) // the trash is independent of snapshots
	all, err := trash.Trash(ctx)
	if err != nil || len(all) != 1 {
		c.Fatalf("the trash holds %+v, %v", all, err)
	}
	if t := all[0]; t.ID != v.ID || t.Name != v.Name || t.Pool != v.Pool || t.Size != v.Size || t.Labels["claim"] != "a" || t.Deleted.IsZero() || !t.Expires.After(t.Deleted) {
		c.Errorf("the trash holds %+v of %+v", t, v)
	}
	c.Backend = c.Reopen(c.T)
	back := c.undelete(v.ID)
	if back.ID != v.ID || back.Name != v.Name || back.Size != v.Size || back.Mode != v.Mode || back.Labels["claim"] != "a" || !back.Created.Equal(v.Created) || !reflect.DeepEqual(back.Access, v.Access) {
		c.Errorf("undeleted %+v, deleted was %+v", back, v)
	}
	c.sees(back, content(1))
	c.holds(v.ID)
	if again := c.create(spec); !again.Created.Equal(v.Created) {
		c.Errorf("a repeated create made %+v", again)
	}
	if left, _ := c.inTrash(); left != 0 {
		c.Errorf("the trash still holds %d bytes", left)
	}
	c.remove(v.ID)
	c.sees(c.undelete(v.ID), content(1))
}

func undeletedInVain(c checker) {
	trash := c.trash()
	v := c.create(c.spec("a"))
	c.want(backend.ErrExists, errorOf(trash.Undelete(ctx, v.ID)))
	c.want(backend.ErrNotFound, errorOf(trash.Undelete(ctx, "never-was")))
	c.remove(v.ID)
	made := c.create(c.spec("a"))
	c.Write(c.T, made, content(2))
	c.want(backend.ErrExists, errorOf(trash.Undelete(ctx, v.ID)))
	c.sees(made, content(2))
	c.holds(v.ID)
}

func undeletedInTurn(c checker) {
	c.trash()
	for i := range uint64(2) {
		c.Write(c.T, c.create(c.spec("a")), content(i))
		c.remove("a")
	}
	c.sees(c.undelete("a"), content(1))
}

func trashGivesWay(c checker) {
	c.trash()
	before := check.Got(c.Backend.Capacity(ctx, ""))(c.T)
	spec := c.spec("a")
	spec.Size.Required = max(c.Smallest, before.Available/mib*mib*6/10)
	v := c.create(spec)
	c.remove(v.ID)
	spec.Name = "b"
	c.Write(c.T, c.create(spec), content(1))
	spec.Name = "c"
	c.want(backend.ErrExhausted, errorOf(c.Backend.Create(ctx, spec))) // two of six tenths each
	c.holds("b")
}

// staysIncompleteInTrash deletes a volume that has no content yet, and restores it where there is a trash.
func (c checker) staysIncompleteInTrash(id backend.ID) {
	c.Helper()
	trash, ok := c.Backend.(backend.Trasher)
	if !ok {
		return
	}
	check.OK(c.T, c.Backend.Delete(ctx, id))
	all, err := trash.Trash(ctx)
	if err != nil || len(all) != 1 || all[0].ID != id || !all[0].Incomplete {
		c.Fatalf("the trash has %+v, %v, want an incomplete volume %s", all, err, id)
	}
	if v := c.undelete(id); !v.Incomplete {
		c.Error("the trash has completed it")
	}
}
