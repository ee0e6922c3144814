package cluster_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/inmemory"
)

func TestUnreadable_VolumeIsRefusedByNameAndTheOthersContinue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		host := w.Hosts(map[string]int64{"a": gib})["a"]
		for _, name := range []string{"v", "other"} {
			check.Got(w.Backend.Create(t.Context(), inmemory.Spec(name, mib)))(t)
		}
		w.Spoil("v")
		_, got := w.Backend.Get(t.Context(), "v")
		_, made := w.Backend.Create(t.Context(), inmemory.Spec("v", mib))
		_, grown := w.Backend.Expand(t.Context(), "v", backend.Size{Required: 2 * mib})
		_, cloned := w.Backend.Clone(t.Context(), "v", inmemory.Spec("copy", mib))
		_, taken := w.Backend.Snapshot(t.Context(), backend.SnapshotSpec{Name: "s", Source: "v"})
		for what, err := range map[string]error{
			"get": got, "create": made, "expand": grown, "clone": cloned, "snapshot": taken, "delete": w.Backend.Delete(t.Context(), "v"),
		} {
			if !errors.Is(err, backend.ErrUnavailable) || !strings.Contains(err.Error(), `spec.inodes: "many" cannot be read`) {
				t.Errorf("%s: %v", what, err)
			}
		}
		all, err := w.Backend.List(t.Context())
		if err != nil || len(all) != 2 || !all[1].Condition.Abnormal || !strings.Contains(all[1].Condition.Message, "spec.inodes") {
			t.Errorf("the list is %+v, %v", all, err)
		}
		if _, err := w.Backend.Create(t.Context(), inmemory.Spec("third", mib)); err != nil {
			t.Error(err)
		}
		check.Report(t, w.Backend.Delete(t.Context(), "other"))
		if v := w.Volume("v"); v == nil || v.DeletionTimestamp != nil || v.Spec.Deletion != nil || v.Unreadable() == nil || !host.Has("v") {
			t.Errorf("it became %+v", v)
		}
	})
}
