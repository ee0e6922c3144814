package api_test

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func cephPool() v1beta1.PoolSpec {
	return v1beta1.PoolSpec{Name: "block", Engine: v1beta1.EngineRBD, Ceph: &v1beta1.CephSpec{
		FSID: "11111111-2222-3333-4444-555555555555", Monitors: []string{"v2:10.0.0.1:3300", "v1:[fd00::1]:6789"}, Pool: "rbd",
		SecretRef: v1beta1.CephSecretReference{Name: "ceph"}, NodeSecretRef: v1beta1.CephSecretReference{Name: "ceph-node"},
	}}
}

func withPool(p v1beta1.PoolSpec) *v1beta1.StorageCluster {
	return &v1beta1.StorageCluster{ObjectMeta: metav1.ObjectMeta{Name: "holdfast"}, Spec: v1beta1.StorageClusterSpec{Pools: []v1beta1.PoolSpec{p}}}
}

func TestCephPool_WhereItsVolumesAreCannotBeChanged(t *testing.T) {
	needServer(t)
	clusters := client.HoldfastV1beta1().StorageClusters()
	first := withPool(cephPool())
	first.Name = "ceph-of-the-api-suite"
	made := check.Got(clusters.Create(t.Context(), first, metav1.CreateOptions{}))(t)
	t.Cleanup(func() {
		check.Report(t, clusters.Delete(context.WithoutCancel(t.Context()), made.Name, metav1.DeleteOptions{}))
	})
	for name, test := range map[string]struct {
		change func(*v1beta1.StorageClusterSpec)
		field  string // that is refused; none where it is taken
	}{
		"monitors":      {func(s *v1beta1.StorageClusterSpec) { s.Pools[0].Ceph.Monitors = []string{"v2:10.0.0.9:3300"} }, ""},
		"users":         {func(s *v1beta1.StorageClusterSpec) { s.Pools[0].Ceph.User, s.Pools[0].Ceph.NodeUser = "a", "b" }, ""},
		"secrets":       {func(s *v1beta1.StorageClusterSpec) { s.Pools[0].Ceph.SecretRef.Name = "other" }, ""},
		"a data pool":   {func(s *v1beta1.StorageClusterSpec) { s.Pools[0].Ceph.DataPool = "wide" }, ""},
		"another pool":  {func(s *v1beta1.StorageClusterSpec) { s.Pools[0].Name = "other"; s.Pools[0].Ceph.Pool = "other" }, ""},
		"the cluster":   {func(s *v1beta1.StorageClusterSpec) { s.Pools[0].Ceph.FSID = "99999999-2222-3333-4444-555555555555" }, "spec.pools[0].ceph.fsid"},
		"the pool":      {func(s *v1beta1.StorageClusterSpec) { s.Pools[0].Ceph.Pool = "other" }, "spec.pools[0].ceph.pool"},
		"the namespace": {func(s *v1beta1.StorageClusterSpec) { s.Pools[0].Ceph.Namespace = "other" }, "spec.pools[0].ceph.namespace"},
		"the engine": {func(s *v1beta1.StorageClusterSpec) {
			p := &s.Pools[0]
			p.Engine, p.Ceph = "", nil
		}, "spec.pools[0].ceph"},
	} {
		t.Run(name, func(t *testing.T) {
			next := made.DeepCopy()
			test.change(&next.Spec)
			_, err := clusters.Update(t.Context(), next, metav1.UpdateOptions{DryRun: dryRun})
			if test.field != "" {
				mustRefuse(t, err, test.field)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}
