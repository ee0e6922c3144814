package cluster

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

func roomVolume(version string, size int64, made bool) *v1beta1.Volume {
	v := &v1beta1.Volume{ObjectMeta: metav1.ObjectMeta{Name: "v", ResourceVersion: version}, Spec: v1beta1.VolumeSpec{Node: "a"}}
	v.Spec.Size.Required = resource.NewQuantity(size, resource.BinarySI)
	if made {
		now := metav1.NowMicro()
		v.Status.CreationTime, v.Status.Size, v.Status.Pool = &now, v.Spec.Size.Required, "p"
	}
	return v
}

func report(version string) *v1beta1.StorageNode {
	return &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: version}}
}

func expectTaken(t *testing.T, r *reservations, when string, want int64) {
	t.Helper()
	if got := r.reserved("a", "p", true); got != want {
		t.Errorf("%s: %d bytes are counted, want %d", when, got, want)
	}
}

func TestCapacity_VolumeCountsFromItsRequestUntilItIsReported(t *testing.T) {
	var r reservations
	r.reserve("a", "", "v", 100)
	expectTaken(t, &r, "requested", 100)
	r.saw(nil, roomVolume("5", 100, false))
	expectTaken(t, &r, "written", 100)
	r.reported(report("9"))
	expectTaken(t, &r, "reported before it was made", 100)
	r.saw(roomVolume("5", 100, false), roomVolume("10", 100, true))
	expectTaken(t, &r, "made", 100)
	r.reported(report("10"))
	expectTaken(t, &r, "reported", 0)
	r.saw(roomVolume("10", 100, true), roomVolume("11", 150, true))
	expectTaken(t, &r, "grown", 50)
	r.saw(roomVolume("11", 150, true), nil)
	if got := r.reserved("a", "p", true); got >= 0 || !r.mayHaveMore("a") {
		t.Errorf("deleted: %d bytes are counted", got)
	}
	r.reported(report("12"))
	expectTaken(t, &r, "reported", 0)
}

func TestCapacity_ReportAheadOfTheVolumeWatchIsBelieved(t *testing.T) {
	var r reservations
	r.saw(nil, roomVolume("5", 100, false))
	r.reported(report("10"))
	r.saw(roomVolume("5", 100, false), roomVolume("9", 100, true))
	expectTaken(t, &r, "made before the report", 0)
}

func TestCapacity_VolumeThatIsGivenUpCountsNothing(t *testing.T) {
	var r reservations
	r.saw(nil, roomVolume("5", 100, false))
	r.saw(roomVolume("5", 100, false), nil)
	expectTaken(t, &r, "never made", 0)
	if r.mayHaveMore("a") {
		t.Error("what was never made gave nothing back")
	}
}

func TestCapacity_VolumeWithoutAPoolCountsInTheFirst(t *testing.T) {
	var r reservations
	r.reserve("a", "", "v", 100)
	r.reserve("a", "q", "w", 10)
	if first, second := r.reserved("a", "p", true), r.reserved("a", "q", false); first != 100 || second != 10 {
		t.Errorf("counted %d and %d", first, second)
	}
	if other := r.reserved("b", "p", true); other != 0 {
		t.Errorf("on another node: %d", other)
	}
}
