package ceph

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// localClass is that of the nodes, which every installation has.
const localClass = "holdfast"

func TestTransfer_VolumesGoFromPoolToPool(t *testing.T) {
	s := begin(t)
	one, other := withClients(t)
	const (
		write = "mkdir /data/a; head -c 30000000 /dev/urandom >/data/a/file; ln -s a/file /data/link; sync; "
		read  = "cd /data; sha256sum a/file; readlink link; stat -c '%u %g %Y' a a/file"
	)
	for name, classes := range map[string][2]string{
		"local-rbd": {localClass, imageClass}, "local-cephfs": {localClass, fileClass}, "rbd-cephfs": {imageClass, fileClass},
		"rbd-local": {imageClass, localClass}, "cephfs-local": {fileClass, localClass}, "cephfs-rbd": {fileClass, imageClass},
	} {
		t.Run(name, func(t *testing.T) {
			s := s.In(t)
			from, to := "from-"+name, "to-"+name
			s.Claim(from, "256Mi", kube.OfClass(classes[0]))
			s.Pod("writes-"+name, kube.Mount(from, "/data"), kube.OnNode(one))
			s.Ready("writes-" + name)
			written := s.Exec("writes-"+name, "sh", "-ec", write+read)
			s.Snapshot("snapshot-"+name, from)
			s.Claim(to, "512Mi", kube.OfClass(classes[1]), kube.From("VolumeSnapshot", "snapshot-"+name))
			// A local volume is where its pod is scheduled, whatever node the source was used on; a local source decides.
			if found := s.Run("reads-"+name, kube.Mount(to, "/data"), kube.OnNode(other), kube.Script(read)); found != written {
				t.Errorf("read is\n%s\nwritten was\n%s", found, written)
			}
			s.AwaitEvent(to, v1beta1.ReasonCopyVerified, "sha256:")
		})
	}
	s.NothingCopied()
}

// treeClass is a pool of directories on one node.
const treeClass = "e2e-tree"

// forgetTree removes that pool, after the claims.
func forgetTree(t *testing.T) {
	if cluster == nil {
		return
	}
	check.Report(t, leave(context.WithoutCancel(t.Context()), func(spec *v1beta1.StorageClusterSpec) { without(spec, treeClass) }))
}

// addTree makes it.
func addTree(t *testing.T, node string) {
	t.Helper()
	err := change(t.Context(), func(spec *v1beta1.StorageClusterSpec) {
		spec.Pools = append(spec.Pools, v1beta1.PoolSpec{
			Name: treeClass, Path: filepath.Join(filepath.Dir(cluster.Kubeconfig()), "pools", treeClass), Engine: v1beta1.EngineDirectory, Reserved: "0", Overcommit: "2",
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}}},
		})
		spec.StorageClasses = append(spec.StorageClasses, v1beta1.StorageClassSpec{Name: treeClass, Pool: treeClass})
	})
	check.OK(t, errors.Join(err, awaitReady(t.Context())))
}

func TestTransfer_DirectoryGoesToCephAndBack(t *testing.T) {
	t.Cleanup(func() { forgetTree(t) })
	s := begin(t)
	one, other := withClients(t)
	addTree(t, one)
	const write, read = "mkdir /data/a; head -c 5000000 /dev/urandom >/data/a/file; ln -s a/file /data/link; sync; ", "cd /data; sha256sum a/file; readlink link; stat -c '%u %g %Y' a a/file"
	s.Claim("tree", "256Mi", kube.OfClass(treeClass))
	s.Pod("writes", kube.Mount("tree", "/data"), kube.OnNode(one))
	s.Ready("writes")
	written := s.Exec("writes", "sh", "-ec", write+read)
	s.DeletePod("writes") // directories of xfs are copied, and have one instant only while nothing writes
	s.Snapshot("of-tree", "tree")
	for engine, class := range classes {
		there, back := "there-"+class, "back-"+class
		from := kube.From("VolumeSnapshot", "of-tree")
		if class == imageClass {
			from = kube.From("PersistentVolumeClaim", "tree")
		}
		s.Claim(there, "256Mi", kube.OfClass(class), from)
		if found := s.Run("reads-"+there, kube.Mount(there, "/data"), kube.OnNode(other), kube.Script(read)); found != written {
			t.Errorf("%s has\n%s\nwritten was\n%s", engine, found, written)
		}
		s.AwaitEvent(there, v1beta1.ReasonCopyVerified, "sha256:")
		s.Claim(back, "256Mi", kube.OfClass(treeClass), kube.From("PersistentVolumeClaim", there))
		if found := s.Run("reads-"+back, kube.Mount(back, "/data"), kube.OnNode(one), kube.Script(read)); found != written {
			t.Errorf("back from %s there is\n%s\nwritten was\n%s", engine, found, written)
		}
	}
	s.NothingCopied()
}

func TestTransfer_DeviceGoesFromANodeToCephAndBack(t *testing.T) {
	s := begin(t)
	one, other := withClients(t)
	device := func(claim string) kube.PodOption { return kube.Device(claim, "/dev/disk") }
	s.Claim("disk", "64Mi", kube.OfClass(localClass), kube.Block)
	written := s.Run("writes", device("disk"), kube.OnNode(one), kube.Script("head -c 67108864 /dev/urandom >/dev/disk; sync; sha256sum </dev/disk"))
	s.DeletePod("writes")
	s.Snapshot("then", "disk")
	s.Claim("there", "64Mi", kube.OfClass(imageClass), kube.Block, kube.From("VolumeSnapshot", "then"))
	if read := s.Run("reads", device("there"), kube.OnNode(other), kube.Script("sha256sum </dev/disk")); read != written {
		t.Errorf("in Ceph there is %s, written was %s", read, written)
	}
	s.DeletePod("reads")
	s.Claim("back", "64Mi", kube.OfClass(localClass), kube.Block, kube.From("PersistentVolumeClaim", "there"))
	if read := s.Run("reads-back", device("back"), kube.OnNode(other), kube.Script("sha256sum </dev/disk")); read != written {
		t.Errorf("back on a node there is %s, written was %s", read, written)
	}
	s.NothingCopied()
}
