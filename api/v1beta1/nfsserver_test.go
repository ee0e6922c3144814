package v1beta1

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestNFSServer_IsFoundByTheNameOfItsNode(t *testing.T) {
	s := &NFSServer{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "data"}}
	const node = "team.data.nfs.holdfast.dev"
	if s.NodeName() != node || NodeOfServer("team/data") != node || ServerOf(node) != "team/data" {
		t.Errorf("its node is %s, or %s, which is of %q", s.NodeName(), NodeOfServer("team/data"), ServerOf(node))
	}
	if namespace, name, is := ParseNFSNode(node); namespace != "team" || name != "data" || !is {
		t.Errorf("it is read as %s/%s, %v", namespace, name, is)
	}
	for _, node := range []string{
		"", "node1", "nfs.holdfast.dev", ".nfs.holdfast.dev", "team.nfs.holdfast.dev", "team..nfs.holdfast.dev", ".data.nfs.holdfast.dev",
		"team.a.b.nfs.holdfast.dev", "team.dataxnfs.holdfast.dev", "team.data.nfs.holdfast.dev.more", "nfs.example.com", "nfs.shop.files",
	} {
		if namespace, name, is := ParseNFSNode(node); is || namespace+name+ServerOf(node) != "" {
			t.Errorf("%q is read as the server %s/%s, or %q", node, namespace, name, ServerOf(node))
		}
	}
}

func TestNFSServer_AddressHasNoPort(t *testing.T) {
	for endpoint, want := range map[string]string{"": "", "10.0.0.9:2049": "10.0.0.9", "[fd00::9]:2049": "fd00::9", "10.0.0.9": ""} {
		if got := (&NFSServerStatus{Endpoint: endpoint}).Address(); got != want {
			t.Errorf("of %q it is %q", endpoint, got)
		}
	}
}

func TestNFSServer_PublishedClaimIsReadOnly(t *testing.T) {
	published := &NFSPublication{ClaimName: "photos"}
	for want, all := range map[NFSAccess][]NFSServerSpec{
		NFSReadWrite: {{}, {Exports: NFSExports{Access: NFSReadWrite}}},
		NFSReadOnly:  {{Publish: published}, {Exports: NFSExports{Access: NFSReadOnly}}},
		NFSNone:      {{Exports: NFSExports{Access: NFSNone}}, {Publish: published, Exports: NFSExports{Access: NFSNone}}},
	} {
		for _, spec := range all {
			if got := spec.Access(); got != want {
				t.Errorf("of %+v it is %s, want %s", spec, got, want)
			}
		}
	}
}

func TestNFSServer_ColumnsFollowTheNumbers(t *testing.T) {
	s := NFSServerStatus{Capacity: bytes(10 << 30), Columns: NFSServerColumns{Capacity: "old", Promised: "old"}}
	s.SetColumns()
	if want := (NFSServerColumns{Capacity: "10Gi"}); s.Columns != want {
		t.Errorf("they are %+v", s.Columns)
	}
}
