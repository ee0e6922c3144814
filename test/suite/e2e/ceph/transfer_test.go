package ceph

import (
	"testing"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
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
