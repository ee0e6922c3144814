package fencing

import (
	"slices"
	"strconv"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	client "github.com/holdfast-storage/holdfast/api/client/clientset"
	listers "github.com/holdfast-storage/holdfast/api/client/listers/api/v1beta1"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/miniapi"
)

// silence is of all nodes that it has.
type silence map[string]bool

func (s silence) WhyDown(node string) string {
	if s[node] {
		return "silent"
	}
	return ""
}

func (s silence) SilentFor(string) time.Duration { return 0 }

// seen is what a controller with these objects in its caches observes of node a.
func seen(t *testing.T, silent silence, all ...runtime.Object) observed {
	t.Helper()
	index := func() cache.Indexer { return cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}) }
	clusters, storageNodes, nodes := index(), index(), index()
	for _, o := range all {
		into := storageNodes
		switch o.(type) {
		case *v1beta1.StorageCluster:
			into = clusters
		case *core.Node:
			into = nodes
		}
		check.OK(t, into.Add(o))
	}
	r := &Controller{
		Config: Config{Liveness: silent}, clusters: listers.NewStorageClusterLister(clusters), storageNodes: listers.NewStorageNodeLister(storageNodes),
		nodes: corelisters.NewNodeLister(nodes),
	}
	return check.Got(r.observe(t.Context(), "a"))(t)
}

func storageNode(name string) *v1beta1.StorageNode {
	return &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func TestObserve_StorageClusterThatIsGoneOrUnreadableIsNoConfiguration(t *testing.T) {
	c := &v1beta1.StorageCluster{ObjectMeta: metav1.ObjectMeta{Name: "holdfast"}, Spec: v1beta1.StorageClusterSpec{Fencing: v1beta1.FencingSpec{Pods: v1beta1.FenceNone}}}
	if o := seen(t, nil, storageNode("a"), c); !o.configured || !o.disabled {
		t.Errorf("with one: %+v", o)
	}
	unreadable := c.DeepCopy()
	unreadable.DecodeError = "spec.pools"
	if o := seen(t, nil, storageNode("a"), unreadable); o.configured {
		t.Errorf("with one that cannot be read: %+v", o)
	}
	if o := seen(t, nil, storageNode("a")); o.configured {
		t.Errorf("without one: %+v", o)
	}
}

func TestObserve_NodesThatAreKnownToBeLostAreNoEvidenceOfAFault(t *testing.T) {
	host := func(name string, taints ...core.Taint) *core.Node {
		return &core.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: core.NodeSpec{Taints: taints}}
	}
	fenced := storageNode("fenced")
	fenced.Spec.Fence = &v1beta1.Fence{Reason: v1beta1.ReasonNodeDown}
	for name, test := range map[string]struct {
		all           []runtime.Object
		nodes, silent int
	}{
		"this one and two that live":     {nil, 3, 1},
		"one whose Node was deleted":     {[]runtime.Object{storageNode("removed")}, 3, 1},
		"one that is declared lost":      {[]runtime.Object{storageNode("tainted"), host("tainted", core.Taint{Key: core.TaintNodeOutOfService})}, 3, 1},
		"one that is shut out":           {[]runtime.Object{fenced, host("fenced")}, 3, 1},
		"one that is silent by itself":   {[]runtime.Object{storageNode("silent"), host("silent")}, 4, 2},
		"a pool in a Ceph cluster":       {[]runtime.Object{storageNode(v1beta1.NodeOfCephPool("removed"))}, 3, 1},
		"a Node that has no StorageNode": {[]runtime.Object{host("silent")}, 3, 1},
	} {
		all := slices.Concat(test.all, []runtime.Object{storageNode("a"), storageNode("b"), storageNode("c"), host("b"), host("c")})
		silent := silence{"a": true, "removed": true, "tainted": true, "fenced": true, "silent": true}
		for _, mine := range []runtime.Object{host("a"), storageNode("spare")} { // it counts without a Node too
			if o := seen(t, silent, slices.Concat(all, []runtime.Object{mine})...); o.nodes != test.nodes || o.silentNodes != test.silent {
				t.Errorf("%s: %d of %d nodes are silent, want %d of %d", name, o.silentNodes, o.nodes, test.silent, test.nodes)
			}
		}
	}
}

func TestObserve_OldestNodesThatAreGoneAreSurplusInAPoolThatListsTooMany(t *testing.T) {
	pool := storageNode(v1beta1.NodeOfCephPool("block"))
	cluster := &v1beta1.StorageCluster{ObjectMeta: metav1.ObjectMeta{Name: "holdfast"}, Spec: v1beta1.StorageClusterSpec{Pools: []v1beta1.PoolSpec{
		{Name: "block", Ceph: &v1beta1.CephSpec{FSID: cluster1}},
	}}}
	list := func(node string, age time.Duration, expire bool) {
		at := metav1.NewMicroTime(start.Add(-age))
		pool.Spec.Blocklist = append(pool.Spec.Blocklist, v1beta1.BlocklistRequest{Node: node, RequestedAt: at, Expire: expire})
	}
	all := []runtime.Object{pool, cluster, &core.Node{ObjectMeta: metav1.ObjectMeta{Name: "host"}}, storageNode("stored")}
	expect := func(want ...string) {
		t.Helper()
		if o := seen(t, nil, all...); len(o.sites) != 1 || !slices.Equal(o.sites[0].surplus, want) {
			t.Errorf("with %d entries: %+v, want %v", len(pool.Spec.Blocklist), o.sites, want)
		}
	}
	for i := range mostListed - 2 {
		list("gone"+strconv.Itoa(i), time.Hour, false)
	}
	list("host", 9*time.Hour, false)
	list("stored", 8*time.Hour, false)
	list("expires", 10*time.Hour, true)
	expect()
	list("old", 6*time.Hour, false)
	list("older", 7*time.Hour, false)
	expect("older", "old")
}

func TestObserve_ClaimUsesOnlyThePersistentVolumeInACephClusterThatIsBoundToIt(t *testing.T) {
	claim := &core.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "2"}}
	volumes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for name, node := range map[string]string{"in-ceph": v1beta1.NodeOfCephPool("block"), "local": "a"} {
		check.OK(t, volumes.Add(&v1beta1.Volume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.VolumeSpec{Node: node}}))
	}
	for name, test := range map[string]struct {
		change func(*core.PersistentVolumeSpec)
		want   bool
	}{
		"its own":                           {func(*core.PersistentVolumeSpec) {}, true},
		"that of an earlier claim":          {func(s *core.PersistentVolumeSpec) { s.ClaimRef.UID = "1" }, false},
		"that of another name":              {func(s *core.PersistentVolumeSpec) { s.ClaimRef.Name = "other" }, false},
		"that of another namespace":         {func(s *core.PersistentVolumeSpec) { s.ClaimRef.Namespace = "other" }, false},
		"one that is not bound yet":         {func(s *core.PersistentVolumeSpec) { s.ClaimRef.UID = "" }, false},
		"one that no claim has":             {func(s *core.PersistentVolumeSpec) { s.ClaimRef = nil }, false},
		"one on the disk of a node":         {func(s *core.PersistentVolumeSpec) { s.CSI.VolumeHandle = "local" }, false},
		"one whose volume is gone":          {func(s *core.PersistentVolumeSpec) { s.CSI.VolumeHandle = "gone" }, false},
		"one of another driver":             {func(s *core.PersistentVolumeSpec) { s.CSI.Driver = "example.com" }, false},
		"one that is in no cluster of Ceph": {func(s *core.PersistentVolumeSpec) { s.CSI = nil }, false},
	} {
		pv := &core.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
		pv.Spec.ClaimRef = &core.ObjectReference{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}
		pv.Spec.CSI = &core.CSIPersistentVolumeSource{Driver: v1beta1.DriverName, VolumeHandle: "in-ceph"}
		test.change(&pv.Spec)
		r := &Controller{volumes: listers.NewVolumeLister(volumes)}
		r.Kubernetes, r.Driver = fake.NewClientset(pv), v1beta1.DriverName
		if got, err := r.isInCeph(t.Context(), "pv", claim); err != nil || got != test.want {
			t.Errorf("%s: %t, %v, want %t", name, got, err, test.want)
		}
	}
}

func TestRequest_OfALaterFenceStaysAlsoWhereTheClockWasBehind(t *testing.T) {
	ours := client.NewForConfigOrDie(miniapi.New(t).Config())
	early, late := metav1.NewMicroTime(start), metav1.NewMicroTime(start.Add(time.Minute))
	pool := storageNode("block.ceph.holdfast.dev")
	pool.Spec.Blocklist = []v1beta1.BlocklistRequest{{Node: "a", Addresses: []v1beta1.CephAddress{mine}, RequestedAt: early}}
	check.Got(ours.HoldfastV1beta1().StorageNodes().Create(t.Context(), pool, metav1.CreateOptions{}))(t)
	r := &Controller{Config: Config{Client: ours}}
	for _, test := range []struct {
		of   []metav1.MicroTime
		left int
	}{{[]metav1.MicroTime{late}, 1}, {nil, 1}, {[]metav1.MicroTime{late, early}, 0}} {
		check.OK(t, r.writeRequest(t.Context(), "a", request{site: pool, of: test.of}))
		is, err := ours.HoldfastV1beta1().StorageNodes().Get(t.Context(), pool.Name, metav1.GetOptions{})
		if err != nil || len(is.Spec.Blocklist) != test.left {
			t.Errorf("what ends the fence of %s leaves %+v, %v", test.of, is.Spec.Blocklist, err)
		}
	}
}
