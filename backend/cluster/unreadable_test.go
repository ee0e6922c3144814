package cluster_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/inmemory"
)

func TestUnreadable_VolumeIsRefusedByNameAndTheOthersContinue(t *testing.T) {
	inBubble(t, func(w *world) {
		host := w.Hosts(map[string]int64{"a": gib})["a"]
		for _, name := range []string{"v", "other"} {
			check.Got(w.Backend.Create(w.Context(), inmemory.Spec(name, mib)))(w)
		}
		w.Spoil("v")
		_, got := w.Backend.Get(w.Context(), "v")
		_, made := w.Backend.Create(w.Context(), inmemory.Spec("v", mib))
		_, grown := w.Backend.Expand(w.Context(), "v", backend.Size{Required: 2 * mib})
		_, cloned := w.Backend.Clone(w.Context(), "v", inmemory.Spec("copy", mib))
		_, taken := w.Backend.Snapshot(w.Context(), backend.SnapshotSpec{Name: "s", Source: "v"})
		for what, err := range map[string]error{
			"get": got, "create": made, "expand": grown, "clone": cloned, "snapshot": taken, "delete": w.Backend.Delete(w.Context(), "v"),
		} {
			if !errors.Is(err, backend.ErrUnavailable) || !strings.Contains(err.Error(), `spec.inodes: "many" cannot be read`) {
				w.Errorf("%s: %v", what, err)
			}
		}
		all, err := w.Backend.List(w.Context())
		if err != nil || len(all) != 2 || !all[1].Condition.Abnormal || !strings.Contains(all[1].Condition.Message, "spec.inodes") {
			w.Errorf("the list is %+v, %v", all, err)
		}
		check.Got(w.Backend.Create(w.Context(), inmemory.Spec("third", mib)))(w)
		check.Report(w, w.Backend.Delete(w.Context(), "other"))
		if v := w.Volume("v"); v == nil || v.DeletionTimestamp != nil || v.Spec.Deletion != nil || v.Unreadable() == nil || !host.Has("v") {
			w.Errorf("it became %+v", v)
		}
	})
}
