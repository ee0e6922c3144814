package driver

import (
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/backendtest"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

func sharedRequest(name string, parameters ...string) *csi.CreateVolumeRequest {
	req := createRequest(name)
	req.VolumeCapabilities = []*csi.VolumeCapability{withMode(csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER, mountCapability(""))}
	req.Parameters = map[string]string{"shared": "true"}
	for i := 0; i < len(parameters); i += 2 {
		req.Parameters[parameters[i]] = parameters[i+1]
	}
	return req
}

func TestSharedVolume_IsOnNoNodeAndReportsItsAddress(t *testing.T) {
	r, memory := newMemoryRig(t)
	want := &csi.Volume{
		VolumeId: "v", CapacityBytes: gib,
		VolumeContext: map[string]string{"holdfast.dev/nfs-server": backendtest.MemoryAddress, "holdfast.dev/nfs-path": "/v"},
	}
	for _, place := range []*csi.TopologyRequirement{
		nil,
		{Requisite: []*csi.Topology{{Segments: map[string]string{TopologyKey: "another"}}}},
		{Requisite: []*csi.Topology{{Segments: map[string]string{"zone": "north"}}}},
	} {
		req := sharedRequest("v", "nfsServer", "memory/server")
		req.AccessibilityRequirements = place
		resp, err := r.CreateVolume(r.ctx(), req)
		if err != nil || !proto.Equal(resp.GetVolume(), want) {
			t.Errorf("requested at %v: %v, %v, want %v", place, resp, err, want)
		}
	}
	if v, err := memory.Get(r.ctx(), "v"); err != nil || !v.Shared || v.Server != "memory/server" {
		t.Errorf("made %+v, %v", v, err)
	}
	got, err := r.ControllerGetVolume(r.ctx(), &csi.ControllerGetVolumeRequest{VolumeId: "v"})
	if err != nil || !proto.Equal(got.GetVolume(), want) {
		t.Errorf("got %v, %v", got, err)
	}
	_, err = r.CreateVolume(r.ctx(), createRequest("v"))
	expectError(t, err, codes.AlreadyExists, "sharing")
	_, err = r.CreateVolume(r.ctx(), sharedRequest("v", "nfsServer", "team/other"))
	expectError(t, err, codes.AlreadyExists, "memory/server", "team/other")
}

func TestSharedVolume_IsLimitedToNodesThatCanMountItIfItsClassSaysSo(t *testing.T) {
	r, _ := newMemoryRig(t)
	can, cannot := map[string]string{SharedVolumesKey: "true"}, map[string]string{SharedVolumesKey: "false"}
	for name, c := range map[string]struct {
		asked []map[string]string
		want  []string // values of the key
	}{
		"the class says so":              {[]map[string]string{can}, []string{"true"}},
		"of some nodes":                  {[]map[string]string{{TopologyKey: "a", SharedVolumesKey: "true"}, {TopologyKey: "b", SharedVolumesKey: "true"}}, []string{"true"}},
		"the class wants both":           {[]map[string]string{can, cannot}, []string{"true", "false"}},
		"the class names a node as well": {[]map[string]string{can, {TopologyKey: "a"}}, nil},
		"the class says nothing":         {nil, nil},
	} {
		req := sharedRequest("v")
		req.AccessibilityRequirements = &csi.TopologyRequirement{}
		for _, segments := range c.asked {
			req.AccessibilityRequirements.Requisite = append(req.AccessibilityRequirements.Requisite, &csi.Topology{Segments: segments})
		}
		resp := check.Got(r.CreateVolume(r.ctx(), req))(t)
		var got []string
		for _, where := range resp.GetVolume().GetAccessibleTopology() {
			if len(where.GetSegments()) != 1 {
				t.Errorf("%s: %v", name, where)
			}
			got = append(got, where.GetSegments()[SharedVolumesKey])
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: it is usable where the key is %q, want %q", name, got, c.want)
		}
	}
}

func TestSharedVolume_HasAllAccessModes(t *testing.T) {
	r, _ := newMemoryRig(t)
	for _, mode := range slices.Concat(singleNode, multiNode) {
		req := sharedRequest(strings.ToLower(strings.ReplaceAll(mode.String(), "_", "-")))
		req.VolumeCapabilities = []*csi.VolumeCapability{withMode(mode, mountCapability(""))}
		if err := r.takes(req); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
	}
}

func TestSharedVolume_UnsupportedOptionIsRefused(t *testing.T) {
	r, _ := newMemoryRig(t)
	for name, test := range map[string]struct {
		change func(*csi.CreateVolumeRequest)
		words  []string
	}{
		"block": {func(q *csi.CreateVolumeRequest) {
			q.VolumeCapabilities = []*csi.VolumeCapability{withMode(csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER, blockCapability())}
		}, []string{"block", "Filesystem"}},
		"shared, perhaps":       {func(q *csi.CreateVolumeRequest) { q.Parameters["shared"] = "yes" }, []string{"shared", `"yes"`, "true or false"}},
		"no namespace":          {func(q *csi.CreateVolumeRequest) { q.Parameters["nfsServer"] = "files" }, []string{"nfsServer", "NAMESPACE/NAME"}},
		"two slashes":           {func(q *csi.CreateVolumeRequest) { q.Parameters["nfsServer"] = "a/b/c" }, []string{"a/b/c", "NAMESPACE/NAME"}},
		"explicitly not shared": {func(q *csi.CreateVolumeRequest) { q.Parameters["shared"] = "false" }, []string{"MULTI_NODE_MULTI_WRITER", "shared"}},
		"another server's address": {func(q *csi.CreateVolumeRequest) {
			q.VolumeCapabilities[0].GetMount().MountFlags = []string{"noatime", "addr=10.0.0.1"}
		}, []string{"addr=10.0.0.1", "nconnect"}},
		"an old version": {func(q *csi.CreateVolumeRequest) { q.VolumeCapabilities[0].GetMount().MountFlags = []string{"vers=3"} }, []string{"vers=3"}},
	} {
		t.Run(name, func(t *testing.T) {
			req := sharedRequest("v")
			test.change(req)
			_, err := r.CreateVolume(r.ctx(), req)
			expectError(t, err, codes.InvalidArgument, test.words...)
		})
	}
	r.create("local")
	req := sharedRequest("v")
	req.VolumeCapabilities[0].GetMount().MountFlags = []string{"nconnect=4", "softerr", "noatime"}
	if _, err := r.CreateVolume(r.ctx(), req); err != nil {
		t.Errorf("options that are fine: %v", err)
	}
}

func TestSharedVolume_IsRefusedWithoutServers(t *testing.T) {
	r := newRig(t, plain{backendtest.NewMemory()})
	_, err := r.CreateVolume(r.ctx(), sharedRequest("v"))
	expectError(t, err, codes.InvalidArgument, "NFS servers")
	resp, err := r.GetCapacity(r.ctx(), &csi.GetCapacityRequest{Parameters: map[string]string{"shared": "true"}})
	if err != nil || resp.GetAvailableCapacity() != 0 {
		t.Errorf("the room is %v, %v", resp, err)
	}
}

func TestSharedVolume_UnreachableIsNotReturned(t *testing.T) {
	b := newScripted()
	b.shows = func(v *backend.Volume) { v.Access = backend.Access{} }
	r := newRig(t, b)
	_, err := r.CreateVolume(r.ctx(), sharedRequest("v"))
	expectError(t, err, codes.Unavailable, "memory/server", "retry")
}

func TestSharedVolume_CapacityIsTheSameAtEveryNode(t *testing.T) {
	r, _ := newMemoryRig(t)
	modes := []*csi.VolumeCapability{withMode(csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER, mountCapability(""))}
	for name, test := range map[string]struct {
		parameters map[string]string
		place      string
		want       int64
	}{
		"everywhere":       {map[string]string{"shared": "true"}, "", 1 << 40},
		"here":             {map[string]string{"shared": "true"}, "node-a", 1 << 40},
		"elsewhere":        {map[string]string{"shared": "true"}, "node-b", 1 << 40},
		"the server":       {map[string]string{"shared": "true", "nfsServer": "memory/server"}, "node-b", 1 << 40},
		"no such server":   {map[string]string{"shared": "true", "nfsServer": "memory/other"}, "node-b", 0},
		"no such pool":     {map[string]string{"shared": "true", "pool": "fats"}, "", 0},
		"not shared":       {map[string]string{"shared": "false"}, "", 0}, // in these modes
		"not shared, here": {nil, "node-a", 0},
	} {
		req := &csi.GetCapacityRequest{Parameters: test.parameters, VolumeCapabilities: modes}
		if test.place != "" {
			req.AccessibleTopology = r.driver.topology(test.place)
		}
		resp, err := r.GetCapacity(r.ctx(), req)
		if err != nil || resp.GetAvailableCapacity() != test.want {
			t.Errorf("%s: %v, %v, want %d", name, resp, err, test.want)
		}
	}
}

func TestSharedVolume_GrowsAndIsCopiedWithoutItsNodes(t *testing.T) {
	r, _ := newMemoryRig(t)
	check.Got(r.CreateVolume(r.ctx(), sharedRequest("v")))(t)
	grown, err := r.ControllerExpandVolume(r.ctx(), &csi.ControllerExpandVolumeRequest{VolumeId: "v", CapacityRange: &csi.CapacityRange{RequiredBytes: 2 * gib}})
	if err != nil || grown.GetCapacityBytes() != 2*gib || grown.GetNodeExpansionRequired() {
		t.Errorf("grown: %v, %v", grown, err)
	}
	if s := r.snapshot("s", "v"); len(s.GetAccessibleTopology()) > 0 {
		t.Errorf("the snapshot is only at %v", s.GetAccessibleTopology())
	}
	req := sharedRequest("restored")
	req.CapacityRange = nil
	req.VolumeContentSource = fromSnapshot("s")
	resp, err := r.CreateVolume(r.ctx(), req)
	if v := resp.GetVolume(); err != nil || len(v.GetAccessibleTopology()) > 0 || v.GetVolumeContext()[pathContext] != "/restored" || v.GetCapacityBytes() != 2*gib {
		t.Errorf("restored: %v, %v", v, err)
	}
}

func TestSharedVolume_IsAttachedWhereRequested(t *testing.T) {
	r := newRig(t, backendtest.NewMemory(), func(c *Config) { c.Attach = true })
	check.Got(r.CreateVolume(r.ctx(), sharedRequest("v")))(t)
	expectError(t, r.attach("v", "gone", sharedRequest("").GetVolumeCapabilities()[0]), codes.NotFound, "gone")
}

func TestSharedVolume_ContextIsUnique(t *testing.T) {
	for name, test := range map[string]struct {
		server, path string
		good         bool
	}{
		"address":           {"10.96.0.7", "/v", true},
		"IPv6":              {"fd00::7", "/v", true},
		"name":              {"files.shop.svc.cluster.local", "/v", true},
		"another's path":    {"10.96.0.7", "/w", false},
		"the parent":        {"10.96.0.7", "/", false},
		"inside":            {"10.96.0.7", "/v/etc", false},
		"upwards":           {"10.96.0.7", "/v/../w", false},
		"no path":           {"10.96.0.7", "", false},
		"no server":         {"", "/v", false},
		"a server's option": {"10.96.0.7,sec=none", "/v", false},
		"a path for server": {"/etc", "/v", false},
		"a flag":            {"-v", "/v", false},
		"a space":           {"a b", "/v", false},
	} {
		v, err := parseContext("v", map[string]string{serverContext: test.server, pathContext: test.path})
		if (v != nil) != test.good || (err == nil) != test.good {
			t.Errorf("%s: shared %v, %v", name, v, err)
		}
	}
	for port, want := range map[string]int32{"": 0, "3049": 3049, "65535": 65535, "0": 0, "65536": 0, "-1": 0, "nfs": 0, "3049,sec=none": 0} {
		v, err := parseContext("v", map[string]string{serverContext: "10.96.0.7", portContext: port, pathContext: "/v"})
		if (err == nil) != (want != 0 || port == "") || err == nil && v.Access.NFS.Port != want {
			t.Errorf("port %q: %+v, %v", port, v, err)
		}
	}
	if v, err := parseContext("v", map[string]string{"other": "key"}); v != nil || err != nil {
		t.Errorf("without any: shared %v, %v", v, err)
	}
}

func TestSharedVolume_MountIsIdentifiedByTheMountTableAlone(t *testing.T) {
	for name, test := range map[string]struct {
		m    nodeops.Mount
		want bool
	}{
		"its own":                {nodeops.Mount{FSType: "nfs4", Root: "/", Source: "10.96.0.7:/v"}, true},
		"its own over IPv6":      {nodeops.Mount{FSType: "nfs4", Root: "/", Source: "[fd00::7]:/v"}, true},
		"a directory inside it":  {nodeops.Mount{FSType: "nfs4", Root: "/", Source: "10.96.0.7:/v/inner"}, false},
		"another's":              {nodeops.Mount{FSType: "nfs4", Root: "/", Source: "10.96.0.7:/w"}, false},
		"one that ends like it":  {nodeops.Mount{FSType: "nfs4", Root: "/", Source: "10.96.0.7:/w/v"}, false},
		"one that begins with v": {nodeops.Mount{FSType: "nfs4", Root: "/", Source: "10.96.0.7:/vv"}, false},
		"no server's":            {nodeops.Mount{FSType: "tmpfs", Root: "/", Source: "10.96.0.7:/v"}, false},
	} {
		if got := isOfServer(&test.m, "v"); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
		if got := (networkFS{id: "v"}).is(&test.m); got != test.want {
			t.Errorf("%s shows: %v", name, got)
		}
	}
}

func TestSharedVolume_InvalidRequestIsRefusedByTheNode(t *testing.T) {
	r, _ := newMemoryRig(t)
	dir := t.TempDir()
	stage := func(change func(*csi.NodeStageVolumeRequest)) error {
		req := &csi.NodeStageVolumeRequest{
			VolumeId: "v", StagingTargetPath: dir, VolumeCapability: sharedRequest("").GetVolumeCapabilities()[0],
			VolumeContext: map[string]string{serverContext: "10.96.0.7", pathContext: "/v"},
		}
		change(req)
		_, err := r.NodeStageVolume(r.ctx(), req)
		return err
	}
	err := stage(func(q *csi.NodeStageVolumeRequest) { q.VolumeContext[pathContext] = "/w" })
	expectError(t, err, codes.InvalidArgument, "/w", "/v")
	err = stage(func(q *csi.NodeStageVolumeRequest) { q.VolumeCapability = blockCapability() })
	expectError(t, err, codes.InvalidArgument, "block")
	err = stage(func(q *csi.NodeStageVolumeRequest) {
		q.VolumeCapability.GetMount().MountFlags = []string{"clientaddr=10.0.0.1"}
	})
	expectError(t, err, codes.InvalidArgument, "clientaddr")
	err = stage(func(q *csi.NodeStageVolumeRequest) { q.StagingTargetPath = dir + "/missing" })
	expectError(t, err, codes.FailedPrecondition, "missing")
	_, err = r.NodePublishVolume(r.ctx(), &csi.NodePublishVolumeRequest{
		VolumeId: "v", StagingTargetPath: dir, TargetPath: dir + "/target", VolumeCapability: sharedRequest("").GetVolumeCapabilities()[0],
		VolumeContext: map[string]string{serverContext: "10.96.0.7", pathContext: "/v"},
	})
	expectError(t, err, codes.FailedPrecondition, "not mounted", "10.96.0.7:/v")
}

func TestSharedVolume_NodeThatCannotMountItNamesItselfAndWhatItLacks(t *testing.T) {
	for name, c := range map[string]struct {
		namespaces string
		words      []string
	}{
		"no network of the host": {"/nowhere", []string{"/nowhere/net", "--namespaces"}},
		"no client of NFS":       {"", []string{"modprobe nfsv4"}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.namespaces == "" && nodeops.CheckNFSClient("") == nil {
				hostfs.Skip(t, "no-nfs", "this kernel has a client of NFS")
			}
			r, _ := newMemoryRig(t, func(d *Config) { d.Namespaces = c.namespaces })
			_, err := r.NodeStageVolume(r.ctx(), &csi.NodeStageVolumeRequest{
				VolumeId: "v", StagingTargetPath: t.TempDir(), VolumeCapability: sharedRequest("").GetVolumeCapabilities()[0],
				VolumeContext: map[string]string{serverContext: "127.0.0.1", pathContext: "/v"},
			})
			expectError(t, err, codes.FailedPrecondition, append(c.words, "volume v", "node "+r.driver.NodeID+" cannot mount shared volumes")...)
		})
	}
}
