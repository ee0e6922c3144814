package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// serve makes an NFSServer of the test's own on the home node, and waits until it serves. Only other nodes have a
// kernel with a client.
func serve(t *testing.T, s *kube.Space) (pod string) {
	t.Helper()
	return s.Serve("shared", s.Home, storage())
}

// storage is the spec of a server with a claim of its own. A second kernel on a busy machine needs more than a quarter of a
// minute to take its locks back.
func storage() map[string]any {
	return map[string]any{
		"storage": map[string]any{"storageClassName": "holdfast", "size": "3Gi"}, "reclaimPolicy": "Delete", "gracePeriod": "60s",
	}
}

// doors are the two kinds of classes that lead to the test's server.
var doors = map[string]func(t *testing.T, s *kube.Space, parameters ...string) string{"csi": mounted, "plain": plain}

// mounted is the class of volumes that the driver mounts.
func mounted(t *testing.T, s *kube.Space, parameters ...string) string {
	t.Helper()
	return class(t, s, func(c *storagev1.StorageClass) {
		c.VolumeBindingMode = new(storagev1.VolumeBindingImmediate)
		c.Parameters = map[string]string{"shared": "true", "nfsServer": s.Namespace + "/shared"}
		say(c, parameters)
	})
}

func say(c *storagev1.StorageClass, parameters []string) {
	for i := 0; i+1 < len(parameters); i += 2 {
		c.Parameters[parameters[i]] = parameters[i+1]
	}
}

// plain is the class of NFS volumes that the kubelet mounts.
func plain(t *testing.T, s *kube.Space, parameters ...string) string {
	t.Helper()
	return class(t, s, func(c *storagev1.StorageClass) {
		c.Provisioner, c.AllowVolumeExpansion, c.Parameters = "nfs.holdfast.dev", nil, map[string]string{"nfsServer": s.Namespace + "/shared"}
		c.VolumeBindingMode = new(storagev1.VolumeBindingImmediate)
		say(c, parameters)
	})
}

var byMany = kube.AccessMode(corev1.ReadWriteMany)

// nodesWithClients are those whose kernel mounts NFS; a test that needs more of them takes the same twice.
func nodesWithClients(t *testing.T) []string {
	t.Helper()
	nodes := allNodes(t)
	second(t, nodes)
	return nodes[1:]
}

func TestNFS_FileIsWrittenByPodsOfManyNodesAtOnceAndDeletedWithItsClaim(t *testing.T) {
	t.Parallel()
	s := begin(t)
	nodes := nodesWithClients(t)
	server := serve(t, s)
	for door, class := range doors {
		t.Run(door, func(t *testing.T) { // one after the other: programs are slow to start in a second kernel
			s := s.In(t)
			writtenByMany(t, s, nodes, server, door, class(t, s))
		})
	}
}

func writtenByMany(t *testing.T, s *kube.Space, nodes []string, server, claim, class string) {
	t.Helper()
	s.Claim(claim, "32Mi", byMany, kube.OfClass(class))
	volume := s.Volume(claim)
	if size := volume.Spec.Capacity.Storage().Value(); size < 32<<20 {
		t.Errorf("the volume has %d bytes", size)
	}
	const writers, lines = 3, 10
	var names []string
	for i := range writers {
		name := fmt.Sprint(claim, "-", i)
		names = append(names, name)
		s.Pod(name, kube.Mount(claim, "/data"), kube.OnNode(nodes[i%len(nodes)]), kube.Once, kube.Env("NAME", fmt.Sprint(i)), kube.Script(fmt.Sprintf(`
			for n in $(seq %d); do
				# The kernel itself asks again after 1, 2, 4 and up to 30 seconds.
				until flock -n /data/lock sh -c "echo $NAME-$n >>/data/log"; do sleep 1; done
			done
			flock /data/lock sh -c "echo $NAME >>/data/done"
			# Opening a file asks the server, looking for one does not.
			until test $(wc -l </data/done) = 3; do sleep 2; done
			sync; md5sum </data/log; sort -u /data/log | wc -l
			test $NAME = 0 || exit 0
			if dd if=/dev/zero of=/data/zero bs=1M count=40 conv=fsync 2>/dev/null; then echo no limit; fi
			df -kP /data | awk 'NR == 2 && $2 <= 32768 && $4 <= 1024 { print "full" }'
			rm /data/zero; echo more >>/data/more; sync /data/more; echo writable`, lines)))
	}
	var said, at []string
	for _, name := range names {
		at = append(at, s.Succeeded(name).Spec.NodeName)
		said = append(said, s.Log(name))
	}
	var limited bool
	if said[0], limited = strings.CutSuffix(said[0], "full\nwritable\n"); !limited {
		t.Errorf("a pod that writes more than the claim has found %q", said[0])
	}
	if sums := slices.Compact(slices.Clone(said)); len(sums) != 1 || !strings.HasSuffix(strings.TrimSpace(said[0]), fmt.Sprint("\n", writers*lines)) {
		t.Errorf("the pods found %q; each must find the same %d lines", said, writers*lines)
	}
	slices.Sort(at)
	if at = slices.Compact(at); len(at) != min(len(nodes), writers) {
		t.Errorf("of the nodes %v the pods ran on %v alone", nodes, at)
	}
	for _, name := range names {
		s.DeletePod(name)
	}
	s.DeleteClaim(claim)
	kube.AwaitNone(s, s.Client.CoreV1().PersistentVolumes(), kube.Named(volume.Name), "the volume")
	id := kube.VolumeID(volume)
	if id == "" {
		t.Fatalf("PersistentVolume %s does not say which volume it is", volume.Name)
	}
	kube.AwaitNone(s, s.Holdfast("volumes"), kube.Named(id), "its object")
	events, err := s.Client.CoreV1().Events(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + id})
	check.Report(t, err)
	for _, e := range events.Items {
		if e.Reason == v1beta1.ReasonForgotten || e.Reason == v1beta1.ReasonDamaged {
			t.Errorf("a volume that was deleted as it should be has the event %s: %s", e.Reason, e.Message)
		}
	}
	if left := s.Exec(server, "sh", "-c", "ls /data/pool/volumes /run/holdfast/nfs/exports"); strings.Contains(left, id) {
		t.Errorf("on the server is left: %s", left)
	}
}
