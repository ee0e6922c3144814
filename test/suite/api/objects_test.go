package api_test

import (
	"context"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	typed "github.com/holdfast-storage/holdfast/api/client/clientset/typed/api/v1beta1"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// nowhere is the node of every object here, so that no agent acts on one.
const nowhere = "no.such.node"

var (
	longAgo      = metav1.NewTime(time.Unix(1_700_000_000, 0))
	longAgoMicro = metav1.NewMicroTime(time.UnixMicro(1_700_000_000_123_456))
)

func amount(s string) *resource.Quantity {
	q := resource.MustParse(s)
	return &q
}

func exactly(n int64) *resource.Quantity { return resource.NewQuantity(n, resource.BinarySI) }

func conditions() []metav1.Condition {
	return []metav1.Condition{
		{Type: v1beta1.ReadyCondition, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonReady, Message: "fine", LastTransitionTime: longAgo, ObservedGeneration: 1},
		{Type: v1beta1.HealthyCondition, Status: metav1.ConditionFalse, Reason: v1beta1.ReasonDamaged, Message: "meta.json is missing", LastTransitionTime: longAgo, ObservedGeneration: 1},
	}
}

// sharedVolume is as small as one can be that is shared.
func sharedVolume() *v1beta1.Volume {
	return &v1beta1.Volume{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-volume-"},
		Spec:       v1beta1.VolumeSpec{Name: "a", Node: "no.server.nfs.holdfast.dev", Shared: true},
	}
}

func deletion() *v1beta1.DeletionRequest {
	return &v1beta1.DeletionRequest{UID: "u1", RequestedBy: "a test", RequestedAt: longAgoMicro, Reason: "it ends"}
}

// fullVolume has every field set but those of a shared volume.
func fullVolume() *v1beta1.Volume {
	return &v1beta1.Volume{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-volume-"},
		Spec: v1beta1.VolumeSpec{
			Name: "pvc-Größe", ClaimRef: v1beta1.ReferenceTo("team/data"), Node: nowhere, Pool: "fast",
			Size: v1beta1.VolumeSize{Required: amount("10Gi"), Limit: amount("20Gi")},
			Mode: v1beta1.ModeFilesystem, FSType: v1beta1.Ext4, Provisioning: v1beta1.Thick,
			MkfsOptions: []string{"-m", "0"}, Inodes: 1 << 62,
			Labels:    map[string]string{"csi.storage.k8s.io/pvc/name": "data", "any key": "any value"},
			SourceRef: &v1beta1.SourceReference{Kind: v1beta1.SourceSnapshot, Name: "s"}, PopulatedBy: v1beta1.PopulatedByPod,
			OnNodeLoss: v1beta1.DeleteOnNodeLoss, Deletion: deletion(),
		},
	}
}

func fullVolumeStatus() v1beta1.VolumeStatus {
	return v1beta1.VolumeStatus{
		Phase: v1beta1.PhaseReady, Size: exactly(10 << 30), Used: exactly(1_234_567_891), FSType: "ext4", FSSize: exactly(1<<62 + 1),
		Mode: v1beta1.ModeFilesystem, Pool: "fast", PoolID: "P1", Provisioning: v1beta1.Thick,
		Access:    &v1beta1.VolumeAccess{Image: "/srv/fast/volumes/a/disk.img"},
		SourceRef: &v1beta1.SourceReference{Kind: v1beta1.SourceSnapshot, Name: "s"}, CreationTime: &longAgoMicro,
		Error:    &v1beta1.Error{Code: v1beta1.ErrorExhausted, Message: "growing to 20Gi: pool fast has 3Gi left"},
		Attached: &v1beta1.VolumeAttached{Node: "n", Since: "2026-11-29T22:00:00.123456789Z", Client: "10.0.0.5:0/1001"},
		Copy: &v1beta1.VolumeCopy{
			Phase: v1beta1.CopyVerifying, BytesDone: 5 << 30, BytesTotal: 10 << 30, Attempt: 3, Failures: 1, Message: "its pod cannot be scheduled",
			Checksum: "sha256:" + strings.Repeat("0a", 32),
		},
		Conditions: conditions(), ObservedGeneration: 7,
		Columns: v1beta1.VolumeColumns{Size: "10Gi", Used: "1177Mi", Copy: "Verifying 50%"},
	}
}

// fullSnapshot has every field set.
func fullSnapshot() *v1beta1.Snapshot {
	return &v1beta1.Snapshot{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-snapshot-"},
		Spec: v1beta1.SnapshotSpec{
			Name: "Group/a", SourceRef: v1beta1.FromVolume("a"), Node: nowhere,
			Group: &v1beta1.SnapshotGroup{Name: "Group", Volumes: []string{"a", "b"}}, Deletion: deletion(),
		},
	}
}

func fullSnapshotStatus() v1beta1.SnapshotStatus {
	return v1beta1.SnapshotStatus{
		Phase: v1beta1.PhaseReady, Size: exactly(10 << 30), Used: exactly(1_234_567_891), Mode: v1beta1.ModeBlock, FSType: "xfs", Pool: "fast", PoolID: "P1",
		Consistency: v1beta1.CrashConsistent, Group: "group", CreationTime: &longAgoMicro, Error: &v1beta1.Error{Code: v1beta1.ErrorBusy, Message: "being deleted"},
		Conditions: conditions(), ObservedGeneration: 3,
		Columns: v1beta1.SnapshotColumns{Size: "10Gi", Used: "1177Mi"},
	}
}

func fullNodeStatus() v1beta1.StorageNodeStatus {
	s := v1beta1.StorageNodeStatus{
		Version: "v1.2.3",
		Pools: []v1beta1.Pool{
			{
				Name: "fast", ID: "P1", Generation: 3, Path: "/srv/fast", Engine: v1beta1.EngineImage, FileSystem: "xfs", SnapshotCost: v1beta1.SnapshotShared,
				Capacity: *exactly(499_963_174_912), Promised: *exactly(100 << 30), Used: *exactly(1_234_567_891), Available: *exactly(300 << 30),
				Smallest: *exactly(1 << 20), Largest: *exactly(250 << 30), Volumes: 7, Snapshots: 2, Reason: "ReadOnly", Message: "read-only since noon",
			},
			{Name: "also", Capacity: *exactly(37_236_654_080), Volumes: 1},
		},
		Trash: []v1beta1.TrashedVolume{{
			Name: "a", Pool: "fast", ClaimRef: v1beta1.ReferenceTo("team/data"), Size: *exactly(1 << 30), DeletionTime: longAgo, ExpirationTime: metav1.NewTime(longAgo.Add(24 * time.Hour)),
			Incomplete: true,
		}},
		Addresses: []string{"10.0.0.7", "fd00::7"}, InlineVolumes: new(int32(3)), InlineVolumesAllowed: new(true),
		CephClients: []v1beta1.CephClient{{FSID: "11111111-2222-3333-4444-555555555555", ID: "client.4711", Address: "[fd00::7]:0/1234", BootID: "b"}}, CephVolumes: []string{"pvc-1", "pvc-2"},
		PublicKey: "a", NodeUsers: []v1beta1.NodeUser{{Node: "a", PublicKey: "a", Key: "b"}},
		Blocklist: []v1beta1.BlocklistEntry{{
			Node: "node-b", Addresses: []v1beta1.CephAddress{"10.0.0.8:0/4294967295"}, Unconfirmed: []v1beta1.CephAddress{"10.0.0.8:0/7"},
			RequestedAt: new(metav1.NewMicroTime(time.Unix(1_700_000_000, 0))), Message: "no quorum",
		}},
		Conditions: conditions(), ObservedGeneration: 1,
	}
	s.SetColumns()
	return s
}

func fullServerStatus() v1beta1.NFSServerStatus {
	s := v1beta1.NFSServerStatus{
		Phase: v1beta1.NFSRunning, Endpoint: "10.96.0.7:2049", Access: v1beta1.NFSReadOnly, ClaimName: "nfs-data", StorageClassName: "fast", Node: nowhere,
		Capacity: exactly(10 << 30), Promised: exactly(3 << 30), Exports: 4, Snapshots: 6, Clients: 5, ObservedGeneration: 1,
		Conditions: []metav1.Condition{{Type: v1beta1.ReadyCondition, Status: metav1.ConditionTrue, Reason: "Serving", Message: "fine", LastTransitionTime: longAgo}},
	}
	s.SetColumns()
	return s
}

// serverNamespace is one that every cluster has.
const serverNamespace = metav1.NamespaceDefault

// fullServer has every field set, but for those that exclude each other.
func fullServer() *v1beta1.NFSServer {
	return &v1beta1.NFSServer{
		ObjectMeta: metav1.ObjectMeta{Namespace: serverNamespace, GenerateName: "test-server-"},
		Spec: v1beta1.NFSServerSpec{
			Storage: &v1beta1.NFSStorage{StorageClassName: new("fast"), Size: amount("10Gi")},
			Engine:  v1beta1.EngineDirectory,
			Exports: v1beta1.NFSExports{
				Squash: v1beta1.NFSSquashRoot, AnonUID: new(int64(0)), AnonGID: new(int64(4294967294)), Access: v1beta1.NFSReadOnly,
				Clients: []string{"10.0.0.0/8", "10.0.0.7", "10.0.0.7/32", "fd00::/8", "fd00::/99", "fd00::1", "fd00::1/128"},
			},
			Service:    v1beta1.NFSService{Type: core.ServiceTypeLoadBalancer, Annotations: map[string]string{"a": "b"}, ClusterIP: "10.96.0.7"},
			MaxExports: 65535, GracePeriod: v1beta1.DurationOf(90 * time.Second),
			Resources:         core.ResourceRequirements{Limits: core.ResourceList{"memory": *amount("1Gi")}},
			Tolerations:       []core.Toleration{{Operator: core.TolerationOpExists}},
			NodeSelectorTerms: []core.NodeSelectorTerm{{MatchFields: []core.NodeSelectorRequirement{{Key: "metadata.name", Operator: "In", Values: []string{nowhere}}}}},
			MountOptions:      []string{"nconnect=4", "noatime", "vers=4.1", "proto=tcp"}, ReclaimPolicy: core.PersistentVolumeReclaimDelete,
		},
	}
}

func cephCluster(name string) *v1beta1.StorageCluster {
	return &v1beta1.StorageCluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.StorageClusterSpec{Pools: []v1beta1.PoolSpec{{
		Name: "block", Engine: v1beta1.EngineRBD, Ceph: &v1beta1.CephSpec{
			FSID: "11111111-2222-3333-4444-555555555555", Monitors: []string{"v2:10.0.0.1:3300", "v1:[fd00::1]:6789"}, Pool: "rbd",
			SecretRef: v1beta1.CephSecretReference{Name: "ceph"}, NodeSecretRef: v1beta1.CephSecretReference{Name: "ceph-node"},
		},
	}}}}
}

// clientOf is the client of a kind.
type clientOf[T any] interface {
	Create(context.Context, T, metav1.CreateOptions) (T, error)
	Update(context.Context, T, metav1.UpdateOptions) (T, error)
	UpdateStatus(context.Context, T, metav1.UpdateOptions) (T, error)
	Delete(context.Context, string, metav1.DeleteOptions) error
}

// create writes an object that ends with the test.
func create[T metav1.Object](t *testing.T, kind clientOf[T], o T) T {
	t.Helper()
	made := check.Got(kind.Create(t.Context(), o, metav1.CreateOptions{}))(t)
	t.Cleanup(func() { check.Report(t, kind.Delete(context.Background(), made.GetName(), metav1.DeleteOptions{})) })
	return made
}

func volumes() typed.VolumeInterface     { return client.HoldfastV1beta1().Volumes() }
func snapshots() typed.SnapshotInterface { return client.HoldfastV1beta1().Snapshots() }
func nodes() typed.StorageNodeInterface  { return client.HoldfastV1beta1().StorageNodes() }
func servers() typed.NFSServerInterface  { return client.HoldfastV1beta1().NFSServers(serverNamespace) }

func clusters() typed.StorageClusterInterface {
	return client.HoldfastV1beta1().StorageClusters()
}
