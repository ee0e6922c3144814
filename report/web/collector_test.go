package web

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func TestEveryReplicaTellsTheNumbersOfTheWholeCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := r.cluster("holdfast", "")
		c.Status.Phase = v1beta1.ClusterDegraded
		c.Status.Conditions = []metav1.Condition{
			{Type: v1beta1.DegradedCondition, Status: metav1.ConditionTrue, Reason: "VolumesHidden"},
			{Type: v1beta1.ProtectedCondition, Status: metav1.ConditionFalse, Reason: "PoliciesMissing"},
		}
		r.must(second(r.ours.HoldfastV1beta1().StorageClusters().UpdateStatus(t.Context(), c, metav1.UpdateOptions{})))
		r.node("a", metav1.ConditionTrue, "fast")
		r.node("b", metav1.ConditionUnknown)
		nodes := r.ours.HoldfastV1beta1().StorageNodes()
		b, err := nodes.Get(t.Context(), "b", metav1.GetOptions{})
		r.must(err)
		b.Status.Conditions = append(b.Status.Conditions, metav1.Condition{Type: v1beta1.FencedCondition, Status: metav1.ConditionFalse, Reason: v1beta1.ReasonNotFenced})
		_, err = nodes.UpdateStatus(t.Context(), b, metav1.UpdateOptions{})
		r.must(err)
		r.node(v1beta1.NodeOfServer("shop/files"), metav1.ConditionTrue, "volumes")
		r.node(v1beta1.NodeOfCephPool("block"), metav1.ConditionFalse, "block")
		r.volume("v5", v1beta1.NodeOfCephPool("block"), "block", v1beta1.VolumeStatus{Phase: v1beta1.PhaseReady})
		r.volume("v1", "a", "fast", v1beta1.VolumeStatus{Phase: v1beta1.PhaseReady})
		r.volume("v2", "a", "", v1beta1.VolumeStatus{Phase: v1beta1.PhaseReady, Pool: "fast"})
		r.volume("v4", v1beta1.NodeOfServer("shop/files"), "volumes", v1beta1.VolumeStatus{Phase: v1beta1.PhaseReady})
		r.volume("v3", "b", "slow", v1beta1.VolumeStatus{})
		const want = `
# HELP holdfast_cluster_ceph_pools Pools in Ceph clusters, by whether they are ready: true, false, or unknown while their agent does not report.
# TYPE holdfast_cluster_ceph_pools gauge
holdfast_cluster_ceph_pools{ready="false"} 1
holdfast_cluster_ceph_pools{ready="true"} 0
holdfast_cluster_ceph_pools{ready="unknown"} 0
# HELP holdfast_cluster_condition 1 for each condition of the StorageCluster, with the status (true, false, unknown) and the reason that it has.
# TYPE holdfast_cluster_condition gauge
holdfast_cluster_condition{condition="Degraded",reason="VolumesHidden",status="true"} 1
holdfast_cluster_condition{condition="Protected",reason="PoliciesMissing",status="false"} 1
# HELP holdfast_cluster_nfs_servers NFS servers, by whether they are ready: true, false, or unknown while they do not report.
# TYPE holdfast_cluster_nfs_servers gauge
holdfast_cluster_nfs_servers{ready="false"} 0
holdfast_cluster_nfs_servers{ready="true"} 1
holdfast_cluster_nfs_servers{ready="unknown"} 0
# HELP holdfast_cluster_node_fence 1 for each node that is shut out of the Ceph clusters, is to be, or cannot be, with the reason of its condition Fenced.
# TYPE holdfast_cluster_node_fence gauge
holdfast_cluster_node_fence{node="b",reason="NotFenced"} 1
# HELP holdfast_cluster_nodes Nodes with storage, by whether they are ready: true, false, or unknown while the agent does not report.
# TYPE holdfast_cluster_nodes gauge
holdfast_cluster_nodes{ready="false"} 0
holdfast_cluster_nodes{ready="true"} 1
holdfast_cluster_nodes{ready="unknown"} 1
# HELP holdfast_cluster_phase 1 for the phase that the StorageCluster is in, 0 for the others.
# TYPE holdfast_cluster_phase gauge
holdfast_cluster_phase{phase="Creating"} 0
holdfast_cluster_phase{phase="Degraded"} 1
holdfast_cluster_phase{phase="Paused"} 0
holdfast_cluster_phase{phase="Pending"} 0
holdfast_cluster_phase{phase="Running"} 0
holdfast_cluster_phase{phase="Terminating"} 0
holdfast_cluster_phase{phase="Upgrading"} 0
# HELP holdfast_cluster_pool_available_bytes Bytes that can still be promised, including what the trash would free.
# TYPE holdfast_cluster_pool_available_bytes gauge
holdfast_cluster_pool_available_bytes{ceph_pool="",nfs_server="",node="a",pool="fast"} 6.442450944e+10
holdfast_cluster_pool_available_bytes{ceph_pool="",nfs_server="shop/files",node="shop.files.nfs.holdfast.dev",pool="volumes"} 6.442450944e+10
holdfast_cluster_pool_available_bytes{ceph_pool="block",nfs_server="",node="block.ceph.holdfast.dev",pool="block"} 6.442450944e+10
# HELP holdfast_cluster_pool_capacity_bytes Size of the pool's file system.
# TYPE holdfast_cluster_pool_capacity_bytes gauge
holdfast_cluster_pool_capacity_bytes{ceph_pool="",nfs_server="",node="a",pool="fast"} 1.073741824e+11
holdfast_cluster_pool_capacity_bytes{ceph_pool="",nfs_server="shop/files",node="shop.files.nfs.holdfast.dev",pool="volumes"} 1.073741824e+11
holdfast_cluster_pool_capacity_bytes{ceph_pool="block",nfs_server="",node="block.ceph.holdfast.dev",pool="block"} 1.073741824e+11
# HELP holdfast_cluster_pool_promised_bytes Bytes promised to volumes, snapshots and trash.
# TYPE holdfast_cluster_pool_promised_bytes gauge
holdfast_cluster_pool_promised_bytes{ceph_pool="",nfs_server="",node="a",pool="fast"} 4.294967296e+10
holdfast_cluster_pool_promised_bytes{ceph_pool="",nfs_server="shop/files",node="shop.files.nfs.holdfast.dev",pool="volumes"} 4.294967296e+10
holdfast_cluster_pool_promised_bytes{ceph_pool="block",nfs_server="",node="block.ceph.holdfast.dev",pool="block"} 4.294967296e+10
# HELP holdfast_cluster_pool_used_bytes Bytes of the pool's file system that are in use, by Holdfast or others.
# TYPE holdfast_cluster_pool_used_bytes gauge
holdfast_cluster_pool_used_bytes{ceph_pool="",nfs_server="",node="a",pool="fast"} 3.221225472e+10
holdfast_cluster_pool_used_bytes{ceph_pool="",nfs_server="shop/files",node="shop.files.nfs.holdfast.dev",pool="volumes"} 3.221225472e+10
holdfast_cluster_pool_used_bytes{ceph_pool="block",nfs_server="",node="block.ceph.holdfast.dev",pool="block"} 3.221225472e+10
# HELP holdfast_cluster_volumes Volumes of the cluster, by their place and phase.
# TYPE holdfast_cluster_volumes gauge
holdfast_cluster_volumes{ceph_pool="",nfs_server="",node="a",phase="Ready",pool="fast"} 2
holdfast_cluster_volumes{ceph_pool="",nfs_server="",node="b",phase="Pending",pool="slow"} 1
holdfast_cluster_volumes{ceph_pool="",nfs_server="shop/files",node="shop.files.nfs.holdfast.dev",phase="Ready",pool="volumes"} 1
holdfast_cluster_volumes{ceph_pool="block",nfs_server="",node="block.ceph.holdfast.dev",phase="Ready",pool="block"} 1
`
		for range 2 {
			s := r.replica()
			wait.Until(r, "the cluster is known", s.filled.Load)
			check.Report(t, testutil.CollectAndCompare(s.Collector(), strings.NewReader(want)))
		}
	})
}

func TestBeforeTheClusterIsKnownNothingIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.api.Close()
		s := r.replica()
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(s.Collector())
		if families, err := registry.Gather(); err != nil || len(families) > 0 {
			t.Errorf("got %v, %v", families, err)
		}
	})
}
