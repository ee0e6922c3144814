package cluster_test

import (
	"slices"
	"strings"
	"testing"

	storage "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/cluster"
)

func TestAServerThatNobodyAllowedGetsNoVolumesOfOthers(t *testing.T) {
	w := newWorld(t)
	hosts := w.servers(map[string]int64{serverA: 2 * gib, serverB: 400 * gib}, map[string]int64{"node-a": gib})
	if _, err := w.backend.Create(t.Context(), sharedSpec("before", mib, "team/b")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.backend.Snapshot(t.Context(), backend.SnapshotSpec{Name: "s", Source: "before"}); err != nil {
		t.Fatal(err)
	}
	w.allow("shop", "other")
	w.until("the list", func() bool { _, err := w.backend.SharedCapacity(t.Context(), "team/b", ""); return err != nil })
	const command = `kubectl patch storagecluster holdfast --type=merge --patch='{"spec":{"nfs":{"namespaces":["shop","other","team"]}}}'`
	v, err := w.backend.Create(t.Context(), sharedSpec("v", mib, ""))
	if err != nil || v.Server != "shop/a" {
		t.Fatalf("made %+v, %v", v, err)
	}
	if c, err := w.backend.SharedCapacity(t.Context(), "", ""); err != nil || c.Total != 2*gib {
		t.Errorf("the capacity is %+v, %v", c, err)
	}
	_, err = w.backend.Create(t.Context(), sharedSpec("w", mib, "team/b"))
	expect(t, err, backend.ErrUnavailable, "team/b", command)
	_, err = w.backend.Restore(t.Context(), "s", sharedSpec("restored", mib, ""))
	expect(t, err, backend.ErrUnavailable, "team/b", command)
	_, err = w.backend.Clone(t.Context(), "before", sharedSpec("cloned", mib, ""))
	expect(t, err, backend.ErrUnavailable, "team/b", command)
	if has := hosts[serverB].volumes(); len(has) != 1 {
		t.Errorf("the server has %v", has)
	}
	// What it has is served on: it grows, is copied, and goes.
	if v, err := w.backend.Expand(t.Context(), "before", backend.Size{Required: 2 * mib}); err != nil || v.Size != 2*mib {
		t.Errorf("it grew to %+v, %v", v, err)
	}
	if _, err := w.backend.Snapshot(t.Context(), backend.SnapshotSpec{Name: "another", Source: "before"}); err != nil {
		t.Error(err)
	}
	if err := w.backend.Delete(t.Context(), "before"); err != nil {
		t.Error(err)
	}
	w.allow("shop", "team")
	w.until("a volume of the server that is allowed again", func() bool {
		v, err := w.backend.Create(t.Context(), sharedSpec("w", mib, "team/b"))
		return err == nil && v.Server == "team/b"
	})
}

func TestWithoutAnAllowedServerAClaimIsToldWhatAllowsOne(t *testing.T) {
	w := newWorld(t)
	w.change = func(c *cluster.Config) { c.Driver = "csi.holdfast.dev" }
	w.servers(map[string]int64{serverB: 4 * gib}, map[string]int64{"node-a": gib})
	w.allow()
	class := &storage.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "shared"}, Provisioner: "csi.holdfast.dev", Parameters: map[string]string{"shared": "true"}}
	if _, err := w.theirs.StorageV1().StorageClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.until("the list", func() bool { _, err := w.backend.SharedCapacity(t.Context(), "team/b", ""); return err != nil })
	_, err := w.backend.Create(t.Context(), sharedSpec("v", mib, ""))
	expect(t, err, backend.ErrUnavailable, "team/b", `"namespaces":["team"]`)
	w.waiting("files", class.Name, "1Gi")
	w.leads()
	var told []string
	w.until("the event", func() bool {
		select {
		case e := <-w.events.Events:
			told = append(told, e)
		default:
		}
		return slices.ContainsFunc(told, func(e string) bool {
			return strings.HasPrefix(e, "Warning NoRoom") && strings.Contains(e, "team/b") && strings.Contains(e, `"namespaces":["team"]`)
		})
	})
}
