package driver

import (
	"maps"
	"math"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestCreate_RepeatGivesTheSameAnswer(t *testing.T) {
	r, memory := newMemoryRig(t)
	r.create("source")
	r.snapshot("s", "source")
	for name, source := range map[string]*csi.VolumeContentSource{"empty": nil, "restored": fromSnapshot("s"), "cloned": fromVolume("source")} {
		req := createRequest(name)
		req.VolumeContentSource = source
		req.Parameters = map[string]string{"pool": "memory", reserved + "pvc/name": "claim", reserved + "pvc/namespace": "default"}
		first := check.Got(r.CreateVolume(r.ctx(), req))(t)
		// What Kubernetes calls the claim decides nothing.
		req.Parameters[reserved+"pvc/name"] = "renamed"
		second := check.Got(r.CreateVolume(r.ctx(), req))(t)
		if !proto.Equal(first, second) {
			t.Errorf("%s: first %v, then %v", name, first, second)
		}
		want := &csi.Volume{
			VolumeId: name, CapacityBytes: gib, ContentSource: source,
			AccessibleTopology: []*csi.Topology{{Segments: map[string]string{"topology.holdfast.dev/node": "node-a"}}},
		}
		if !proto.Equal(second.GetVolume(), want) {
			t.Errorf("got %v, want %v", second.GetVolume(), want)
		}
		v := check.Got(memory.Get(r.ctx(), backend.ID(name)))(t)
		if labels := map[string]string{reserved + "pvc/name": "claim", reserved + "pvc/namespace": "default"}; !maps.Equal(v.Labels, labels) {
			t.Errorf("labels are %v", v.Labels)
		}
	}
}

func TestCreate_RepeatWithOtherParametersIsRefused(t *testing.T) {
	r, _ := newMemoryRig(t)
	r.create("v")
	r.create("other")
	r.snapshot("s", "other")
	for name, test := range map[string]struct {
		change func(*csi.CreateVolumeRequest)
		want   string
	}{
		"size":       {func(q *csi.CreateVolumeRequest) { q.CapacityRange.RequiredBytes = 2 * gib }, "size"},
		"limit":      {func(q *csi.CreateVolumeRequest) { q.CapacityRange = &csi.CapacityRange{LimitBytes: gib / 2} }, "at most"},
		"mode":       {func(q *csi.CreateVolumeRequest) { q.VolumeCapabilities = []*csi.VolumeCapability{blockCapability()} }, "mode"},
		"fs":         {func(q *csi.CreateVolumeRequest) { q.VolumeCapabilities[0].GetMount().FsType = "xfs" }, "xfs"},
		"parameters": {func(q *csi.CreateVolumeRequest) { q.Parameters = map[string]string{"provisioning": "thick"} }, "thick"},
		"inodes":     {func(q *csi.CreateVolumeRequest) { q.Parameters = map[string]string{"inodes": "77"} }, "77"},
		"snapshot":   {func(q *csi.CreateVolumeRequest) { q.VolumeContentSource = fromSnapshot("s") }, "snapshot s"},
		"clone":      {func(q *csi.CreateVolumeRequest) { q.VolumeContentSource = fromVolume("other") }, "volume other"},
	} {
		t.Run(name, func(t *testing.T) {
			req := createRequest("v")
			test.change(req)
			_, err := r.CreateVolume(r.ctx(), req)
			expectError(t, err, codes.AlreadyExists, test.want)
		})
	}
}

func TestCreate_InvalidRequestIsRefusedByValue(t *testing.T) {
	type request = csi.CreateVolumeRequest
	set := func(key, value string) func(*request) {
		return func(q *request) { q.Parameters = map[string]string{key: value} }
	}
	capability := func(all ...*csi.VolumeCapability) func(*request) {
		return func(q *request) { q.VolumeCapabilities = all }
	}
	size := func(required, limit int64) func(*request) {
		return func(q *request) {
			q.CapacityRange = &csi.CapacityRange{RequiredBytes: required, LimitBytes: limit}
		}
	}
	mode := func(m csi.VolumeCapability_AccessMode_Mode) func(*request) {
		return capability(withMode(m, mountCapability("")))
	}
	for name, test := range map[string]struct {
		change func(*request)
		code   codes.Code
		words  []string
	}{
		"no name":                     {func(q *request) { q.Name = "" }, codes.InvalidArgument, []string{"name"}},
		"name with NUL":               {func(q *request) { q.Name = "a\x00b" }, codes.InvalidArgument, []string{`"a\x00b"`, "control"}},
		"name with DEL":               {func(q *request) { q.Name = "a\x7fb" }, codes.InvalidArgument, []string{`"a\x7fb"`}},
		"name of 10000 bytes":         {func(q *request) { q.Name = strings.Repeat("n", 10000) }, codes.InvalidArgument, []string{"10000", "4096"}},
		"name of an ephemeral volume": {func(q *request) { q.Name = "csi-" + strings.Repeat("0", 64) }, codes.InvalidArgument, []string{"ephemeral"}},
		"no capability":               {capability(), codes.InvalidArgument, []string{"volume_capabilities"}},
		"empty capability":            {capability(&csi.VolumeCapability{}), codes.InvalidArgument, []string{"UNKNOWN", "SINGLE_NODE_WRITER"}},
		"no access type": {
			capability(withMode(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, &csi.VolumeCapability{})),
			codes.InvalidArgument,
			[]string{"block", "mount"},
		},
		"unknown access mode":     {mode(99), codes.InvalidArgument, []string{"99", "SINGLE_NODE_WRITER"}},
		"multi-node reader":       {mode(csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY), codes.InvalidArgument, []string{"MULTI_NODE_READER_ONLY", "SINGLE_NODE"}},
		"multi-node writer":       {mode(csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER), codes.InvalidArgument, []string{"MULTI_NODE_SINGLE_WRITER", "SINGLE_NODE"}},
		"multi-node multi writer": {mode(csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER), codes.InvalidArgument, []string{"MULTI_NODE_MULTI_WRITER", "SINGLE_NODE"}},
		"block and mount":         {capability(mountCapability(""), blockCapability()), codes.InvalidArgument, []string{"block", "mount"}},
		"two file systems":        {capability(mountCapability("xfs"), mountCapability("ext4")), codes.InvalidArgument, []string{"xfs", "ext4"}},
		"capability against parameter": {func(q *request) {
			capability(mountCapability("xfs"))(q)
			set(reserved+"fstype", "ext4")(q)
		}, codes.InvalidArgument, []string{"xfs", "ext4"}},
		"block with a file system": {func(q *request) {
			capability(blockCapability())(q)
			set(reserved+"fstype", "ext4")(q)
		}, codes.InvalidArgument, []string{"block", "fstype"}},
		"block with mkfs options": {func(q *request) {
			capability(blockCapability())(q)
			set("mkfsOptions", "-m 1")(q)
		}, codes.InvalidArgument, []string{"block", "mkfsOptions"}},
		"mount flag that is an operation": {capability(mountCapability("", "noatime,remount")), codes.InvalidArgument, []string{"remount"}},
		"mount flag that is an argument":  {capability(mountCapability("", "--make-shared")), codes.InvalidArgument, []string{"--make-shared"}},
		"contradicting mount flags":       {capability(mountCapability("", "ro", "rw")), codes.InvalidArgument, []string{"ro", "rw"}},
		"group that is no number": {
			func(q *request) { q.VolumeCapabilities[0].GetMount().VolumeMountGroup = "staff" },
			codes.InvalidArgument,
			[]string{"staff", "number"},
		},
		"unknown parameter":         {set("pol", "fast"), codes.InvalidArgument, []string{`"pol"`, "pool, provisioning"}},
		"unknown file system":       {set(reserved+"fstype", "ntfs"), codes.InvalidArgument, []string{"ntfs", "ext4, xfs or btrfs"}},
		"unknown pool":              {set("pool", "fats"), codes.InvalidArgument, []string{"fats", "memory"}},
		"unknown provisioning":      {set("provisioning", "fat"), codes.InvalidArgument, []string{"fat", "Thin", "Thick"}},
		"inodes that are no number": {set("inodes", "many"), codes.InvalidArgument, []string{"inodes", "many"}},
		"no inodes":                 {set("inodes", "0"), codes.InvalidArgument, []string{"inodes", `"0"`}},
		"negative inodes":           {set("inodes", "-1"), codes.InvalidArgument, []string{"inodes", "-1"}},
		"inodes above int64":        {set("inodes", "9223372036854775808"), codes.InvalidArgument, []string{"9223372036854775808", "9223372036854775807"}},
		"mutable parameters":        {func(q *request) { q.MutableParameters = map[string]string{"iops": "1"} }, codes.InvalidArgument, []string{"mutable_parameters"}},
		"size of zero":              {size(0, 0), codes.InvalidArgument, []string{"both 0"}},
		"negative size":             {size(-1, 0), codes.InvalidArgument, []string{"-1", "negative"}},
		"negative limit":            {size(0, -5), codes.InvalidArgument, []string{"-5", "negative"}},
		"limit below the size":      {size(gib, gib-1), codes.InvalidArgument, []string{"1073741824", "1073741823"}},
		"limit that no size fits":   {size(1, 2), codes.OutOfRange, []string{"2"}},
		"size above the pool":       {size(1<<50, 0), codes.ResourceExhausted, []string{"1125899906842624"}},
		"size at the end of int64":  {size(math.MaxInt64, 0), codes.OutOfRange, []string{"9223372036854775807"}},
		"empty source":              {func(q *request) { q.VolumeContentSource = &csi.VolumeContentSource{} }, codes.InvalidArgument, []string{"volume_content_source"}},
		"source without id":         {func(q *request) { q.VolumeContentSource = fromSnapshot("") }, codes.InvalidArgument, []string{"snapshot_id"}},
		"source outside":            {func(q *request) { q.VolumeContentSource = fromVolume("../x") }, codes.InvalidArgument, []string{"../x"}},
		"snapshot that is gone":     {func(q *request) { q.VolumeContentSource = fromSnapshot("gone") }, codes.NotFound, []string{"gone"}},
		"volume that is gone":       {func(q *request) { q.VolumeContentSource = fromVolume("gone") }, codes.NotFound, []string{"gone"}},
	} {
		t.Run(name, func(t *testing.T) {
			r, memory := newMemoryRig(t)
			req := createRequest("claim")
			test.change(req)
			_, err := r.CreateVolume(r.ctx(), req)
			expectError(t, err, test.code, test.words...)
			if all, _ := memory.List(r.ctx()); len(all) > 0 {
				t.Errorf("%d volumes were made", len(all))
			}
		})
	}
}

// badIDs are refused wherever an id comes from outside.
var badIDs = []string{"", "../x", "a/../../b", "/etc/passwd", "A", "a b", "a\x00b", "-a", ".", "é", strings.Repeat("a", 64)}

func TestIDs_FromOutsideAreCheckedOnEveryCall(t *testing.T) {
	r, _ := newMemoryRig(t)
	fields := 0
	eachMethod(t, func(path string, m protoreflect.MethodDescriptor) {
		switch m.Name() {
		case "ControllerPublishVolume", "ControllerUnpublishVolume", "ControllerModifyVolume", "ListSnapshots":
			return // three are not served here, and the last one follows
		}
		for _, name := range []protoreflect.Name{"volume_id", "snapshot_id", "group_snapshot_id", "source_volume_id", "source_volume_ids"} {
			f := m.Input().Fields().ByName(name)
			if f == nil {
				continue
			}
			fields++
			for _, id := range badIDs {
				word := "missing"
				if id != "" {
					word = backend.Quote(id)
				}
				t.Run(string(m.Name())+" "+backend.Quote(id), func(t *testing.T) {
					req, _ := fill(t, m.Input(), "v")
					if value := protoreflect.ValueOfString(id); f.IsList() {
						req.ProtoReflect().Mutable(f).List().Set(0, value)
					} else {
						req.ProtoReflect().Set(f, value)
					}
					expectError(t, r.conn.Invoke(r.ctx(), path, req, newMessage(t, m.Output())), codes.InvalidArgument, word)
				})
			}
		}
	})
	if fields != 18 {
		t.Errorf("%d fields were looked at; which ones does the protocol have now?", fields)
	}
	for _, req := range []*csi.ListSnapshotsRequest{{SnapshotId: "../x"}, {SourceVolumeId: "../x"}} {
		_, err := r.ListSnapshots(r.ctx(), req)
		expectError(t, err, codes.InvalidArgument, "../x")
	}
}

func TestCreate_VolumeMustBeRequestedOnThisNode(t *testing.T) {
	here := map[string]string{TopologyKey: "node-a"}
	there := map[string]string{TopologyKey: "node-b"}
	here2 := map[string]string{TopologyKey: "node-a", "zone": "z"}
	topologies := func(all ...map[string]string) (t []*csi.Topology) {
		for _, segments := range all {
			t = append(t, &csi.Topology{Segments: segments})
		}
		return t
	}
	for name, test := range map[string]struct {
		want *csi.TopologyRequirement
		code codes.Code
	}{
		"anywhere":            {nil, codes.OK},
		"only wishes":         {&csi.TopologyRequirement{Preferred: topologies(there)}, codes.OK},
		"here":                {&csi.TopologyRequirement{Requisite: topologies(here)}, codes.OK},
		"here or there":       {&csi.TopologyRequirement{Requisite: topologies(there, here)}, codes.OK},
		"there":               {&csi.TopologyRequirement{Requisite: topologies(there)}, codes.ResourceExhausted},
		"here in some zone":   {&csi.TopologyRequirement{Requisite: topologies(here2)}, codes.ResourceExhausted},
		"a place of no names": {&csi.TopologyRequirement{Requisite: topologies(nil)}, codes.ResourceExhausted},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := newMemoryRig(t)
			req := createRequest("v")
			req.AccessibilityRequirements = test.want
			_, err := r.CreateVolume(r.ctx(), req)
			if expectError(t, err, test.code); err != nil {
				expectError(t, err, test.code, "node-a")
			}
		})
	}
}

func TestCreate_SourceOnAnotherNodeMakesTheSchedulerChooseAgain(t *testing.T) {
	r, _ := newMemoryRig(t)
	req := createRequest("v")
	req.VolumeContentSource = fromSnapshot("elsewhere")
	req.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: []*csi.Topology{r.driver.topology("")}}
	_, err := r.CreateVolume(r.ctx(), req)
	expectError(t, err, codes.ResourceExhausted, "elsewhere", "node-a")
}

func TestDelete_OfAMissingVolumeSucceeds(t *testing.T) {
	r, _ := newMemoryRig(t)
	r.create("v")
	for range 3 {
		check.Got(r.DeleteVolume(r.ctx(), &csi.DeleteVolumeRequest{VolumeId: "v"}))(t)
	}
	_, err := r.ControllerGetVolume(r.ctx(), &csi.ControllerGetVolumeRequest{VolumeId: "v"})
	expectError(t, err, codes.NotFound, "v")
	_, err = r.ControllerGetVolumeHealth(r.ctx(), &csi.ControllerGetVolumeHealthRequest{VolumeId: "v"})
	expectError(t, err, codes.NotFound, "v")
}

func TestExpand_ReturnsTheSizeAndRequestsNodeExpansion(t *testing.T) {
	r, _ := newMemoryRig(t)
	r.create("v")
	expand := func(required, limit int64, c *csi.VolumeCapability) (*csi.ControllerExpandVolumeResponse, error) {
		return r.ControllerExpandVolume(r.ctx(), &csi.ControllerExpandVolumeRequest{
			VolumeId: "v", CapacityRange: &csi.CapacityRange{RequiredBytes: required, LimitBytes: limit}, VolumeCapability: c,
		})
	}
	for _, size := range []int64{2 * gib, 2 * gib, gib} { // larger, repeated, smaller: that one keeps what is there
		resp, err := expand(size, 0, mountCapability(""))
		if err != nil || resp.GetCapacityBytes() != 2*gib || !resp.GetNodeExpansionRequired() {
			t.Errorf("to %d: %v, %v", size, resp, err)
		}
	}
	_, err := expand(3*gib, 0, blockCapability())
	expectError(t, err, codes.InvalidArgument, "Block")
	_, err = expand(-1, 0, nil)
	expectError(t, err, codes.InvalidArgument, "-1")
	_, err = expand(1<<50, 0, nil)
	expectError(t, err, codes.OutOfRange, "memory")
	_, err = expand(gib, gib, nil)
	expectError(t, err, codes.OutOfRange, "limit of 1Gi")
	_, err = r.ControllerExpandVolume(r.ctx(), &csi.ControllerExpandVolumeRequest{VolumeId: "v"})
	expectError(t, err, codes.InvalidArgument, "capacity_range")
	_, err = r.ControllerExpandVolume(r.ctx(), &csi.ControllerExpandVolumeRequest{VolumeId: "gone", CapacityRange: &csi.CapacityRange{RequiredBytes: 1}})
	expectError(t, err, codes.NotFound, "gone")
}

func TestExpand_DirectoryNeedsNoNodeExpansion(t *testing.T) {
	b := newScripted()
	b.shows = func(v *backend.Volume) { v.Access.Directory = "/somewhere" }
	r := newRig(t, b)
	r.create("v")
	resp, err := r.ControllerExpandVolume(r.ctx(), &csi.ControllerExpandVolumeRequest{VolumeId: "v", CapacityRange: &csi.CapacityRange{RequiredBytes: 2 * gib}})
	if err != nil || resp.GetNodeExpansionRequired() {
		t.Errorf("got %v, %v", resp, err)
	}
}

func TestCapabilities_AreConfirmedOrRefusedWithTheReason(t *testing.T) {
	r, _ := newMemoryRig(t)
	r.create("v")
	good := mountCapability("ext4")
	for name, test := range map[string]struct {
		capability *csi.VolumeCapability
		parameters map[string]string
		want       string // in the message; empty: confirmed
	}{
		"as made":                {good, nil, ""},
		"with its parameters":    {good, map[string]string{"pool": "memory", "provisioning": "thin"}, ""},
		"another pool":           {good, map[string]string{"pool": "slow"}, "slow"},
		"an unknown parameter":   {good, map[string]string{"iops": "1"}, "iops"},
		"as block":               {blockCapability(), nil, "Block"},
		"another file system":    {mountCapability("xfs"), nil, "xfs"},
		"on many nodes":          {withMode(csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER, mountCapability("")), nil, "MULTI_NODE_MULTI_WRITER"},
		"by many pods of a node": {withMode(csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER, mountCapability("")), nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			req := &csi.ValidateVolumeCapabilitiesRequest{VolumeId: "v", VolumeCapabilities: []*csi.VolumeCapability{test.capability}, Parameters: test.parameters}
			resp := check.Got(r.ValidateVolumeCapabilities(r.ctx(), req))(t)
			confirmed := resp.GetConfirmed()
			if test.want != "" && (confirmed != nil || !strings.Contains(resp.GetMessage(), test.want)) {
				t.Errorf("got %v, want a message that names %s", resp, test.want)
			}
			if test.want == "" && (len(confirmed.GetVolumeCapabilities()) != 1 || !maps.Equal(confirmed.GetParameters(), test.parameters)) {
				t.Errorf("got %v", resp)
			}
		})
	}
	_, err := r.ValidateVolumeCapabilities(r.ctx(), &csi.ValidateVolumeCapabilitiesRequest{VolumeId: "gone", VolumeCapabilities: []*csi.VolumeCapability{good}})
	expectError(t, err, codes.NotFound, "gone")
	_, err = r.ValidateVolumeCapabilities(r.ctx(), &csi.ValidateVolumeCapabilitiesRequest{VolumeId: "v"})
	expectError(t, err, codes.InvalidArgument, "volume_capabilities")
}
