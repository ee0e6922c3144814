package volume_test

import (
	"maps"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/cluster"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/inmemory"
)

func TestServers_SilentOneIsDownAndNeverDeleted(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.KubernetesNode("node-a")
		hosts := w.Servers(map[string]int64{inmemory.ServerA: 4 * gib}, map[string]int64{"node-a": gib})
		w.leads()
		for _, name := range []string{"v", "leaving"} {
			check.Got(w.Backend.Create(t.Context(), inmemory.SharedSpec(name, mib, "")))(t)
		}
		w.down(inmemory.ServerA)
		w.reason("v", v1beta1.ReasonNodeDown)
		v, err := w.Backend.Get(t.Context(), "v")
		if err != nil || !v.Condition.Abnormal || v.Access.NFS == nil { // what it exports may go on without its agent
			t.Errorf("the volume is %+v, %v", v, err)
		}
		err = w.Backend.Delete(t.Context(), "leaving")
		inmemory.Expect(t, err, backend.ErrUnavailable, "NFS server shop/a", "when the server is back")
		// A Node object of that name would be a coincidence; its end says nothing of the server.
		w.KubernetesNode(inmemory.ServerA)
		w.deleteNode(inmemory.ServerA)
		w.KubernetesNode("node-b")
		w.deleteNode("node-b") // reconciled after it
		w.down("node-a")
		if o := w.Volume("v"); o == nil || o.Status.Phase != v1beta1.PhaseReady {
			t.Errorf("the volume is %+v", o)
		}
		if o := w.Volume("leaving"); o == nil {
			t.Error("a volume was given up that the server still has")
		}
		if _, err := w.Nodes().Get(t.Context(), inmemory.ServerA, metav1.GetOptions{}); err != nil {
			t.Errorf("the server's record: %v", err)
		}
		w.Agent(inmemory.ServerA, inmemory.Exporter{Host: hosts[inmemory.ServerA]})
		w.Gone("leaving")
		w.reason("v", v1beta1.ReasonReady)
	})
}

func TestServers_VolumeIsCreatedElsewhereWhileOneIsDown(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.Servers(map[string]int64{inmemory.ServerA: 4 * gib, inmemory.ServerB: 2 * gib}, map[string]int64{"node-a": gib})
		w.leads()
		w.down(inmemory.ServerA)
		v, err := w.Backend.Create(t.Context(), inmemory.SharedSpec("v", mib, ""))
		if err != nil || v.Server != "team/b" {
			t.Errorf("made %+v, %v", v, err)
		}
		_, err = w.Backend.Create(t.Context(), inmemory.SharedSpec("w", mib, "shop/a"))
		inmemory.Expect(t, err, backend.ErrUnavailable, "shop/a", "down")
	})
}

func TestServers_ClaimForASharedVolumeGetsTheirCapacity(t *testing.T) {
	for name, c := range map[string]struct {
		parameters map[string]string
		want       string
	}{
		"too small": {nil, "no NFS server has that much free: shop/a 2Gi, team/b 4Gi. Request less, or grow its storage."},
		"another one": {
			map[string]string{"nfsServer": "shop/b"},
			"the class names the NFS server shop/b, which does not exist. Create it, or use another class.",
		},
		"a pool": {map[string]string{"pool": "fast"}, `no NFS server has pool "fast". Use a class without the parameter pool.`},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(_ *testing.T, w *world) {
				w.Change = func(c *cluster.Config) { c.Driver = "csi.holdfast.dev" }
				w.Servers(map[string]int64{inmemory.ServerA: 2 * gib, inmemory.ServerB: 4 * gib}, map[string]int64{"node-a": 100 * gib})
				parameters := map[string]string{"shared": "true"}
				maps.Copy(parameters, c.parameters)
				w.class("shared", "csi.holdfast.dev", parameters)
				w.waiting("big", "shared", "50Gi")
				w.leads()
				w.ExpectEvent("NoRoom", "Warning NoRoom 50Gi is requested, and "+c.want)
			})
		})
	}
}

func TestServers_WithoutAnAllowedOneTheClaimGetsTheRemedy(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.Change = func(c *cluster.Config) { c.Driver = "csi.holdfast.dev" }
		w.Servers(map[string]int64{inmemory.ServerB: 4 * gib}, map[string]int64{"node-a": gib})
		w.Allow()
		w.class("shared", "csi.holdfast.dev", map[string]string{"shared": "true"})
		w.Until("the list", func() bool { _, err := w.Backend.SharedCapacity(t.Context(), "team/b", ""); return err != nil })
		_, err := w.Backend.Create(t.Context(), inmemory.SharedSpec("v", mib, ""))
		inmemory.Expect(t, err, backend.ErrUnavailable, "team/b", `"namespaces":["team"]`)
		w.waiting("files", "shared", "1Gi")
		w.leads()
		w.ExpectEvent("NoRoom", "team/b", `"namespaces":["team"]`)
	})
}
