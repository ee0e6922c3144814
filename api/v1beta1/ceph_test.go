package v1beta1

import "testing"

func TestCephPool_IsANodeOfItsOwn(t *testing.T) {
	if node := NodeOfCephPool("fast"); node != "fast.ceph.holdfast.dev" || CephPoolOf(node) != "fast" || !IsSite(node) || ServerOf(node) != "" {
		t.Errorf("it is %s, of pool %q", node, CephPoolOf(node))
	}
	for _, node := range []string{"", "fast", "a.b.ceph.holdfast.dev", "ceph.holdfast.dev", "shop.a.nfs.holdfast.dev", "fast.ceph.holdfast.dev.example"} {
		if pool := CephPoolOf(node); pool != "" {
			t.Errorf("%q is pool %q", node, pool)
		}
	}
	if !IsSite("shop.a.nfs.holdfast.dev") || IsSite("worker-1") {
		t.Error("NFS servers are sites, and nodes are none")
	}
}

func TestCephSpec_PlaceTellsPartsOfAClusterApart(t *testing.T) {
	places := map[string]CephSpec{}
	for _, c := range []CephSpec{
		{FSID: "f", Pool: "a"}, {FSID: "g", Pool: "a"}, {FSID: "f", Pool: "b"}, {FSID: "f", Filesystem: "a"}, {FSID: "f", Pool: "a", Namespace: "n"}, {FSID: "f", Filesystem: "a", Namespace: "n"},
	} {
		if other, taken := places[c.Place()]; taken {
			t.Errorf("%+v and %+v are both at %s", c, other, c.Place())
		}
		places[c.Place()] = c
	}
	a, b := CephSpec{FSID: "f", Pool: "a", Monitors: []string{"x"}, User: "u"}, CephSpec{FSID: "f", Pool: "a", DataPool: "wide"}
	if a.Place() != b.Place() {
		t.Errorf("%s and %s are one place", a.Place(), b.Place())
	}
}
