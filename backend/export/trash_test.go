package export

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/local"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// createClosed makes a volume that is open to all, and closes it as one of its users may do.
func (s *server) createClosed(name string) {
	s.Helper()
	v := s.create(name, func(spec *backend.VolumeSpec) { spec.Labels = map[string]string{LabelMode: "0777"} })
	s.write(v, []byte("one"))
	check.OK(s.T, os.Chmod(s.target(v.ID), 0o700))
}

func TestTrash_RestoredVolumeIsServedAsANewExport(t *testing.T) {
	s := onXFS(t)
	s.createClosed("a")
	before, _ := s.ledger.find("a")
	s.remove("a")
	s.served()
	all, err := s.Trash(t.Context())
	if err != nil || len(all) != 1 || all[0].ID != "a" {
		t.Fatalf("the trash holds %+v, %v", all, err)
	}
	back, err := s.Undelete(t.Context(), "a")
	if err != nil || back.Condition.Abnormal || back.Access.NFS == nil {
		t.Fatalf("undeleted is %+v, %v", back, err)
	}
	check.Same(t, string(s.read(back)), "one")
	check.Same(t, check.Got(os.Stat(s.target("a")))(t).Mode().Perm(), 0o700)
	if after, _ := s.ledger.find("a"); after.ID == before.ID {
		t.Errorf("it is export %d again, of which clients may hold handles", after.ID)
	}
	s.restart()
	s.served("a")
}

func TestTrash_VolumeThatWasRestoredByAKilledProcessKeepsItsTopDirectory(t *testing.T) {
	s := onXFS(t)
	s.createClosed("a")
	s.remove("a")
	s.whileDown(func(pool *local.Backend) error { return check.ErrorOf(pool.Undelete(t.Context(), "a")) }) // as far as the process came
	check.Same(t, check.Got(os.Stat(s.target("a")))(t).Mode().Perm(), 0o700)
	s.served("a")
}

func TestTrash_RestoredVolumeThatCannotBeServedReturnsAndIsRetried(t *testing.T) {
	s := onXFS(t)
	s.create("a")
	s.remove("a")
	s.record.refuses(func(uint16) error { return errors.New("the exporter is out of descriptors") })
	back, err := s.Undelete(t.Context(), "a")
	if err != nil || !back.Condition.Abnormal || !strings.Contains(back.Condition.Message, "out of descriptors") {
		t.Errorf("undeleted is %+v, %v", back, err)
	}
	s.record.refuses(nil)
	s.becomesHealthy("a")
	s.served("a")
}
