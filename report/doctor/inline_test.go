package doctor

import (
	"slices"
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/report/facts"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestPodsWithInlineVolumesAreFoundWhereNoneAreAllowed(t *testing.T) {
	clients, theirs, _ := installed(t)
	add := func(name, driver string, phase core.PodPhase) {
		p := &core.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop"}, Status: core.PodStatus{Phase: phase}}
		p.Spec.Volumes = []core.Volume{{Name: "v", VolumeSource: core.VolumeSource{CSI: &core.CSIVolumeSource{Driver: driver}}}}
		check.Got(theirs.CoreV1().Pods("shop").Create(t.Context(), p, metav1.CreateOptions{}))(t)
	}
	add("waits", "csi.holdfast.dev", core.PodPending)
	add("runs", "csi.holdfast.dev", core.PodRunning)
	add("over", "csi.holdfast.dev", core.PodSucceeded)
	add("another", "secrets.example", core.PodRunning)
	gather := func() *Facts {
		f := check.Got(facts.All(t.Context(), clients, home, "csi.holdfast.dev"))(t)
		slices.Sort(f.InlineUsers)
		return f
	}
	if f := gather(); !slices.Equal(f.InlineUsers, []string{"shop/runs", "shop/waits"}) || len(checkInlineVolumes(f)) != 1 {
		t.Errorf("found %v, reported %v", f.InlineUsers, checkInlineVolumes(f))
	}
	all := check.Got(clients.Holdfast.HoldfastV1beta1().StorageClusters().List(t.Context(), metav1.ListOptions{}))(t)
	c := &all.Items[0]
	c.Spec.CSI.Ephemeral = &v1beta1.EphemeralSpec{Pools: []string{"default"}, MaxSize: resource.MustParse("1Gi")}
	check.Got(clients.Holdfast.HoldfastV1beta1().StorageClusters().Update(t.Context(), c, metav1.UpdateOptions{}))(t)
	if found := checkInlineVolumes(gather()); len(found) > 0 {
		t.Errorf("where they are allowed: %v", found)
	}
}
