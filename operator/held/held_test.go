package held_test

import (
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/operator/held"
	"github.com/holdfast-storage/holdfast/operator/render"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func node(name, disk string) *core.Node {
	return &core.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{core.LabelOSStable: "linux", "disk": disk}}}
}

func volume(name, node, pool string, phase v1beta1.Phase) *v1beta1.Volume {
	return &v1beta1.Volume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.VolumeSpec{Node: node}, Status: v1beta1.VolumeStatus{Pool: pool, Phase: phase}}
}

func only(values ...string) []core.NodeSelectorTerm {
	return []core.NodeSelectorTerm{{MatchExpressions: []core.NodeSelectorRequirement{{Key: "disk", Operator: core.NodeSelectorOpIn, Values: values}}}}
}

var (
	nodes   = []*core.Node{node("a", "fast"), node("b", "slow"), node("c", "slow")}
	size    = resource.MustParse("10Gi")
	devices = &v1beta1.DeviceSelector{Paths: []string{"/dev/sdb"}, MinSize: &size}
)

// running has a pool on devices, and one of files on the nodes with fast disks.
func running() *render.Carried {
	return &render.Carried{Pools: []v1beta1.PoolSpec{
		{Name: "disks", Devices: devices}, {Name: "files", Path: "/srv/files", Engine: v1beta1.EngineDirectory, NodeSelectorTerms: only("fast")},
	}}
}

func stored() held.Stored {
	return held.Count([]*v1beta1.Volume{
		volume("v1", "a", "disks", v1beta1.PhaseReady), volume("v2", "b", "disks", v1beta1.PhaseUnreachable), volume("v3", "b", "", ""),
		volume("v4", "a", "files", v1beta1.PhaseReady),
		volume("lost", "c", "disks", v1beta1.PhaseLost), volume("elsewhere", "c", "files", v1beta1.PhaseReady),
		volume("gone", "d", "disks", v1beta1.PhaseReady), volume("shared", "ns.nfs1.nfs.holdfast.dev", "disks", v1beta1.PhaseReady),
	}, snapshots)
}

var snapshots = []*v1beta1.Snapshot{{ObjectMeta: metav1.ObjectMeta{Name: "s1"}, Spec: v1beta1.SnapshotSpec{Node: "a"}, Status: v1beta1.SnapshotStatus{Pool: "files"}}}

func TestPools_HoldWhatIsOnNodesThatHaveThem(t *testing.T) {
	pools := held.Pools(&v1beta1.StorageCluster{}, running(), nodes, stored())
	if len(pools) != 2 {
		t.Fatalf("the pools are %+v", pools)
	}
	disks, files := pools[0], pools[1]
	if disks.Name != "disks" || disks.Path != "/var/lib/holdfast/pools/disks" || disks.Engine != v1beta1.EngineImage || disks.Devices == nil ||
		disks.Volumes != 3 || disks.Snapshots != 0 || strings.Join(disks.Nodes, " ") != "a b" {
		t.Errorf("disks is %+v", disks)
	}
	if files.Path != "/srv/files" || files.Engine != v1beta1.EngineDirectory || files.Volumes != 1 || files.Snapshots != 1 || strings.Join(files.Nodes, " ") != "a" {
		t.Errorf("files is %+v", files)
	}
	if pools := held.Pools(&v1beta1.StorageCluster{}, nil, nodes, stored()); pools != nil {
		t.Errorf("where nothing runs, %+v", pools)
	}
}

// holding is a StorageCluster with the running pools, whose status says what they hold.
func holding() *v1beta1.StorageCluster {
	c := &v1beta1.StorageCluster{}
	c.Spec.Pools = running().Pools
	c.Status.Pools = held.Pools(c, running(), nodes, stored())
	return c
}

func TestPools_ThoseOfTheStatusStayWhileWhatRunsOrIsStoredIsNotKnown(t *testing.T) {
	withoutDisks, ofNFS := running(), volume("v", "ns.nfs1.nfs.holdfast.dev", "disks", v1beta1.PhaseReady)
	withoutDisks.Pools = withoutDisks.Pools[1:]
	of := func(partial bool, volumes ...*v1beta1.Volume) held.Stored {
		s := held.Count(volumes, nil)
		s.Partial = partial
		return s
	}
	lost, snapshot := volume("v", "a", "disks", v1beta1.PhaseLost), held.Count(nil, snapshots)
	for what, test := range map[string]struct {
		running *render.Carried
		stored  held.Stored
		allowed string
		want    string
	}{
		"what runs is not known":                       {nil, stored(), "", "disks files"},
		"only what is stored is not known":             {running(), of(true), "", "disks files"},
		"nothing is known":                             {nil, of(true), "", "disks files"},
		"one is known to hold a volume":                {running(), of(true, volume("v", "a", "disks", "")), "disks", "files disks"},
		"one has a volume left":                        {nil, of(false, volume("v", "c", "disks", "")), "", "disks"},
		"one has a snapshot left":                      {nil, snapshot, "", "files"},
		"there is a volume that may be in any":         {nil, of(false, volume("v", "c", "", "")), "", "disks files"},
		"all that is left is lost or of an NFS server": {nil, of(false, lost, ofNFS), "", ""},
		"they are empty":                               {nil, of(false), "", ""},
		"one may be hidden":                            {nil, stored(), "disks", "files"},
		"all is known":                                 {withoutDisks, stored(), "", "files"},
		"all is known, and nothing is stored":          {running(), of(false), "", ""},
	} {
		c := holding()
		c.Annotations = map[string]string{v1beta1.AllowHidingAnnotation: test.allowed}
		var names []string
		for _, p := range held.Pools(c, test.running, nodes, test.stored) {
			names = append(names, p.Name)
		}
		if got := strings.Join(names, " "); got != test.want {
			t.Errorf("%s: held are %q, want %q", what, got, test.want)
		}
	}
}

func TestEffective_WhatWouldHideVolumesIsRefusedWhileItIsNotKnownWhatRuns(t *testing.T) {
	c := holding()
	if got, hidden, err := held.Effective(c, nil, c.Status.Pools, nodes); got != c || hidden != nil || err != nil {
		t.Errorf("a spec that hides nothing: %v, %+v", err, hidden)
	}
	c.Spec.Pools = c.Spec.Pools[1:]
	_, hidden, err := held.Effective(c, nil, held.Pools(c, nil, nodes, stored()), nodes)
	if len(hidden) != 1 || err == nil {
		t.Fatalf("a spec without a pool: %v, %+v", err, hidden)
	}
	for _, part := range []string{"nothing of it is applied", "pool disks holds 3 volumes on nodes a, b", "Revert the change"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in %v", part, err)
		}
	}
	if _, _, err := held.Effective(c, nil, held.Pools(c, nil, nodes, held.Stored{}), nodes); err != nil {
		t.Errorf("where the pool is empty: %v", err)
	}
}

func TestEffective_WhatWouldHideVolumesIsNotCarriedOut(t *testing.T) {
	smaller, larger := resource.MustParse("1Gi"), resource.MustParse("20Gi")
	for what, test := range map[string]struct {
		change func(*v1beta1.StorageCluster)
		says   []string // nothing where it is carried out
	}{
		"nothing":                      {func(*v1beta1.StorageCluster) {}, nil},
		"another pool":                 {func(c *v1beta1.StorageCluster) { c.Spec.Pools = append(c.Spec.Pools, v1beta1.PoolSpec{Name: "more"}) }, nil},
		"what a pool keeps free":       {func(c *v1beta1.StorageCluster) { c.Spec.Pools[0].Reserved = "20%" }, nil},
		"the order of pools":           {func(c *v1beta1.StorageCluster) { c.Spec.Pools[0], c.Spec.Pools[1] = c.Spec.Pools[1], c.Spec.Pools[0] }, nil},
		"more devices":                 {func(c *v1beta1.StorageCluster) { c.Spec.Pools[0].Devices.Paths = []string{"/dev/sdc", "/dev/sdb"} }, nil},
		"smaller devices":              {func(c *v1beta1.StorageCluster) { c.Spec.Pools[0].Devices.MinSize = &smaller }, nil},
		"other devices":                {func(c *v1beta1.StorageCluster) { c.Spec.Pools[0].Devices.Paths = []string{"/dev/sdc"} }, []string{"spec.pools[0].devices", "3 volumes on nodes a, b"}},
		"room for a second device":     {func(c *v1beta1.StorageCluster) { c.Spec.Pools[0].Devices.Count = 2 }, nil},
		"any device of the machine":    {func(c *v1beta1.StorageCluster) { c.Spec.Pools[0].Devices.Paths = nil }, []string{"spec.pools[0].devices"}},
		"larger devices":               {func(c *v1beta1.StorageCluster) { c.Spec.Pools[0].Devices.MinSize = &larger }, []string{"spec.pools[0].devices"}},
		"devices of a model":           {func(c *v1beta1.StorageCluster) { c.Spec.Pools[0].Devices.Model = "X" }, []string{"spec.pools[0].devices"}},
		"devices that turn":            {func(c *v1beta1.StorageCluster) { c.Spec.Pools[0].Devices.Rotational = new(bool) }, []string{"spec.pools[0].devices"}},
		"a directory for devices":      {func(c *v1beta1.StorageCluster) { c.Spec.Pools[0].Devices = nil }, []string{"spec.pools[0].devices"}},
		"another directory":            {func(c *v1beta1.StorageCluster) { c.Spec.Pools[1].Path = "/srv/x" }, []string{"spec.pools[1].path", "/srv/x", "/srv/files", "1 volume and 1 snapshot on node a"}},
		"another engine":               {func(c *v1beta1.StorageCluster) { c.Spec.Pools[1].Engine = "" }, []string{"spec.pools[1].engine", "Image", "Directory"}},
		"another name":                 {func(c *v1beta1.StorageCluster) { c.Spec.Pools[1].Name = "new" }, []string{"spec.pools", "a pool of this name"}},
		"one pool less":                {func(c *v1beta1.StorageCluster) { c.Spec.Pools = c.Spec.Pools[:1] }, []string{"pool files"}},
		"no pools":                     {func(c *v1beta1.StorageCluster) { c.Spec.Pools = nil }, []string{"pool disks", "pool files"}},
		"no driver":                    {func(c *v1beta1.StorageCluster) { c.Spec.CSI.Enabled = new(bool) }, []string{"spec.csi.enabled", "pool disks", "pool files"}},
		"a node left out":              {func(c *v1beta1.StorageCluster) { c.Spec.NodeSelectorTerms = only("fast") }, []string{"nodeSelectorTerms", "leave out node b", "3 volumes"}},
		"a node of a pool left out":    {func(c *v1beta1.StorageCluster) { c.Spec.Pools[1].NodeSelectorTerms = only("slow") }, []string{"leave out node a", "pool files"}},
		"a node with nothing left out": {func(c *v1beta1.StorageCluster) { c.Spec.NodeSelectorTerms = notC }, nil},
		"terms that cannot be read":    {func(c *v1beta1.StorageCluster) { c.Spec.NodeSelectorTerms = only("-_not a value") }, nil},
		"one of two that is allowed": {func(c *v1beta1.StorageCluster) {
			c.Annotations = map[string]string{v1beta1.AllowHidingAnnotation: "x, files"}
			c.Spec.Pools = c.Spec.Pools[:1]
		}, nil},
		"the other of two": {func(c *v1beta1.StorageCluster) {
			c.Annotations = map[string]string{v1beta1.AllowHidingAnnotation: "disks"}
			c.Spec.Pools = c.Spec.Pools[:1]
		}, []string{"pool files"}},
	} {
		t.Run(what, func(t *testing.T) {
			c := &v1beta1.StorageCluster{}
			c.Spec.Debug = true
			c.Spec.Pools = running().Pools
			c.Spec.Pools[0].Devices = devices.DeepCopy()
			test.change(c)
			got, hidden, err := held.Effective(c, running(), held.Pools(c, running(), nodes, stored()), nodes)
			check.OK(t, err)
			if refused := len(test.says) > 0; refused != (len(hidden) > 0) || refused == (got == c) {
				t.Fatalf("it hides %+v", hidden)
			}
			for _, part := range test.says {
				if text := held.Text(hidden); !strings.Contains(text, part) {
					t.Errorf("%q is not in %s", part, text)
				}
			}
			if len(hidden) > 0 && (len(got.Spec.Pools) != 2 || got.Spec.Pools[1].Path != "/srv/files" || got.Spec.NodeSelectorTerms != nil || got.Spec.CSI.Enabled != nil || !got.Spec.Debug) {
				t.Errorf("what is carried out is %+v", got.Spec)
			}
		})
	}
}

func TestEffective_ADeviceThatHoldsVolumesIsNotTakenFromItsPool(t *testing.T) {
	of := func(count int32) *v1beta1.StorageCluster {
		c := &v1beta1.StorageCluster{}
		c.Spec.Pools = []v1beta1.PoolSpec{{Name: "files"}, {Name: "disks", Devices: &v1beta1.DeviceSelector{Model: "X", Count: count}}}
		return c
	}
	runs := &render.Carried{Pools: render.Pools(of(3))}
	in := held.Count([]*v1beta1.Volume{volume("v1", "a", "disks.2", v1beta1.PhaseReady)}, nil)
	pools := held.Pools(of(3), runs, nodes, in)
	if len(pools) != 1 || pools[0].Name != "disks" || pools[0].Path != "/var/lib/holdfast/pools/disks" || pools[0].Devices.Count != 2 || pools[0].Volumes != 1 {
		t.Fatalf("held are %+v", pools)
	}
	for count, hides := range map[int32]bool{0: true, 1: true, 2: false, 4: false} {
		got, hidden, err := held.Effective(of(count), runs, pools, nodes)
		check.OK(t, err)
		if (len(hidden) > 0) != hides || hides && (hidden[0].Field != "spec.pools[1].devices.count" || len(render.Pools(got)) != 4) {
			t.Errorf("%d devices: %+v, of %+v", count, hidden, got.Spec.Pools)
		}
	}
	c := of(3)
	c.Spec.Pools[1].Devices.Model = "Y"
	if _, hidden, err := held.Effective(c, runs, pools, nodes); err != nil || len(hidden) != 1 || hidden[0].Field != "spec.pools[1].devices" {
		t.Errorf("other devices: %+v, %v", hidden, err)
	}
}

var notC = []core.NodeSelectorTerm{{MatchFields: []core.NodeSelectorRequirement{{Key: "metadata.name", Operator: core.NodeSelectorOpNotIn, Values: []string{"c"}}}}}

// inCeph is a pool that has a Ceph cluster.
func inCeph() v1beta1.PoolSpec {
	return v1beta1.PoolSpec{Name: "block", Engine: v1beta1.EngineRBD, Ceph: &v1beta1.CephSpec{FSID: "f", Pool: "rbd", Monitors: []string{"v2:10.0.0.1:3300"}}}
}

func TestEffective_VolumesInACephClusterAreNotHidden(t *testing.T) {
	carried := func() *render.Carried {
		return &render.Carried{Pools: []v1beta1.PoolSpec{{Name: "files", Path: "/srv/files"}, inCeph()}}
	}
	in := held.Count([]*v1beta1.Volume{
		volume("v1", "block.ceph.holdfast.dev", "block", v1beta1.PhaseReady), volume("v2", "block.ceph.holdfast.dev", "block", v1beta1.PhaseUnreachable),
	}, nil)
	pools := held.Pools(&v1beta1.StorageCluster{}, carried(), nodes, in)
	if len(pools) != 1 || pools[0].Path != "ceph:f/pool/rbd/" || pools[0].Engine != v1beta1.EngineRBD || pools[0].Volumes != 2 || pools[0].Nodes[0] != "block.ceph.holdfast.dev" {
		t.Fatalf("held are %+v", pools)
	}
	for what, test := range map[string]struct {
		change func(*v1beta1.StorageCluster)
		says   []string // nothing where it is carried out
	}{
		"other monitors":     {func(c *v1beta1.StorageCluster) { c.Spec.Pools[1].Ceph.Monitors = []string{"v2:10.0.0.2:3300"} }, nil},
		"other nodes":        {func(c *v1beta1.StorageCluster) { c.Spec.NodeSelectorTerms = only("none") }, nil},
		"no pool on nodes":   {func(c *v1beta1.StorageCluster) { c.Spec.Pools = c.Spec.Pools[1:] }, nil},
		"no pool":            {func(c *v1beta1.StorageCluster) { c.Spec.Pools = c.Spec.Pools[:1] }, []string{"pool block holds 2 volumes on Ceph pool block"}},
		"another part of it": {func(c *v1beta1.StorageCluster) { c.Spec.Pools[1].Ceph.Namespace = "n" }, []string{"spec.pools[1].ceph", "ceph:f/pool/rbd/n"}},
		"another cluster":    {func(c *v1beta1.StorageCluster) { c.Spec.Pools[1].Ceph.FSID = "g" }, []string{"ceph:g/pool/rbd/"}},
		"a directory":        {func(c *v1beta1.StorageCluster) { c.Spec.Pools[1] = v1beta1.PoolSpec{Name: "block"} }, []string{"spec.pools[1].path"}},
		"no driver":          {func(c *v1beta1.StorageCluster) { c.Spec.CSI.Enabled = new(bool) }, []string{"spec.csi.enabled"}},
	} {
		t.Run(what, func(t *testing.T) {
			c := &v1beta1.StorageCluster{}
			c.Spec.Pools = carried().Pools
			test.change(c)
			got, hidden, err := held.Effective(c, carried(), pools, nodes)
			check.OK(t, err)
			if refused := len(test.says) > 0; refused != (len(hidden) > 0) || refused == (got == c) {
				t.Fatalf("it hides %+v", hidden)
			}
			for _, part := range test.says {
				if text := held.Text(hidden); !strings.Contains(text, part) {
					t.Errorf("%q is not in %s", part, text)
				}
			}
			if len(hidden) > 0 && (len(got.Spec.Pools) != 2 || got.Spec.Pools[1].Ceph == nil || got.Spec.Pools[1].Ceph.FSID != "f") {
				t.Errorf("what is carried out is %+v", got.Spec)
			}
		})
	}
}

func TestText_NamesAFewNodesAndCountsTheRest(t *testing.T) {
	text := held.Text([]held.Hidden{{Field: "spec.csi.enabled", Why: "why", Pool: v1beta1.HeldPool{Name: "p", Volumes: 1, Nodes: []string{"a", "b", "c", "d", "e", "f", "g"}}}})
	if !strings.Contains(text, "1 volume on nodes a, b, c, d, e, and 2 more") || !strings.HasSuffix(text, ": kubectl annotate storageclusters.holdfast.dev --all --overwrite holdfast.dev/allow-hiding=p") {
		t.Error(text)
	}
}
