package e2e

import (
	"context"
	"net"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// disposed makes a claim of a class with onDelete, writes to it, deletes it, and returns its PersistentVolume, which an
// event named, and the name of its volume.
func disposed(t *testing.T, s *kube.Space, node, onDelete, reason string) (*corev1.PersistentVolume, string) {
	t.Helper()
	s.Claim(onDelete, "64Mi", byMany, kube.OfClass(plain(t, s, "onDelete", onDelete)))
	s.Run("writer-"+onDelete, kube.Mount(onDelete, "/data"), kube.OnNode(node), kube.Script("echo what is kept by "+onDelete+" >/data/file; sync /data/file"))
	s.DeletePod("writer-" + onDelete)
	volume := s.Volume(onDelete)
	s.DeleteClaim(onDelete)
	s.AwaitClusterEvent(volume.Name, reason)
	kube.AwaitNone(s, s.Client.CoreV1().PersistentVolumes(), kube.Named(volume.Name), "the volume")
	return volume, kube.VolumeID(volume)
}

// discard deletes what is kept as the event about it says, and the end of the test does if that fails.
func discard(t *testing.T, s *kube.Space, kind, name string) (now func()) {
	t.Helper()
	remove := []string{kind, "delete", name, "--yes", "--reason", "the test is over", "--timeout", kube.Patience.String()}
	s.BeforeEnd(func(ctx context.Context) error {
		if _, err := s.Holdfast(kind).Get(ctx, name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			return nil
		}
		_, err := s.RunHoldfast(t, remove...)
		return err
	})
	return func() {
		t.Helper()
		s.MustRunHoldfast(t, remove...)
		kube.AwaitNone(s, s.Holdfast(kind), kube.Named(name), name+" of "+kind)
	}
}

func TestNFSServer_DataOfPlainVolumesIsRetainedOrArchivedByClass(t *testing.T) {
	hostfs.Long(t)
	t.Parallel()
	s := begin(t)
	node := nodesWithClients(t)[0]
	server := serve(t, s)
	s.AllowNFSMounts()

	kept, keptID := disposed(t, s, node, "retain", "Retained")
	drop := discard(t, s, "volumes", keptID)
	if found := s.Run("reader", kube.MountNFS(kept.Spec.NFS.Server, kept.Spec.NFS.Path, "/data"), kube.OnNode(node), kube.Script("cat /data/file")); found != "what is kept by retain\n" {
		t.Errorf("in the volume that is retained is %q", found)
	}
	s.DeletePod("reader")

	_, archived := disposed(t, s, node, "archive", "Archived")
	kube.AwaitNone(s, s.Holdfast("volumes"), kube.Named(archived), "the object of the volume")
	snapshot := "archived-" + archived
	dropArchive := discard(t, s, "snapshots", snapshot)
	kube.AwaitOne(s, s.Holdfast("snapshots"), snapshot, "to be ready", func(o *unstructured.Unstructured) (bool, error) {
		phase, _, err := unstructured.NestedString(o.Object, "status", "phase")
		return phase == "Ready", err
	})
	exports := func() string { return s.Exec(server, "ls", "/run/holdfast/nfs/exports", "/data/pool/volumes") }
	if now := exports(); strings.Contains(now, archived) || !strings.Contains(now, keptID) {
		t.Errorf("retained is %s and archived %s, and the server has %s", keptID, archived, now)
	}
	in := func(what string) string {
		return s.Exec(server, "sh", "-c", "grep -rl 'what is kept by "+what+"' /data/pool/volumes /data/pool/snapshots || test $? = 1")
	}
	if found := in("archive"); !strings.Contains(found, "snapshots/"+snapshot) {
		t.Errorf("what was archived is found in %q", found)
	}

	drop()
	dropArchive()
	if now := exports(); strings.Contains(now, keptID) {
		t.Errorf("the server still has %s", now)
	}
	for _, what := range []string{"retain", "archive"} {
		if found := in(what); found != "" {
			t.Errorf("what was kept by %s and was deleted is found in %q", what, found)
		}
	}
}
