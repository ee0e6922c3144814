package e2e

import (
	"net"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// onlyReads reads a file, and tries to write in each way that there is.
const onlyReads = `
	cat /data/file
	refused() { if "$@" 2>/dev/shm/said; then echo "done: $*"; fi; grep -q 'Read-only file system' /dev/shm/said || cat /dev/shm/said; }
	refused touch /data/new
	refused sh -c 'echo more >>/data/file'
	refused rm /data/file
	echo read only`

func TestNFSServer_ThatPublishesAClaimServesItReadOnly(t *testing.T) {
	hostfs.Long(t)
	t.Parallel()
	s := begin(t)
	nodes := nodesWithClients(t)
	s.Claim("files", "64Mi")
	s.Pod("editor", kube.Mount("files", "/data"), kube.Script("echo first >/data/file; sync /data/file; sleep infinity"))
	s.Ready("editor")
	s.Serve("published", s.Home, map[string]any{"publish": map[string]any{"claimName": "files", "name": "docs"}})
	s.AllowNFSMounts()
	server, path, access := published(t, s)
	if path != "/docs" || access != "ReadOnly" {
		t.Errorf("the server says that clients mount %q and may %q", path, access)
	}
	for _, node := range nodes {
		s.Pod("reader-"+node, kube.MountNFS(server, path, "/data"), kube.OnNode(node), kube.Script(onlyReads+"; sleep infinity"))
	}
	for _, node := range nodes {
		s.Ready("reader-" + node)
		if said := s.FirstLines("reader-"+node, 2); strings.Join(said, " ") != "first read only" {
			t.Errorf("the reader on %s says %q", node, said)
		}
	}
	// Who has the claim itself goes on writing, and readers see it.
	s.Exec("editor", "sh", "-ec", "echo second >/data/file; sync /data/file")
	for _, node := range nodes {
		s.Exec("reader-"+node, "sh", "-c", "until grep -q second /data/file; do sleep 0.2; done")
	}
	// Another pod of the server is the same server.
	s.DeletePod("nfs-published-0")
	s.Ready("nfs-published-0")
	s.Exec("editor", "sh", "-ec", "echo third >/data/file; sync /data/file")
	for _, node := range nodes {
		s.Exec("reader-"+node, "sh", "-c", "until grep -q third /data/file; do sleep 0.2; done")
	}
}

// published is what the server "published" says of how it is used.
func published(t *testing.T, s *kube.Space) (server, path, access string) {
	t.Helper()
	found, err := s.Holdfast("nfsservers").Namespace(s.Namespace).Get(t.Context(), "published", metav1.GetOptions{})
	check.OK(t, err)
	said := func(field string) string {
		value, _, _ := unstructured.NestedString(found.Object, "status", field)
		return value
	}
	server, _, err = net.SplitHostPort(said("endpoint"))
	if err != nil {
		t.Fatalf("the server says %v: %v", found.Object["status"], err)
	}
	return server, said("path"), said("access")
}
