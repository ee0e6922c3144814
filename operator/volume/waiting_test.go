package volume_test

import (
	"strings"
	"testing"
	"testing/synctest"
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

func (w *world) class(name, provisioner, pool string) {
	w.Helper()
	c := &storage.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner, Parameters: map[string]string{"pool": pool}}
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
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Change = func(c *cluster.Config) { c.Driver = "csi.holdfast.dev" }
		w.Hosts(map[string]int64{"a": gib, "b": 2 * gib})
		w.class("ours", "csi.holdfast.dev", "memory")
		w.class("other-pool", "csi.holdfast.dev", "fast")
		w.class("theirs", "example.com", "")
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
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Change = func(c *cluster.Config) { c.Driver = "csi.holdfast.dev" }
		w.change = func(c *volume.Config) { c.RemindAfter = time.Millisecond }
		w.Hosts(map[string]int64{"a": gib})
		w.class("ours", "csi.holdfast.dev", "memory")
		w.waiting("large", "ours", "3Gi")
		w.leads()
		for range 2 {
			if event := <-w.Events.Events; !strings.Contains(event, "NoRoom 3Gi") {
				t.Errorf("the event is %q", event)
			}
		}
	})
}

func TestWaiting_ClaimGetsTheNodesThatItsClassAllows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Change = func(c *cluster.Config) { c.Driver = "csi.holdfast.dev" }
		w.Hosts(map[string]int64{"a": gib, "b": 2 * gib, "c": 4 * gib})
		c := &storage.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: "few"}, Provisioner: "csi.holdfast.dev", Parameters: map[string]string{"pool": "memory"},
			AllowedTopologies: []core.TopologySelectorTerm{
				{MatchLabelExpressions: []core.TopologySelectorLabelRequirement{{Key: v1beta1.TopologyKey, Values: []string{"a"}}}},
				{MatchLabelExpressions: []core.TopologySelectorLabelRequirement{{Key: v1beta1.TopologyKey, Values: []string{"b", "c"}}, {Key: v1beta1.TopologyKey, Values: []string{"b"}}}},
			},
		}
		check.Got(w.Theirs.StorageV1().StorageClasses().Create(t.Context(), c, metav1.CreateOptions{}))(t)
		w.waiting("fits-elsewhere", "few", "3Gi")
		w.leads()
		if event := <-w.Events.Events; !strings.Contains(event, `no node has that much free in pool "memory": a 1Gi, b 2Gi.`) {
			t.Errorf("the event is %q", event)
		}
	})
}
