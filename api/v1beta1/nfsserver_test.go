package v1beta1

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestNFSServer_IsFoundByTheNameOfItsNode(t *testing.T) {
	s := &NFSServer{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "data"}}
	if s.NodeName() != "team.data.nfs.holdfast.dev" {
		t.Errorf("its node is %s", s.NodeName())
	}
	if namespace, name, is := ParseNFSNode(s.NodeName()); namespace != "team" || name != "data" || !is {
		t.Errorf("it is read as %s/%s, %v", namespace, name, is)
	}
	for _, node := range []string{
		"", "node1", "nfs.holdfast.dev", ".nfs.holdfast.dev", "team.nfs.holdfast.dev", "team..nfs.holdfast.dev", ".data.nfs.holdfast.dev",
		"team.a.b.nfs.holdfast.dev", "team.dataxnfs.holdfast.dev", "team.data.nfs.holdfast.dev.more", "nfs.example.com",
	} {
		if namespace, name, is := ParseNFSNode(node); is || namespace != "" || name != "" {
			t.Errorf("%q is read as the server %s/%s", node, namespace, name)
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

func TestNFSServer_IsRecognizedByTheNameOfItsNode(t *testing.T) {
	for node, server := range map[string]string{"shop.files.nfs.holdfast.dev": "shop/files", "nfs.shop.files": "", "node-a": "", "files.nfs.holdfast.dev": "", "": ""} {
		if got := ServerOf(node); got != server {
			t.Errorf("%q is the server %q, want %q", node, got, server)
		}
		if server != "" && NodeOfServer(server) != node {
			t.Errorf("server %s is the node %s, want %s", server, NodeOfServer(server), node)
		}
	}
}
