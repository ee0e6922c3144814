package web

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func TestEveryReplicaTellsTheNumbersOfTheWholeCluster(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.cluster("holdfast", "")
		c.Status.Phase = v1beta1.ClusterDegraded
		c.Status.Conditions = []metav1.Condition{
			{Type: v1beta1.DegradedCondition, Status: metav1.ConditionTrue, Reason: "VolumesHidden"},
			{Type: v1beta1.ProtectedCondition, Status: metav1.ConditionFalse, Reason: "PoliciesMissing"},
		}
		check.Got(r.ours.HoldfastV1beta1().StorageClusters().UpdateStatus(r.Context(), c, metav1.UpdateOptions{}))(r)
		r.node("a", metav1.ConditionTrue, "fast")
		r.node("b", metav1.ConditionUnknown)
		nodes := r.ours.HoldfastV1beta1().StorageNodes()
		wait.Modify(r, nodes.Get, nodes.UpdateStatus, "b", func(b *v1beta1.StorageNode) {
			b.Status.Conditions = append(b.Status.Conditions, metav1.Condition{Type: v1beta1.FencedCondition, Status: metav1.ConditionFalse, Reason: v1beta1.ReasonNotFenced})
		})
		r.node(v1beta1.NodeOfServer("shop/files"), metav1.ConditionTrue, "volumes")
		r.node(v1beta1.NodeOfCephPool("block"), metav1.ConditionFalse, "block")
		r.volume("v5", v1beta1.NodeOfCephPool("block"), "block", v1beta1.VolumeStatus{Phase: v1beta1.PhaseReady})
		r.volume("v1", "a", "fast", v1beta1.VolumeStatus{Phase: v1beta1.PhaseReady})
		r.volume("v2", "a", "", v1beta1.VolumeStatus{Phase: v1beta1.PhaseReady, Pool: "fast"})
		r.volume("v4", v1beta1.NodeOfServer("shop/files"), "volumes", v1beta1.VolumeStatus{Phase: v1beta1.PhaseReady})
		r.volume("v3", "b", "slow", v1beta1.VolumeStatus{})
		const want = `holdfast_cluster_ceph_pools{ready="false"} 1
holdfast_cluster_ceph_pools{ready="true"} 0
holdfast_cluster_ceph_pools{ready="unknown"} 0
holdfast_cluster_condition{condition="Degraded",reason="VolumesHidden",status="true"} 1
holdfast_cluster_condition{condition="Protected",reason="PoliciesMissing",status="false"} 1
holdfast_cluster_nfs_servers{ready="false"} 0
holdfast_cluster_nfs_servers{ready="true"} 1
holdfast_cluster_nfs_servers{ready="unknown"} 0
holdfast_cluster_node_fence{node="b",reason="NotFenced"} 1
holdfast_cluster_nodes{ready="false"} 0
holdfast_cluster_nodes{ready="true"} 1
holdfast_cluster_nodes{ready="unknown"} 1
holdfast_cluster_phase{phase="Creating"} 0
holdfast_cluster_phase{phase="Degraded"} 1
holdfast_cluster_phase{phase="Paused"} 0
holdfast_cluster_phase{phase="Pending"} 0
holdfast_cluster_phase{phase="Running"} 0
holdfast_cluster_phase{phase="Terminating"} 0
holdfast_cluster_phase{phase="Upgrading"} 0
holdfast_cluster_pool_available_bytes{ceph_pool="",nfs_server="",node="a",pool="fast"} 6.442450944e+10
holdfast_cluster_pool_available_bytes{ceph_pool="",nfs_server="shop/files",node="shop.files.nfs.holdfast.dev",pool="volumes"} 6.442450944e+10
holdfast_cluster_pool_available_bytes{ceph_pool="block",nfs_server="",node="block.ceph.holdfast.dev",pool="block"} 6.442450944e+10
holdfast_cluster_pool_capacity_bytes{ceph_pool="",nfs_server="",node="a",pool="fast"} 1.073741824e+11
holdfast_cluster_pool_capacity_bytes{ceph_pool="",nfs_server="shop/files",node="shop.files.nfs.holdfast.dev",pool="volumes"} 1.073741824e+11
holdfast_cluster_pool_capacity_bytes{ceph_pool="block",nfs_server="",node="block.ceph.holdfast.dev",pool="block"} 1.073741824e+11
holdfast_cluster_pool_promised_bytes{ceph_pool="",nfs_server="",node="a",pool="fast"} 4.294967296e+10
holdfast_cluster_pool_promised_bytes{ceph_pool="",nfs_server="shop/files",node="shop.files.nfs.holdfast.dev",pool="volumes"} 4.294967296e+10
holdfast_cluster_pool_promised_bytes{ceph_pool="block",nfs_server="",node="block.ceph.holdfast.dev",pool="block"} 4.294967296e+10
holdfast_cluster_pool_used_bytes{ceph_pool="",nfs_server="",node="a",pool="fast"} 3.221225472e+10
holdfast_cluster_pool_used_bytes{ceph_pool="",nfs_server="shop/files",node="shop.files.nfs.holdfast.dev",pool="volumes"} 3.221225472e+10
holdfast_cluster_pool_used_bytes{ceph_pool="block",nfs_server="",node="block.ceph.holdfast.dev",pool="block"} 3.221225472e+10
holdfast_cluster_volumes{ceph_pool="",nfs_server="",node="a",phase="Ready",pool="fast"} 2
holdfast_cluster_volumes{ceph_pool="",nfs_server="",node="b",phase="Pending",pool="slow"} 1
holdfast_cluster_volumes{ceph_pool="",nfs_server="shop/files",node="shop.files.nfs.holdfast.dev",phase="Ready",pool="volumes"} 1
holdfast_cluster_volumes{ceph_pool="block",nfs_server="",node="block.ceph.holdfast.dev",phase="Ready",pool="block"} 1
`
		for range 2 {
			s := r.replica()
			wait.Until(r, "the cluster is known", s.filled.Load)
			registry, answer := prometheus.NewPedanticRegistry(), httptest.NewRecorder()
			registry.MustRegister(s.Collector())
			promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, r.request(http.MethodGet, "/metrics", nil))
			var samples strings.Builder
			for line := range strings.Lines(answer.Body.String()) {
				if !strings.HasPrefix(line, "#") {
					samples.WriteString(line)
				} else if strings.HasPrefix(line, "# TYPE ") && !strings.HasSuffix(line, " gauge\n") {
					r.Errorf("it is no gauge: %s", line)
				}
			}
			if samples.String() != want {
				r.Errorf("got\n%s\nwant\n%s", &samples, want)
			}
		}
	})
}
