package e2e

import (
	"path/filepath"
	"testing"

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

// imageOf is where the home node has the image of a volume.
func imageOf(s *kube.Space, id string) string {
	return filepath.Join(s.Pools(), "default", "volumes", id, "image")
}
