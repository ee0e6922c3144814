package backendtest

import (
	"slices"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func snapshotKeepsContent(c checker) {
	v := c.create(c.spec("a"))
	c.Write(c.T, v, content(1))
	s := c.snapshot("s", v.ID)
	if s.Source != v.ID || s.Size != v.Size || s.Mode != v.Mode || s.Created.IsZero() {
		c.Errorf("snapshot %+v of %+v", s, v)
	}
	c.Write(c.T, v, content(2))
	r := check.Got(c.Backend.Restore(ctx, s.ID, c.spec("r")))(c.T)
	c.sees(r, content(1))
	c.sees(v, content(2))
	c.remove(v.ID) // a snapshot is independent of its source
	r2 := check.Got(c.Backend.Restore(ctx, s.ID, c.spec("r2")))(c.T)
	c.sees(r2, content(1))
}

func restored(c checker) {
	v := c.create(c.spec("a"))
	c.Write(c.T, v, content(1))
	s := c.snapshot("s", v.ID)
	for range 2 {
		r := check.Got(c.Backend.Restore(ctx, s.ID, c.spec("r")))(c.T)
		if want := (backend.Source{Kind: backend.SourceSnapshot, ID: s.ID}); r.Source == nil || *r.Source != want {
			c.Errorf("the source of the restored volume is %v", r.Source)
		}
	}
	c.want(backend.ErrExists, errorOf(c.Backend.Create(ctx, c.spec("r"))))
	r, _ := c.Backend.Get(ctx, "r")
	c.Write(c.T, r, content(3))
	c.sees(v, content(1))

	larger := c.spec("larger")
	larger.Size.Required = 2 * v.Size
	grown, err := c.Backend.Restore(ctx, s.ID, larger)
	if err != nil || grown.Size != 2*v.Size {
		c.Fatalf("restore into a larger volume returned %+v, %v", grown, err)
	}
	c.sees(grown, content(1))
	same, err := c.Backend.Restore(ctx, s.ID, backend.VolumeSpec{Name: "same"})
	if err != nil || same.Size != v.Size {
		c.Fatalf("restore without a size returned %+v, %v, want %d bytes", same, err, v.Size)
	}
	c.remove(same.ID)
	small := c.spec("small")
	small.Size = backend.Size{Required: mib, Limit: mib}
	c.want(backend.ErrOutOfRange, errorOf(c.Backend.Restore(ctx, s.ID, small)))
	check.OK(c.T, c.Backend.DeleteSnapshot(ctx, s.ID))
	c.sees(r, content(3)) // a restored volume is independent of its snapshot
	c.holds(v.ID, r.ID, grown.ID)
}

func cloned(c checker) {
	v := c.create(c.spec("a"))
	c.Write(c.T, v, content(1))
	var copied *backend.Volume
	for range 2 {
		copied = check.Got(c.Backend.Clone(ctx, v.ID, c.spec("b")))(c.T)
	}
	c.sees(copied, content(1))
	c.Write(c.T, copied, content(2))
	c.sees(v, content(1))
	c.want(backend.ErrExists, errorOf(c.Backend.Clone(ctx, v.ID, c.spec("a"))))
	c.remove(v.ID)
	c.sees(copied, content(2))
	second := check.Got(c.Backend.Clone(ctx, copied.ID, c.spec("c")))(c.T)
	c.sees(second, content(2))
	c.holds(copied.ID, second.ID)
}

func snapshotIdempotency(c checker) {
	v, other := c.create(c.spec("a")), c.create(c.spec("other"))
	first := c.snapshot("s", v.ID)
	if again := c.snapshot("s", v.ID); again.ID != first.ID || !again.Created.Equal(first.Created) {
		c.Errorf("repeat returned %+v, first was %+v", again, first)
	}
	c.want(backend.ErrExists, errorOf(c.Backend.Snapshot(ctx, backend.SnapshotSpec{Name: "s", Source: other.ID})))
	c.want(backend.ErrNotFound, errorOf(c.Backend.Snapshot(ctx, backend.SnapshotSpec{Name: "of nothing", Source: "absent"})))
	c.want(backend.ErrInvalid, errorOf(c.Backend.Snapshot(ctx, backend.SnapshotSpec{Source: v.ID})))
	c.snapshot(string(v.ID), v.ID) // a snapshot may have the name of a volume
	c.listsSnapshots("a", "s")
	for range 2 {
		check.OK(c.T, c.Backend.DeleteSnapshot(ctx, "s"))
	}
	c.want(backend.ErrNotFound, errorOf(c.Backend.GetSnapshot(ctx, "s")))
	c.listsSnapshots("a")
}

func (c checker) listsSnapshots(ids ...backend.ID) {
	c.Helper()
	all := check.Got(c.Backend.ListSnapshots(ctx))(c.T)
	var have []backend.ID
	for _, s := range all {
		have = append(have, s.ID)
	}
	if !slices.Equal(have, ids) {
		c.Fatalf("the backend lists snapshots %v, want %v", have, ids)
	}
}

func restoreFromNothing(c checker) {
	c.want(backend.ErrNotFound, errorOf(c.Backend.Restore(ctx, "absent", c.spec("r"))))
	c.want(backend.ErrNotFound, errorOf(c.Backend.Clone(ctx, "absent", c.spec("r"))))
	c.want(backend.ErrNotFound, errorOf(c.Backend.Clone(ctx, "r", c.spec("r"))))
	c.holds()
}

// groups returns the backend as a GroupSnapshotter, and skips the case if it is none.
func (c checker) groups() backend.GroupSnapshotter {
	c.Helper()
	groups, ok := c.Backend.(backend.GroupSnapshotter)
	if !ok {
		c.Skip("this backend takes no snapshots of groups")
	}
	return groups
}

func grouped(c checker) {
	groups := c.groups()
	var sources []backend.ID
	for i, name := range []string{"c", "a", "b"} {
		v := c.create(c.spec(name))
		c.Write(c.T, v, content(uint64(i)))
		sources = append(sources, v.ID)
	}
	spec := backend.GroupSpec{Name: "g", Sources: sources}
	g := check.Got(groups.SnapshotGroup(ctx, spec))(c.T)
	again, err := groups.SnapshotGroup(ctx, spec)
	if err != nil || again.ID != g.ID || len(again.Snapshots) != 3 || !again.Created.Equal(g.Created) {
		c.Fatalf("repeat returned %+v, %v, first was %+v", again, err, g)
	}
	c.want(backend.ErrExists, errorOf(groups.SnapshotGroup(ctx, backend.GroupSpec{Name: "g", Sources: sources[:2]})))
	for _, bad := range [][]backend.ID{nil, {"a", "a"}} {
		c.want(backend.ErrInvalid, errorOf(groups.SnapshotGroup(ctx, backend.GroupSpec{Name: "bad", Sources: bad})))
	}
	c.want(backend.ErrNotFound, errorOf(groups.SnapshotGroup(ctx, backend.GroupSpec{Name: "half", Sources: []backend.ID{"a", "absent"}})))
	if all, _ := c.Backend.ListSnapshots(ctx); len(all) != 3 {
		c.Errorf("%d snapshots exist, want the 3 of the one group", len(all))
	}
	c.want(backend.ErrPrecondition, c.Backend.DeleteSnapshot(ctx, g.Snapshots[0].ID))
	for i, s := range g.Snapshots {
		r, err := c.Backend.Restore(ctx, s.ID, c.spec("restored "+string(s.Source)))
		if err != nil || s.Group != g.ID {
			c.Fatalf("member %d: %+v, %v", i, s, err)
		}
		c.sees(r, content(uint64(slices.Index(sources, s.Source))))
	}
	for range 2 {
		check.OK(c.T, groups.DeleteGroup(ctx, g.ID))
	}
	c.want(backend.ErrNotFound, errorOf(groups.GetGroup(ctx, g.ID)))
	c.listsSnapshots()
}
