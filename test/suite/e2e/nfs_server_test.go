package e2e

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// amend merges into the spec of an NFSServer.
func amend(t *testing.T, s *kube.Space, server string, spec map[string]any) {
	t.Helper()
	patch := check.Got(json.Marshal(map[string]any{"spec": spec}))(t)
	check.Got(s.Holdfast("nfsservers").Namespace(s.Namespace).Patch(t.Context(), server, types.MergePatchType, patch, metav1.PatchOptions{}))(t)
}

// A pod with a volume needs the API server as little as the server does.
func TestNFSFault_ClientsContinueThoughTheServerIsKilledWhileTheAPIServerIsSilent(t *testing.T) {
	hostfs.Long(t)
	s := begin(t) // not in parallel: no other test can do without
	nodes := nodesWithClients(t)
	server := serve(t, s)
	pods := hold(t, s, nodes[0], byBothDoors(t, s))
	running := s.Processes(s.Ready(server), "ganesha.nfsd")
	goesOn(t, s, pods, func() {
		resume := s.Suspend("kube-apiserver")
		defer resume()
		killed := running()
		for _, pid := range killed {
			check.Report(t, unix.Kill(pid, unix.SIGKILL))
		}
		late := time.After(kube.Patience)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			now := running()
			if len(killed) > 0 && len(now) > 0 && !slices.Contains(killed, now[0]) {
				return
			}
			select {
			case <-late:
				t.Fatalf("the server %v was killed, and it is %v", killed, now)
			case <-tick.C:
			}
		}
	})
}

// serveDirectories starts a server whose volumes are directories, on a node whose kernel counts by projects.
func serveDirectories(t *testing.T, s *kube.Space, node string) (pod string) {
	t.Helper()
	store := class(t, s, func(c *storagev1.StorageClass) {
		c.Parameters = map[string]string{"csi.storage.k8s.io/fstype": "xfs"}
		c.MountOptions = []string{"prjquota"}
	})
	return s.Serve("shared", node, map[string]any{
		"storage": map[string]any{"storageClassName": store, "size": "1Gi"}, "reclaimPolicy": "Delete", "engine": "Directory", "gracePeriod": "60s",
	})
}

func TestNFSServer_OfDirectoriesEnforcesSizesByQuota(t *testing.T) {
	hostfs.Long(t)
	t.Parallel()
	s := begin(t)
	node := nodesWithClients(t)[0]
	server := serveDirectories(t, s, node)
	for door, class := range byBothDoors(t, s) {
		s.Claim(door, "32Mi", byMany, kube.OfClass(class))
		said := s.Run(door, kube.Mount(door, "/data"), kube.OnNode(node), kube.AsRoot, kube.Script(`
			if dd if=/dev/zero of=/data/zero bs=1M count=40 conv=fsync 2>/dev/null; then echo no limit; else echo limited; fi
			rm /data/zero; echo more >/data/more; sync /data/more; echo writable`))
		if said != "limited\nwritable\n" {
			t.Errorf("a pod that writes more than the claim of door %s has says %q", door, said)
		}
	}
	if images := s.Exec(server, "sh", "-c", "ls /data/pool/volumes/*/ | grep -c image || true"); strings.TrimSpace(images) != "0" {
		t.Errorf("%s volumes are images", strings.TrimSpace(images))
	}
}
