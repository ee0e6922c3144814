package backendtest

import (
	"context"
	"math"
	"reflect"
	"strings"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

var ctx = context.Background()

func created(c checker) {
	spec := c.spec("Data of Team A")
	spec.Labels = map[string]string{"claim": "a"}
	spec.OnNodeLoss = backend.DeleteOnNodeLoss
	v := c.create(spec)
	if v.Name != spec.Name || v.Size < c.Smallest || v.Mode != c.Mode || v.Labels["claim"] != "a" || v.OnNodeLoss != spec.OnNodeLoss || v.Created.IsZero() || v.Source != nil {
		c.Errorf("created %+v from %+v", v, spec)
	}
	if _, err := backend.ParseID(string(v.ID)); err != nil {
		c.Error(err)
	}
	got, err := c.Backend.Get(ctx, v.ID)
	if err != nil || got.ID != v.ID || got.Size != v.Size || !reflect.DeepEqual(got.Access, v.Access) {
		c.Errorf("Get returned %+v, %v for %+v", got, err, v)
	}
	c.want(backend.ErrNotFound, errorOf(c.Backend.Get(ctx, "absent")))
	c.holds(v.ID)
}

func repeatedCreate(c checker) {
	first := c.create(c.spec("a"))
	c.Write(c.T, first, content(1))
	relabelled := c.spec("a")
	relabelled.Labels = map[string]string{"labels": "are no part of it"}
	for _, spec := range []backend.VolumeSpec{c.spec("a"), relabelled, {Name: "a"}} {
		if again := c.create(spec); again.ID != first.ID || again.Size != first.Size || !again.Created.Equal(first.Created) {
			c.Errorf("repeat returned %+v, first was %+v", again, first)
		}
	}
	c.sees(first, content(1))
	c.holds(first.ID)
}

func differingCreate(c checker) {
	v := c.create(c.spec("a"))
	c.Write(c.T, v, content(1))
	snapshot := c.snapshot("s", v.ID)
	for what, change := range map[string]func(*backend.VolumeSpec){
		"larger":    func(s *backend.VolumeSpec) { s.Size.Required *= 2 },
		"smaller":   func(s *backend.VolumeSpec) { s.Size = backend.Size{Required: 1, Limit: c.Smallest - mib} },
		"options":   func(s *backend.VolumeSpec) { s.MkfsOptions = []string{"-m", "1"} },
		"inodes":    func(s *backend.VolumeSpec) { s.Inodes = 77 },
		"thickness": func(s *backend.VolumeSpec) { s.Provisioning = backend.Thick },
		"pool":      func(s *backend.VolumeSpec) { s.Pool = "elsewhere" },
	} {
		spec := c.spec("a")
		change(&spec)
		_, err := c.Backend.Create(ctx, spec)
		if err == nil {
			c.Errorf("a repeat with another %s was accepted", what)
			continue
		}
		c.want(backend.ErrExists, err)
	}
	c.want(backend.ErrExists, errorOf(c.Backend.Restore(ctx, snapshot.ID, c.spec("a"))))
	// An ID that was derived from one name is not accepted as the name of another volume.
	odd := c.create(c.spec("Odd Name"))
	c.want(backend.ErrExists, errorOf(c.Backend.Create(ctx, c.spec(string(odd.ID)))))
	c.sees(v, content(1))
	c.holds(v.ID, odd.ID)
}

func badCreate(c checker) {
	for _, name := range []string{"", strings.Repeat("x", 10_000)} {
		c.want(backend.ErrInvalid, errorOf(c.Backend.Create(ctx, c.spec(name))))
	}
	for _, name := range []string{"../../etc", "a/b", "line\nbreak", "nul\x00byte", "größe", ".", "-"} {
		v := c.create(c.spec(name))
		if _, err := backend.ParseID(string(v.ID)); err != nil {
			c.Error(err)
		}
		c.remove(v.ID)
	}
	for _, bad := range []struct {
		size backend.Size
		kind error
	}{
		{backend.Size{Required: -1}, backend.ErrInvalid},
		{backend.Size{Required: c.Smallest, Limit: -5}, backend.ErrInvalid},
		{backend.Size{Required: 2 * c.Smallest, Limit: c.Smallest}, backend.ErrInvalid},
		{backend.Size{Required: 1, Limit: 2}, backend.ErrOutOfRange},
		{backend.Size{Required: math.MaxInt64}, backend.ErrOutOfRange},
		{backend.Size{Required: 1 << 50}, backend.ErrExhausted},
	} {
		spec := c.spec("sized")
		spec.Size = bad.size
		c.want(bad.kind, errorOf(c.Backend.Create(ctx, spec)))
	}
	spec := c.spec("lost")
	spec.Pool = "elsewhere"
	c.want(backend.ErrInvalid, errorOf(c.Backend.Create(ctx, spec)))
	c.holds()
}

func deleted(c checker) {
	before := check.Got(c.Backend.Capacity(ctx, ""))(c.T)
	v := c.create(c.spec("a"))
	c.Write(c.T, v, content(1))
	during, _ := c.Backend.Capacity(ctx, "")
	if during.Promised != before.Promised+v.Size {
		c.Errorf("promised went from %d to %d with a volume of %d", before.Promised, during.Promised, v.Size)
	}
	c.remove(v.ID)
	c.remove(v.ID)
	c.remove("never-was")
	c.want(backend.ErrNotFound, errorOf(c.Backend.Get(ctx, v.ID)))
	c.holds()
	kept := v.Size // by a backend that does not report its trash
	if bytes, known := c.inTrash(); known {
		kept = bytes
	}
	if after, _ := c.Backend.Capacity(ctx, ""); after.Promised != before.Promised && after.Promised != before.Promised+kept {
		c.Errorf("promised is %d after the delete, was %d before the create, and the trash keeps %d", after.Promised, before.Promised, kept)
	}
	c.Write(c.T, c.create(c.spec("a")), content(2)) // the name is free again
}

func contentSurvivesReopen(c checker) {
	v := c.create(c.spec("a"))
	c.Write(c.T, v, content(1))
	c.Backend = c.Reopen(c.T)
	got := check.Got(c.Backend.Get(ctx, v.ID))(c.T)
	c.sees(got, content(1))
	if again := c.create(c.spec("a")); again.ID != v.ID || !again.Created.Equal(v.Created) {
		c.Errorf("repeat after the restart returned %+v, want %+v", again, v)
	}
}

func expanded(c checker) {
	v := c.create(c.spec("a"))
	c.Write(c.T, v, content(1))
	for range 2 {
		grown, err := c.Backend.Expand(ctx, v.ID, backend.Size{Required: 2 * v.Size})
		if err != nil || grown.Size != 2*v.Size {
			c.Fatalf("expand to %d returned %+v, %v", 2*v.Size, grown, err)
		}
	}
	smaller, err := c.Backend.Expand(ctx, v.ID, backend.Size{Required: v.Size})
	if err != nil || smaller.Size != 2*v.Size {
		c.Errorf("asking for less returned %+v, %v", smaller, err)
	}
	c.want(backend.ErrExhausted, errorOf(c.Backend.Expand(ctx, v.ID, backend.Size{Required: 1 << 50})))
	c.want(backend.ErrInvalid, errorOf(c.Backend.Expand(ctx, v.ID, backend.Size{Required: 3 * v.Size, Limit: 3*v.Size - 2*mib})))
	c.want(backend.ErrNotFound, errorOf(c.Backend.Expand(ctx, "absent", backend.Size{Required: mib})))
	c.sees(v, content(1))
	c.Backend = c.Reopen(c.T)
	got, err := c.Backend.Get(ctx, v.ID)
	if err != nil || got.Size != 2*v.Size {
		c.Fatalf("after a restart the volume is %+v, %v", got, err)
	}
	c.sees(got, content(1))
}

// isNoSource checks that nothing is made of a volume that has only a part of its content.
func (c checker) isNoSource(id backend.ID) {
	c.Helper()
	c.want(backend.ErrPrecondition, errorOf(c.Backend.Clone(ctx, id, backend.VolumeSpec{Name: "of-a-part"})))
	c.want(backend.ErrPrecondition, errorOf(c.Backend.Snapshot(ctx, backend.SnapshotSpec{Name: "of-a-part", Source: id})))
	if b, ok := c.Backend.(backend.GroupSnapshotter); ok {
		c.want(backend.ErrPrecondition, errorOf(b.SnapshotGroup(ctx, backend.GroupSpec{Name: "of-a-part", Sources: []backend.ID{id}})))
	}
}

func completed(c checker) {
	spec := c.spec("a")
	spec.Incomplete = true
	if _, ok := c.Backend.(backend.Completer); !ok {
		c.want(backend.ErrInvalid, errorOf(c.Backend.Create(ctx, spec)))
		return
	}
	complete := func(id backend.ID) error { return c.Backend.(backend.Completer).Complete(ctx, id) }
	v := c.create(spec)
	if !v.Incomplete {
		c.Errorf("made incomplete, it is %+v", v)
	}
	c.Write(c.T, v, content(1))
	check.OK(c.T, errorOf(c.Backend.Expand(ctx, v.ID, backend.Size{Required: 2 * v.Size})))
	c.Backend = c.Reopen(c.T)
	if v = c.get(v.ID); !v.Incomplete {
		c.Error("a growth or a restart has completed it")
	}
	c.staysIncompleteInTrash(v.ID)
	c.isNoSource(v.ID)
	for range 2 {
		check.OK(c.T, complete(v.ID))
	}
	if c.get(v.ID).Incomplete {
		c.Error("it is still incomplete")
	}
	c.Backend = c.Reopen(c.T)
	if now := c.get(v.ID); now.Incomplete || now.Size != v.Size || !now.Created.Equal(v.Created) {
		c.Errorf("complete, it is %+v, was %+v", now, v)
	}
	c.sees(c.get(v.ID), content(1))
	c.want(backend.ErrNotFound, complete("absent"))
}
