package driver

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestNode_ReportsItsTopologyAndVolumeLimit(t *testing.T) {
	r := newRig(t, newScripted(), func(c *Config) { c.MaxVolumes = 42 })
	info, err := r.NodeGetInfo(r.ctx(), &csi.NodeGetInfoRequest{})
	if err != nil || info.GetNodeId() != "node-a" || info.GetMaxVolumesPerNode() != 42 || nodeOf(info.GetAccessibleTopology()) != "node-a" {
		t.Errorf("got %v, %v", info, err)
	}
	capabilities := check.Got(r.NodeGetCapabilities(r.ctx(), &csi.NodeGetCapabilitiesRequest{}))(t)
	var got []string
	for _, c := range capabilities.GetCapabilities() {
		got = append(got, c.GetRpc().GetType().String())
	}
	const want = "STAGE_UNSTAGE_VOLUME EXPAND_VOLUME GET_VOLUME_STATS GET_VOLUME_HEALTH SINGLE_NODE_MULTI_WRITER VOLUME_MOUNT_GROUP 4"
	if strings.Join(got, " ") != want {
		t.Errorf("advertised %v", got)
	}
}

func TestNode_WhereSharedVolumesAreReadSlowlyIsLoggedOnce(t *testing.T) {
	n, _, log := kubeletNode(t)
	for range 3 {
		n.raiseReadAhead(t.TempDir()) // where nothing is mounted
	}
	if lines := log.lines("level=WARN", "read slowly", "nothing is mounted at"); len(lines) != 1 || strings.Count(log.String(), "\n") != 1 {
		t.Errorf("%d lines say so:\n%s", len(lines), log)
	}
}

func TestCalls_ExpiredOneReportsTheProgress(t *testing.T) {
	b, entered, release := newScripted(), make(chan struct{}, 2), make(chan struct{})
	b.get = func(backend.ID) (*backend.Volume, error) {
		entered <- struct{}{}
		<-release
		return nil, backend.ErrNotFound
	}
	d, err := New(Config{NodeID: "node-a", Endpoint: "unix:///run/x/csi.sock", Backend: b})
	check.OK(t, err)
	n := &node{Driver: d}
	req := &csi.NodeStageVolumeRequest{VolumeId: "v", StagingTargetPath: "/nowhere/s", VolumeCapability: mountCapability("")}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-entered; cancel() }()
	_, err = n.NodeStageVolume(ctx, req)
	expectError(t, toStatus(err), codes.Aborted, "stage of v has been running for", "retry")
	ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err = n.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: "v", StagingTargetPath: "/nowhere/s"})
	expectError(t, toStatus(err), codes.Aborted, "stage of v has been running for")
	close(release)
	check.OK(t, d.ops.Wait(t.Context()))
	_, err = n.NodeStageVolume(t.Context(), req)
	expectError(t, toStatus(err), codes.NotFound)
}

func TestStats_DirectoryReportsItsOwnSizeAndAtMostTheSpaceOfThePool(t *testing.T) {
	pool := nodeops.FSUsage{Total: 100 * gib, Used: 98 * gib, Available: 2 * gib, Inodes: 1000, InodesUsed: 10, InodesFree: 990}
	for name, test := range map[string]struct {
		volume                 backend.Volume
		total, used, available int64
	}{
		"an image":                     {backend.Volume{Size: gib, Access: backend.Access{Image: "/i"}}, 100 * gib, 98 * gib, 2 * gib},
		"a directory":                  {backend.Volume{Size: 2 * gib, Used: gib, Access: backend.Access{Directory: "/d"}}, 2 * gib, gib, gib},
		"a directory in a full pool":   {backend.Volume{Size: 10 * gib, Used: gib, Access: backend.Access{Directory: "/d"}}, 10 * gib, gib, 2 * gib},
		"a directory beyond its limit": {backend.Volume{Size: gib, Used: 2 * gib, Access: backend.Access{Directory: "/d"}}, gib, 2 * gib, 0},
	} {
		usage := volumeUsage(&test.volume, pool)
		if len(usage) != 2 || usage[0].GetTotal() != test.total || usage[0].GetUsed() != test.used || usage[0].GetAvailable() != test.available || usage[1].GetAvailable() != 990 {
			t.Errorf("%s: %v", name, usage)
		}
	}
	if usage := volumeUsage(&backend.Volume{}, nodeops.FSUsage{Total: gib}); len(usage) != 1 {
		t.Errorf("a file system that counts no inodes: %v", usage)
	}
}
