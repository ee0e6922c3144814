package web

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/report/facts"
)

// The names differ from those that a node exports: added up with them, everything would count twice. Every
// replica of the controller exports the same. What an NFS server stores is within a volume of a node or on a disk of its
// own; a sum without its label nfs_server would count the former twice. A Ceph pool is no node either.
var (
	phaseDesc     = prometheus.NewDesc("holdfast_cluster_phase", "1 for the phase that the StorageCluster is in, 0 for the others.", []string{"phase"}, nil)
	conditionDesc = prometheus.NewDesc("holdfast_cluster_condition", "1 for each condition of the StorageCluster, with the status (true, false, unknown) and the reason that it has.", []string{"condition", "status", "reason"}, nil)
	nodesDesc     = prometheus.NewDesc("holdfast_cluster_nodes", "Nodes with storage, by whether they are ready: true, false, or unknown while the agent does not report.", []string{"ready"}, nil)
	serversDesc   = prometheus.NewDesc("holdfast_cluster_nfs_servers", "NFS servers, by whether they are ready: true, false, or unknown while they do not report.", []string{"ready"}, nil)
	cephDesc      = prometheus.NewDesc("holdfast_cluster_ceph_pools", "Pools in Ceph clusters, by whether they are ready: true, false, or unknown while their agent does not report.", []string{"ready"}, nil)
	fenceDesc     = prometheus.NewDesc("holdfast_cluster_node_fence", "1 for each node that is shut out of the Ceph clusters, is to be, or cannot be, with the reason of its condition Fenced.", []string{"node", "reason"}, nil)
	volumesDesc   = prometheus.NewDesc("holdfast_cluster_volumes", "Volumes of the cluster, by their place and phase.", []string{"node", "nfs_server", "ceph_pool", "pool", "phase"}, nil)
	capacityDesc  = prometheus.NewDesc("holdfast_cluster_pool_capacity_bytes", "Size of the pool's file system.", []string{"node", "nfs_server", "ceph_pool", "pool"}, nil)
	promisedDesc  = prometheus.NewDesc("holdfast_cluster_pool_promised_bytes", "Bytes promised to volumes, snapshots and trash.", []string{"node", "nfs_server", "ceph_pool", "pool"}, nil)
	usedDesc      = prometheus.NewDesc("holdfast_cluster_pool_used_bytes", "Bytes of the pool's file system that are in use, by Holdfast or others.", []string{"node", "nfs_server", "ceph_pool", "pool"}, nil)
	availableDesc = prometheus.NewDesc("holdfast_cluster_pool_available_bytes", "Bytes that can still be promised, including what the trash would free.", []string{"node", "nfs_server", "ceph_pool", "pool"}, nil)
)

var clusterPhases = []v1beta1.ClusterPhase{
	v1beta1.ClusterCreating, v1beta1.ClusterRunning, v1beta1.ClusterPending, v1beta1.ClusterDegraded, v1beta1.ClusterUpgrading, v1beta1.ClusterPaused, v1beta1.ClusterTerminating,
}

// Collector exports metrics of the whole cluster, once it is known.
func (s *Server) Collector() prometheus.Collector { return (*collector)(s) }

type collector Server

func (*collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{phaseDesc, conditionDesc, nodesDesc, serversDesc, cephDesc, fenceDesc, volumesDesc, capacityDesc, promisedDesc, usedDesc, availableDesc} {
		out <- d
	}
}

func (c *collector) Collect(out chan<- prometheus.Metric) {
	if !c.filled.Load() {
		return
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	f := (*Server)(c).known()
	collectCluster(f.Served(), gauge)
	collectNodes(f.StorageNodes, gauge)
	collectVolumes(f.Volumes, gauge)
}

type gauge = func(d *prometheus.Desc, value float64, labels ...string)

func collectCluster(c *v1beta1.StorageCluster, gauge gauge) {
	if c == nil {
		return
	}
	for _, phase := range clusterPhases {
		value := 0.0
		if c.Status.Phase == phase {
			value = 1
		}
		gauge(phaseDesc, value, string(phase))
	}
	for _, is := range c.Status.Conditions {
		gauge(conditionDesc, 1, is.Type, strings.ToLower(string(is.Status)), is.Reason) // as kube-state-metrics writes them
	}
}

func collectNodes(nodes []*v1beta1.StorageNode, gauge gauge) {
	count := map[*prometheus.Desc]map[metav1.ConditionStatus]int{nodesDesc: {}, serversDesc: {}, cephDesc: {}}
	kinds := map[v1beta1.SiteKind]*prometheus.Desc{"": nodesDesc, v1beta1.SiteNFSServer: serversDesc, v1beta1.SiteCephPool: cephDesc}
	for _, n := range nodes {
		server, ceph := v1beta1.ServerOf(n.Name), v1beta1.CephPoolOf(n.Name)
		ready, _ := facts.Ready(n)
		count[kinds[v1beta1.SiteOf(n.Name).Kind]][ready]++
		if fence := facts.OfFence(n); fence != nil {
			gauge(fenceDesc, 1, n.Name, fence.Reason)
		}
		for i := range n.Status.Pools {
			p := &n.Status.Pools[i]
			usage := usageOf(p)
			gauge(capacityDesc, float64(usage.Capacity), n.Name, server, ceph, p.Name)
			gauge(promisedDesc, float64(usage.Promised), n.Name, server, ceph, p.Name)
			gauge(usedDesc, float64(usage.Used), n.Name, server, ceph, p.Name)
			gauge(availableDesc, float64(usage.Available), n.Name, server, ceph, p.Name)
		}
	}
	for kind, nodes := range count {
		for ready := range phaseOf {
			gauge(kind, float64(nodes[ready]), strings.ToLower(string(ready)))
		}
	}
}

func collectVolumes(volumes []*v1beta1.Volume, gauge gauge) {
	type place struct {
		node, pool string
		phase      v1beta1.Phase
	}
	count := map[place]int{}
	for _, v := range volumes {
		count[place{v.Spec.Node, v.PoolName(), orPending(v.Status.Phase)}]++
	}
	for p, n := range count {
		gauge(volumesDesc, float64(n), p.node, v1beta1.ServerOf(p.node), v1beta1.CephPoolOf(p.node), p.pool, string(p.phase))
	}
}
