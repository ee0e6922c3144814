//go:build ceph

package cephfs

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-storage/holdfast/backend"
	rig "github.com/holdfast-storage/holdfast/test/rig/ceph"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// Ceph loses an attribute, or takes it back, as when a placement group of the metadata is lost: the files of every volume stay,
// those of a deleted one too.
func TestLoss_OfAnAttributeCostsNoFile(t *testing.T) {
	longAgo := time.Now().Add(-1000 * time.Hour).UTC()
	for name, loss := range map[string]struct {
		of, attr string // of is a volume; "" is the group
		becomes  func(was []byte) any
	}{
		"pool removed":     {"", poolAttr, nil},
		"pool older":       {"", poolAttr, func([]byte) any { return poolMeta{Version: version, ID: "older"} }},
		"owner removed":    {"", ownerAttr, nil},
		"owner older":      {"", ownerAttr, func([]byte) any { return ownerMeta{Token: "older", Host: "older", Seen: longAgo} }},
		"volume removed":   {"a", volumeAttr, nil},
		"volume older":     {"a", volumeAttr, older(func(m *meta) { m.Deleted = &longAgo })},
		"volume smaller":   {"a", volumeAttr, older(func(m *meta) { m.Size, m.Charge = mib, mib })},
		"trash removed":    {"t", volumeAttr, nil},
		"trash older":      {"t", volumeAttr, older(func(m *meta) { m.Deleted = nil })},
		"volume copying":   {"a", volumeAttr, older(func(m *meta) { m.State = copying })},
		"snapshot removed": {"a", snapshotsAttr + "s", nil},
		"snapshot older":   {"a", snapshotsAttr + "s", olderSnapshot},
		"building older":   {"", buildingAttr + "a", func([]byte) any { return meta{Version: version, ID: "a", Name: "a", Size: mib, Charge: mib} }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 0)
			w.config.TrashRetention = 59 * time.Second // what is kept for less than a minute goes by the clocks alone
			w.reopen()
			content := []byte(t.Name())
			all := map[string]*backend.Volume{}
			for _, id := range []string{"a", "t"} {
				all[id] = w.create(id, 8*mib)
				w.write(all[id], "file", content)
			}
			check.Got(w.backend.Snapshot(t.Context(), backend.SnapshotSpec{Name: "s", Source: "a"}))(t)
			check.OK(t, w.backend.Delete(t.Context(), "t"))
			w.close()
			later := time.Now().Add(time.Hour).UTC()
			w.takeBack("/volumes/"+w.config.Group+"/t", volumeAttr, older(func(m *meta) { m.Deleted = &later })) // however long this takes
			at := "/volumes/" + w.config.Group
			if loss.of != "" {
				at += "/" + loss.of
			}
			w.takeBack(at, loss.attr, loss.becomes)
			for range 2 {
				w.open()
				if p, err := w.backend.use(t.Context()); err == nil { // or it is refused
					check.Report(t, w.backend.tidy(t.Context(), p))
				}
				w.close()
			}
			for id, v := range all {
				if got := w.read(v, "file"); !bytes.Equal(got, content) {
					t.Errorf("volume %s has %q", id, got)
				}
			}
			if found := w.ceph("fs", "subvolume", "snapshot", "ls", rig.FileSystem, "a", "--group_name", w.config.Group); !bytes.Contains([]byte(found), []byte(`"s"`)) {
				t.Errorf("volume a has the snapshots %s", found)
			}
		})
	}
}

func TestLoss_SnapshotWhoseRecordIsOlderIsThatOfItsVolumeAlone(t *testing.T) {
	w := newWorld(t, 0)
	for _, id := range []string{"a", "b"} {
		w.create(id, 8*mib)
	}
	taken := check.Got(w.backend.Snapshot(t.Context(), backend.SnapshotSpec{Name: "s", Source: "a"}))(t)
	older := func() { w.takeBack("/volumes/"+w.config.Group+"/a", snapshotsAttr+"s", olderSnapshot) }
	older()
	if _, err := w.backend.Snapshot(t.Context(), backend.SnapshotSpec{Name: "s", Source: "b"}); !errors.Is(err, backend.ErrExists) {
		t.Errorf("a snapshot of the same name, of another volume: %v", err)
	}
	older()
	if again, err := w.backend.Snapshot(t.Context(), backend.SnapshotSpec{Name: "s", Source: "a"}); err != nil || again.Source != "a" || !again.Created.Equal(taken.Created) {
		t.Errorf("the same again is %+v, %v", again, err)
	}
}

// older is what a volume's attribute was.
func older(change func(*meta)) func([]byte) any {
	return func(was []byte) any {
		var m meta
		_ = json.Unmarshal(was, &m) // it was written a moment ago
		change(&m)
		return m
	}
}

// olderSnapshot is what a snapshot's attribute was while it was taken.
func olderSnapshot(was []byte) any {
	var m snapshotMeta
	_ = json.Unmarshal(was, &m)
	m.State = building
	return m
}

func (w *world) takeBack(at, attr string, becomes func([]byte) any) {
	w.Helper()
	g := &group{fs: w.fs(), dir: at}
	was, err := g.attr(at, attr)
	check.OK(w, err)
	if becomes == nil {
		err = w.fs().RemoveXattr(at, attr)
	} else {
		err = g.set(at, attr, becomes(was))
	}
	check.OK(w, err)
}
