package agent

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
)

func TestMemory_APoolThatHeldNothingIsNotMissed(t *testing.T) {
	const path = "/mnt/one"
	is := backend.PoolExpectation{PoolIdentity: backend.PoolIdentity{ID: "P1", Generation: 3}, Existed: true}
	empty := is
	empty.Empty = true
	for what, c := range map[string]struct {
		change    func(*Memory, *v1beta1.Pool)
		here      backend.PoolExpectation
		elsewhere backend.PoolExpectation
	}{
		"nothing":                {func(*Memory, *v1beta1.Pool) {}, empty, backend.PoolExpectation{}},
		"trash or inline volume": {func(_ *Memory, p *v1beta1.Pool) { p.Promised = resource.MustParse("1Mi") }, is, is},
		"never looked into":      {func(_ *Memory, p *v1beta1.Pool) { p.Capacity = resource.Quantity{} }, is, is},
		"a volume": {func(m *Memory, _ *v1beta1.Pool) {
			m.volumes = []*v1beta1.Volume{{Status: v1beta1.VolumeStatus{Pool: "fast"}}}
		}, is, is},
		"a volume of another": {func(m *Memory, _ *v1beta1.Pool) {
			m.volumes = []*v1beta1.Volume{{Status: v1beta1.VolumeStatus{Pool: "slow"}}}
		}, empty, backend.PoolExpectation{}},
		"a volume that is being made": {func(m *Memory, _ *v1beta1.Pool) { m.volumes = []*v1beta1.Volume{{}} }, is, is},
		"a snapshot": {func(m *Memory, _ *v1beta1.Pool) {
			m.snapshots = []*v1beta1.Snapshot{{Status: v1beta1.SnapshotStatus{Pool: "fast"}}}
		}, is, is},
		"given up": {func(m *Memory, _ *v1beta1.Pool) {
			m.record.Spec.ReplacePools = []v1beta1.PoolReplacement{{Name: "fast", ID: "P1"}}
		}, backend.PoolExpectation{Given: "P1"}, backend.PoolExpectation{Given: "P1"}},
	} {
		t.Run(what, func(t *testing.T) {
			pool := v1beta1.Pool{Name: "fast", ID: "P1", Generation: 3, Path: path, Capacity: resource.MustParse("1Gi")}
			m := &Memory{node: "n1", namespace: "holdfast", record: &v1beta1.StorageNode{}}
			c.change(m, &pool)
			m.record.Status.Pools = []v1beta1.Pool{{Name: "slow", ID: "P2", Capacity: resource.MustParse("1Gi"), Promised: resource.MustParse("1Gi")}, pool}
			for at, want := range map[string]backend.PoolExpectation{path: c.here, "/mnt/other": c.elsewhere} {
				got := m.Pool("fast", at)
				if (got.Remedy == "") != (want.ID == "") {
					t.Errorf("at %s the remedy is %q", at, got.Remedy)
				}
				got.Remedy = ""
				if got != want {
					t.Errorf("at %s it expects %+v, want %+v", at, got, want)
				}
			}
		})
	}
}
