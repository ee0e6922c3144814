package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

func TestClaim_DataIsThereForTheNextPod(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.Claim("data", "64Mi")
	s.Pod("writer", kube.Mount("data", "/data"))
	s.Ready("writer")
	written := s.Exec("writer", "sh", "-ec", "head -c 5000000 /dev/urandom >/data/file; sync /data/file; sha256sum /data/file")
	s.DeletePod("writer")
	if read := s.Run("reader", kube.Mount("data", "/data"), kube.Script("sha256sum /data/file")); read != written {
		t.Errorf("written %q, read %q", written, read)
	}
}

func TestClaim_VolumeIsDeletedWithIt(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.Claim("data", "64Mi")
	s.Run("user", kube.Mount("data", "/data"), kube.Script("touch /data/file"))
	volume := s.Volume("data")
	id := volume.Spec.CSI.VolumeHandle
	check.Got(os.Stat(imageOf(s, id)))(t)
	s.DeletePod("user")
	s.DeleteClaim("data")
	kube.AwaitNone(s, s.Client.CoreV1().PersistentVolumes(), kube.Named(volume.Name), "volume "+volume.Name)
	kube.AwaitNone(s, s.Holdfast("volumes"), kube.Named(id), "the object of volume "+id)
	// The object goes last.
	left, err := filepath.Glob(filepath.Join(s.Pools(), "default", "*", "*"+id+"*"))
	trashed := func(path string) bool { return filepath.Base(filepath.Dir(path)) == ".trash" }
	if left = slices.DeleteFunc(left, trashed); err != nil || len(left) > 0 {
		t.Errorf("on the disk, beside the trash, there is still %v, %v", left, err)
	}
}

// imageOf is where the home node has the image of a volume.
func imageOf(s *kube.Space, id string) string {
	return filepath.Join(s.Pools(), "default", "volumes", id, "image")
}

func TestClaim_BlockVolumeKeepsWhatIsWrittenToTheDevice(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.Claim("disk", "64Mi", kube.Block)
	written := s.Run("writer", kube.Device("disk", "/dev/disk"), kube.Script(`
		test -b /dev/disk
		head -c 8388608 /dev/urandom >/dev/shm/content
		dd if=/dev/shm/content of=/dev/disk bs=1M seek=40 conv=fsync 2>/dev/null
		sha256sum </dev/shm/content`))
	s.DeletePod("writer")
	read := s.Run("reader", kube.Device("disk", "/dev/disk"), kube.Script(
		"dd if=/dev/disk bs=1M skip=40 count=8 2>/dev/null | sha256sum"))
	if read != written {
		t.Errorf("written %q, read %q", written, read)
	}
}
