package operator

import (
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// transferPools adds a second pool of images and one of directories to a node whose kernel has quotas of directories, and a
// class of each, and returns the node.
func (a *admin) transferPools() (node string) {
	a.t.Helper()
	_, node = twoNodes(a.t)
	there := []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}}}
	a.change(func(spec *v1beta1.StorageClusterSpec) {
		if len(spec.Pools) == 0 {
			spec.Pools = []v1beta1.PoolSpec{{Name: "default"}}
		}
		path := filepath.Join(a.directory(), "pools", "transfer")
		spec.Pools = append(spec.Pools,
			v1beta1.PoolSpec{Name: "second", Path: path + "-second", Reserved: "0", Overcommit: "2", NodeSelectorTerms: there},
			v1beta1.PoolSpec{Name: "tree", Path: path + "-tree", Engine: v1beta1.EngineDirectory, Reserved: "0", Overcommit: "2", NodeSelectorTerms: there})
		spec.StorageClasses = []v1beta1.StorageClassSpec{
			{Name: "holdfast", Default: true, Pool: "default"}, {Name: "e2e-second", Pool: "second"}, {Name: "e2e-tree", Pool: "tree"},
		}
	})
	a.awaitPools(node, "default", "second", "tree")
	return node
}

// content makes files of which a copy must keep more than the bytes, and listing says what they are. The group and its rights
// are set for each pod that mounts a volume, so the file has them from the beginning.
const (
	content = `mkdir -p /data/a/b; head -c 20000000 /dev/urandom >/data/a/file; ln /data/a/file /data/a/b/hard; ln -s ../file /data/a/b/soft
		chmod 660 /data/a/file; mkfifo /data/fifo; truncate -s 30000000 /data/sparse; echo end >>/data/sparse; sync; `
	listing = `cd /data; find . -mindepth 1 -path ./lost+found -prune -o -mindepth 1 -print | sort | while read -r f; do stat -c '%n %F %u %g %Y' "$f"; done
		find . -path ./lost+found -prune -o -type f -print | sort | xargs sha256sum; readlink a/b/soft; stat -c %a a/file; test a/file -ef a/b/hard; du -k sparse | awk '{ print ($1 < 10000) }'`
)

func TestTransfer_FilesGoFromPoolToPoolOfANode(t *testing.T) {
	hostfs.Long(t)
	a := administer(t)
	node := a.transferPools()
	s := begin(t)
	s.Claim("data", "256Mi")
	s.Pod("writer", kube.Mount("data", "/data"), kube.OnNode(node))
	s.Ready("writer")
	written := s.Exec("writer", "sh", "-ec", content+listing)
	s.Snapshot("then", "data")
	from := []kube.ClaimOption{kube.From("VolumeSnapshot", "then"), kube.From("PersistentVolumeClaim", "data")}
	for i, class := range []string{"e2e-second", "e2e-tree"} {
		claim := "copy-" + class
		s.Claim(claim, "512Mi", kube.OfClass(class), from[i])
		if read := s.Run("reads-"+class, kube.Mount(claim, "/data"), kube.AnyNode, kube.Script(listing)); read != written {
			t.Errorf("%s: read is\n%s\nwritten was\n%s", class, read, written)
		}
		s.AwaitEvent(claim, v1beta1.ReasonCopyVerified, "sha256:")
	}
	// And back, from a directory into an image.
	s.Snapshot("of-tree", "copy-e2e-tree")
	s.Claim("back", "512Mi", kube.From("VolumeSnapshot", "of-tree"))
	if read := s.Run("reads-back", kube.Mount("back", "/data"), kube.AnyNode, kube.Script(listing)); read != written {
		t.Errorf("from a directory: read is\n%s\nwritten was\n%s", read, written)
	}
	s.NothingCopied()
}

func TestTransfer_DeviceGoesFromPoolToPoolOfANode(t *testing.T) {
	hostfs.Long(t)
	a := administer(t)
	node := a.transferPools()
	s := begin(t)
	s.Claim("disk", "64Mi", kube.Block)
	device := func(claim string) kube.PodOption { return kube.Device(claim, "/dev/disk") }
	written := s.Run("writes", device("disk"), kube.OnNode(node), kube.Script("head -c 67108864 /dev/urandom >/dev/disk; sync; sha256sum </dev/disk"))
	s.DeletePod("writes")
	s.Snapshot("then", "disk")
	s.Claim("copy", "64Mi", kube.Block, kube.OfClass("e2e-second"), kube.From("VolumeSnapshot", "then"))
	if read := s.Run("reads", device("copy"), kube.AnyNode, kube.Script("sha256sum </dev/disk")); read != written {
		t.Errorf("read is %s, written was %s", read, written)
	}
	s.NothingCopied()
}

func TestTransfer_GoesOnWhenItsPodIsDeleted(t *testing.T) {
	hostfs.Long(t)
	a := administer(t)
	node := a.transferPools()
	s := begin(t)
	s.Claim("data", "1Gi")
	written := s.Run("writes", kube.Mount("data", "/data"), kube.OnNode(node),
		kube.Script("for n in 1 2 3 4 5 6 7 8; do head -c 80000000 /dev/urandom >/data/$n; done; sync; cat /data/* | sha256sum"))
	s.DeletePod("writes")
	s.Snapshot("then", "data")
	s.Claim("copy", "1Gi", kube.OfClass("e2e-second"), kube.From("VolumeSnapshot", "then"))
	s.Pod("reads", kube.Mount("copy", "/data"), kube.AnyNode, kube.Once, kube.Script("cat /data/* | sha256sum"))
	first := s.CopyPod("")
	s.EndCopyPod(first)
	s.CopyPod(first.UID)
	if read := s.Result("reads"); read != written {
		t.Errorf("read is %s, written was %s", read, written)
	}
	s.NothingCopied()
}
