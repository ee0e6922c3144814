package monitoring

// history is what Prometheus has scraped, one sample a minute, in the notation of promtool: `95x20 1x20` are 95 for 21
// minutes and 1 for as many. The alert is silent at before, fires at fires, and is silent again at clears.
type history struct {
	series                map[string]string
	before, fires, clears string
}

// condition has been bad for two hours and is good for one.
const (
	badThenGood = "1+0x120 0+0x60"
	goneAway    = "1+0x120 _x60" // the series ends, as that of a condition with another reason
)

var histories = map[string]history{
	"HoldfastPoolNearlyFull": {map[string]string{
		`holdfast_pool_used_bytes{node="a",pool="fast"}`:     "95+0x60 50+0x60",
		`holdfast_pool_capacity_bytes{node="a",pool="fast"}`: "100+0x120",
	}, "14m", "16m", "62m"},
	"HoldfastPoolFullWithinADay": {map[string]string{
		`holdfast_pool_used_bytes{node="a",pool="fast"}`:     "600+1x240 600+0x420", // 60 an hour; then data was deleted
		`holdfast_pool_capacity_bytes{node="a",pool="fast"}`: "1000+0x660",
	}, "55m", "90m", "655m"},
	"HoldfastPoolNoRoom": {map[string]string{
		`holdfast_cluster_pool_available_bytes{node="a",pool="fast",pod="c-1"}`: "0+0x60 1+0x60", // of one alert, although two replicas report it
		`holdfast_cluster_pool_available_bytes{node="a",pool="fast",pod="c-2"}`: "0+0x60 1+0x60",
		`holdfast_cluster_pool_available_bytes{node="b",pool="fast",pod="c-1"}`: "5+0x120",
		// A pool with two disks, of which one has room.
		`holdfast_cluster_pool_available_bytes{node="a",pool="disks",pod="c-1"}`:   "0+0x120",
		`holdfast_cluster_pool_available_bytes{node="a",pool="disks.2",pod="c-1"}`: "5+0x120",
	}, "14m", "16m", "62m"},
	"HoldfastNextClaimWillNotFit": {map[string]string{
		`holdfast_cluster_pool_available_bytes{node="a",pool="fast",pod="c-1"}`:       "9+0x60 11+0x60",
		`holdfast_cluster_pool_available_bytes{node="b",pool="fast",pod="c-1"}`:       "1+0x120",
		`holdfast_cluster_pool_promised_bytes{node="a",pool="fast",pod="c-1"}`:        "30+0x120",
		`holdfast_cluster_pool_promised_bytes{node="b",pool="fast",pod="c-1"}`:        "10+0x120",
		`holdfast_cluster_pool_promised_bytes{node="b",pool="fast",pod="c-2"}`:        "10+0x120",
		`holdfast_cluster_volumes{node="a",pool="fast",phase="Ready",pod="c-1"}`:      "3+0x120",
		`holdfast_cluster_volumes{node="b",pool="fast",phase="Ready",pod="c-1"}`:      "1+0x120",
		`holdfast_cluster_pool_available_bytes{nfs_server="s",pool="fast",pod="c-1"}`: "100+0x120", // is of a volume of a node
		`holdfast_cluster_pool_available_bytes{node="a",pool="unused",pod="c-1"}`:     "1+0x120",
		`holdfast_cluster_pool_promised_bytes{node="a",pool="unused",pod="c-1"}`:      "0+0x120",
		// A pool with two disks, of which one has room.
		`holdfast_cluster_pool_available_bytes{node="a",pool="disks",pod="c-1"}`:    "1+0x120",
		`holdfast_cluster_pool_available_bytes{node="a",pool="disks.2",pod="c-1"}`:  "100+0x120",
		`holdfast_cluster_pool_promised_bytes{node="a",pool="disks",pod="c-1"}`:     "90+0x120",
		`holdfast_cluster_pool_promised_bytes{node="a",pool="disks.2",pod="c-1"}`:   "20+0x120",
		`holdfast_cluster_volumes{node="a",pool="disks",phase="Ready",pod="c-1"}`:   "9+0x120",
		`holdfast_cluster_volumes{node="a",pool="disks.2",phase="Ready",pod="c-1"}`: "2+0x120",
	}, "14m", "16m", "62m"},
	"HoldfastVolumeNearlyFull": {map[string]string{
		`kubelet_volume_stats_available_bytes{namespace="shop",persistentvolumeclaim="data",node="a"}`:  "9+0x60 50+0x60",
		`kubelet_volume_stats_capacity_bytes{namespace="shop",persistentvolumeclaim="data",node="a"}`:   "100+0x120",
		`kubelet_volume_stats_available_bytes{namespace="shop",persistentvolumeclaim="other",node="a"}`: "1+0x120",
		`kubelet_volume_stats_capacity_bytes{namespace="shop",persistentvolumeclaim="other",node="a"}`:  "100+0x120",
		`kube_persistentvolume_claim_ref{persistentvolume="pv-1",claim_namespace="shop",name="data"}`:   "1+0x120",
		`kube_persistentvolume_claim_ref{persistentvolume="pv-2",claim_namespace="shop",name="other"}`:  "1+0x120",
		`kube_persistentvolume_info{persistentvolume="pv-1",csi_driver="csi.holdfast.dev"}`:             "1+0x120",
		`kube_persistentvolume_info{persistentvolume="pv-2",csi_driver="another"}`:                      "1+0x120",
	}, "14m", "16m", "62m"},
	"HoldfastOvercommittedPoolRunsFull": {map[string]string{
		`holdfast_pool_used_bytes{node="a",pool="fast"}`:     "85+0x60 50+0x60",
		`holdfast_pool_promised_bytes{node="a",pool="fast"}`: "150+0x120",
		`holdfast_pool_capacity_bytes{node="a",pool="fast"}`: "100+0x120",
	}, "4m", "6m", "62m"},
	"HoldfastPoolDown":         {map[string]string{`holdfast_pool_up{node="a",pool="fast"}`: "0+0x120 1+0x60"}, "4m", "6m", "122m"},
	"HoldfastPoolUnhealthy":    {map[string]string{`holdfast_pool_healthy{node="a",pool="fast"}`: "0+0x120 1+0x60"}, "0m", "2m", "122m"},
	"HoldfastVolumesUnhealthy": {map[string]string{`holdfast_pool_unhealthy_volumes{node="a",pool="fast",reason="DeviceErrors"}`: goneAway}, "0m", "2m", "127m"},
	"HoldfastVolumesUnreachable": {map[string]string{
		`holdfast_cluster_volumes{node="a",pool="fast",phase="Unreachable",pod="c-1"}`: goneAway, // of one alert, although two replicas report it
		`holdfast_cluster_volumes{node="a",pool="fast",phase="Unreachable",pod="c-2"}`: goneAway,
	}, "14m", "16m", "127m"},
	"HoldfastVolumesLost":       {map[string]string{`holdfast_cluster_volumes{node="a",pool="fast",phase="Lost",pod="c-1"}`: goneAway}, "0m", "2m", "127m"},
	"HoldfastNodeSilent":        {map[string]string{`holdfast_cluster_nodes{ready="unknown",pod="c-1"}`: badThenGood}, "4m", "6m", "122m"},
	"HoldfastNFSServerDown":     {map[string]string{`holdfast_nfs_up{namespace="shop",pod="nfs-files-0"}`: "0+0x120 1+0x60"}, "1m", "3m", "122m"},
	"HoldfastCephPoolsNotReady": {map[string]string{`holdfast_cluster_ceph_pools{ready="false",pod="c-1"}`: badThenGood, `holdfast_cluster_ceph_pools{ready="unknown",pod="c-1"}`: "0+0x180"}, "14m", "16m", "122m"},
	"HoldfastNodeNotFenced": {map[string]string{
		`holdfast_cluster_node_fence{node="a",reason="Fencing",pod="c-1"}`:   "1+0x5 _x60", // then it turns out to be impossible
		`holdfast_cluster_node_fence{node="a",reason="NotFenced",pod="c-1"}`: "_x6 1+0x114 _x60",
		`holdfast_cluster_node_fence{node="b",reason="Fenced",pod="c-1"}`:    "1+0x30 _x60",
	}, "9m", "11m", "127m"},
	"HoldfastNodeStaysFenced": {map[string]string{
		`holdfast_cluster_node_fence{node="a",reason="Fenced",pod="c-1"}`:    "1+0x30 _x90",
		`holdfast_cluster_node_fence{node="a",reason="Releasing",pod="c-1"}`: "_x31 1+0x89 _x60",
	}, "59m", "61m", "127m"},
	"HoldfastNFSServersNotReady": {map[string]string{`holdfast_cluster_nfs_servers{ready="false",pod="c-1"}`: badThenGood, `holdfast_cluster_nfs_servers{ready="unknown",pod="c-1"}`: "0+0x180"}, "14m", "16m", "122m"},
	"HoldfastNFSServerRestarts":  {map[string]string{`holdfast_nfs_restarts_total{namespace="shop",pod="nfs-files-0"}`: "0+0x60 1+1x10 11+0x120"}, "60m", "70m", "140m"},
	"HoldfastDegraded":           {map[string]string{`holdfast_cluster_condition{condition="Degraded",status="true",reason="NodesNotReady",pod="c-1"}`: goneAway}, "14m", "16m", "127m"},
	"HoldfastNotReady":           {map[string]string{`holdfast_cluster_condition{condition="Ready",status="false",reason="RollingOut",pod="c-1"}`: goneAway}, "29m", "31m", "127m"},
	"HoldfastTargetDown":         {map[string]string{`up{job="holdfast-system/holdfast",node="a",pod="holdfast-node-x"}`: "0+0x120 1+0x60"}, "9m", "11m", "122m"},
	"HoldfastAbsent":             {map[string]string{`holdfast_build_info{version="v1"}`: "_x60 1+0x60"}, "14m", "16m", "62m"},
	"HoldfastMixedVersions": {map[string]string{
		`holdfast_build_info{version="v1",revision="a",pod="c-1"}`: "1+0x1500 _x60",
		`holdfast_build_info{version="v2",revision="b",pod="c-2"}`: "1+0x1560",
	}, "1439m", "1441m", "1507m"},
	"HoldfastCSICallsFailing": {map[string]string{
		`holdfast_csi_calls_total{method_name="/csi.v1.Controller/CreateVolume",grpc_status_code="Internal"}`: "0+1x60 60+0x60",
		`holdfast_csi_calls_total{method_name="/csi.v1.Controller/CreateVolume",grpc_status_code="OK"}`:       "0+1x120",
	}, "14m", "18m", "80m"},
	"HoldfastCSICallsSlow": {map[string]string{
		`holdfast_csi_call_duration_seconds_bucket{method_name="/csi.v1.Controller/CreateVolume",le="9.5"}`:  "0+0x90 0+10x60",
		`holdfast_csi_call_duration_seconds_bucket{method_name="/csi.v1.Controller/CreateVolume",le="23.8"}`: "0+10x90 910+10x60",
		`holdfast_csi_call_duration_seconds_bucket{method_name="/csi.v1.Controller/CreateVolume",le="+Inf"}`: "0+10x90 910+10x60",
	}, "29m", "35m", "140m"},
	"HoldfastOperationStuck": {map[string]string{
		`holdfast_oldest_operation_seconds{node="a"}`:          "0+0x120",
		`holdfast_csi_node_oldest_operation_seconds{node="a"}`: "0+60x60 0+0x60",
	}, "19m", "22m", "62m"},
	"HoldfastCSIPanics":              {map[string]string{`holdfast_csi_panics_total{node="a"}`: "0+1x10 10+0x110"}, "0m", "2m", "75m"},
	"HoldfastNFSProvisioningFailing": {map[string]string{`holdfast_nfs_provisioner_persistentvolumeclaim_provision_failed_total{class="shared",source=""}`: "0+1x60 60+0x60"}, "14m", "20m", "80m"},
	"HoldfastNFSDeletionFailing":     {map[string]string{`holdfast_nfs_provisioner_persistentvolume_delete_failed_total{class="shared"}`: "0+1x60 60+0x60"}, "14m", "20m", "80m"},
	"HoldfastPoolLeftovers":          {map[string]string{`holdfast_pool_leftovers{node="a",pool="fast"}`: "3+0x400 0+0x60"}, "359m", "361m", "402m"},
	"HoldfastFilesLeak": {map[string]string{
		`process_open_fds{job="holdfast-system/holdfast",pod="c-1"}`: "900+0x60 10+0x60",
		`process_max_fds{job="holdfast-system/holdfast",pod="c-1"}`:  "1000+0x120",
	}, "14m", "16m", "62m"},
	"HoldfastGoroutinesLeak": {map[string]string{`go_goroutines{job="holdfast",instance="host:9090"}`: "9000+0x60 100+0x60"}, "29m", "31m", "62m"},
}
