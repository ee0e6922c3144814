package volume_test

import (
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend/cluster"
	"github.com/holdfast-storage/holdfast/operator/volume"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func (w *world) class(name, provisioner string, parameters map[string]string, allowed ...core.TopologySelectorTerm) {
	w.Helper()
	c := &storage.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner}
	c.Parameters, c.AllowedTopologies = parameters, allowed
	check.Got(w.Theirs.StorageV1().StorageClasses().Create(w.Context(), c, metav1.CreateOptions{}))(w)
}

func (w *world) waiting(name, class, size string) *core.PersistentVolumeClaim {
	w.Helper()
	c := &core.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: core.PersistentVolumeClaimSpec{
		StorageClassName: &class,
		Resources:        core.VolumeResourceRequirements{Requests: core.ResourceList{core.ResourceStorage: resource.MustParse(size)}},
	}, Status: core.PersistentVolumeClaimStatus{Phase: core.ClaimPending}}
	return check.Got(w.Theirs.CoreV1().PersistentVolumeClaims("shop").Create(w.Context(), c, metav1.CreateOptions{}))(w)
}

func TestWaiting_ClaimThatFitsNowhereGetsTheFreeCapacityPerNode(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.Change = func(c *cluster.Config) { c.Driver = "csi.holdfast.dev" }
		w.Hosts(map[string]int64{"a": gib, "b": 2 * gib})
		w.class("ours", "csi.holdfast.dev", map[string]string{"pool": "memory"})
		w.class("other-pool", "csi.holdfast.dev", map[string]string{"pool": "fast"})
		w.class("theirs", "example.com", nil)
		w.waiting("fits", "ours", "2Gi")
		w.waiting("theirs", "theirs", "100Gi")
		w.waiting("large", "ours", "3Gi")
		w.waiting("lost", "other-pool", "1Mi")
		w.leads()
		events := map[string]bool{}
		for len(events) < 2 {
			event := <-w.Events.Events
			switch {
			case strings.Contains(event, "Warning NoRoom 3Gi") && strings.Contains(event, `pool "memory": a 1Gi, b 2Gi`):
				events["large"] = true
			case strings.Contains(event, "Warning NoRoom 1Mi") && strings.Contains(event, `no node has pool "fast". Add it to spec.pools`):
				events["lost"] = true
			default:
				t.Fatalf("%d reported, then %q", len(events), event)
			}
		}
		// A claim that is looked at later shows that the first ones were not reported again.
		w.waiting("larger", "ours", "4Gi")
		if event := <-w.Events.Events; !strings.Contains(event, "NoRoom 4Gi") {
			t.Errorf("reported again: %q", event)
		}
	})
}

func TestWaiting_ClaimThatWaitsLongGetsAnotherEvent(t *testing.T) {
	inBubble(t, func(_ *testing.T, w *world) {
		w.Change = func(c *cluster.Config) { c.Driver = "csi.holdfast.dev" }
		w.change = func(c *volume.Config) { c.RemindAfter = time.Millisecond }
		w.Hosts(map[string]int64{"a": gib})
		w.class("ours", "csi.holdfast.dev", map[string]string{"pool": "memory"})
		w.waiting("large", "ours", "3Gi")
		w.leads()
		w.ExpectEvent("NoRoom", "3Gi")
		w.ExpectEvent("NoRoom", "3Gi")
	})
}

func TestWaiting_ClaimGetsTheNodesThatItsClassAllows(t *testing.T) {
	inBubble(t, func(_ *testing.T, w *world) {
		w.Change = func(c *cluster.Config) { c.Driver = "csi.holdfast.dev" }
		w.Hosts(map[string]int64{"a": gib, "b": 2 * gib, "c": 4 * gib})
		on := func(nodes ...string) core.TopologySelectorLabelRequirement {
			return core.TopologySelectorLabelRequirement{Key: v1beta1.TopologyKey, Values: nodes}
		}
		w.class("few", "csi.holdfast.dev", map[string]string{"pool": "memory"},
			core.TopologySelectorTerm{MatchLabelExpressions: []core.TopologySelectorLabelRequirement{on("a")}},
			core.TopologySelectorTerm{MatchLabelExpressions: []core.TopologySelectorLabelRequirement{on("b", "c"), on("b")}})
		w.waiting("fits-elsewhere", "few", "3Gi")
		w.leads()
		w.ExpectEvent("NoRoom", `no node has that much free in pool "memory": a 1Gi, b 2Gi.`)
	})
}
