package export

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// spoil modifies an ext4 while its server is down.
func (s *server) spoil(v *backend.Volume, requests ...string) {
	s.Helper()
	s.end()
	for _, request := range requests {
		if out, err := exec.Command("debugfs", "-w", "-R", request, s.image(v)).CombinedOutput(); err != nil {
			s.Fatalf("debugfs: %v: %s", err, out)
		}
	}
	s.begin()
}

func (s *server) image(v *backend.Volume) string {
	return filepath.Join(s.pool.Path, "volumes", string(v.ID), "image")
}

func TestExt4_WhoseStartIsLostIsNotServedAndNeverFormattedAgain(t *testing.T) {
	s := onXFS(t)
	v := s.create("a", smallExt4)
	s.write(v, []byte("one"))
	s.end()
	image := check.Got(os.OpenFile(s.image(v), os.O_RDWR, 0))(t)
	_, err := image.WriteAt(make([]byte, 1<<20), 0)
	check.OK(t, errors.Join(err, image.Close()))
	before := check.Got(os.ReadFile(s.image(v)))(t)
	s.begin()
	got := s.get(v.ID)
	if got.Access.NFS != nil || !got.Condition.Abnormal || !strings.Contains(got.Condition.Message, "e2fsck -f -y -b 32768") {
		t.Errorf("it is %+v", got)
	}
	if now := check.Got(os.ReadFile(s.image(v)))(t); !bytes.Equal(now, before) {
		t.Error("the image has changed")
	}
}

func TestExt4_IsRepairedBeforeItIsServed(t *testing.T) {
	s := onXFS(t)
	v := s.create("a", smallExt4)
	s.write(v, []byte("one"))
	s.spoil(v, "set_super_value state 3")
	if got := s.get(v.ID); got.Condition.Abnormal || string(s.read(got)) != "one" {
		t.Errorf("it is %+v", got)
	}
	s.spoil(v, "clri <7>", "set_super_value state 3")
	got := s.get(v.ID)
	if got.Access.NFS != nil || !got.Condition.Abnormal || !strings.Contains(got.Condition.Message, "e2fsck -f "+s.image(v)) {
		t.Errorf("it is %+v", got)
	}
}
