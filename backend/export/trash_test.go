package export

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// createClosed makes a volume that is open to all, and closes it as one of its users may do.
func (s *server) createClosed(name string) {
	s.Helper()
	spec := s.spec(name)
	spec.Labels = map[string]string{LabelMode: "0777"}
	v, err := s.Create(s.Context(), spec)
	if err != nil {
		s.Fatal(err)
	}
	s.write(v, []byte("one"))
	if err := os.Chmod(s.target(v.ID), 0o700); err != nil {
		s.Fatal(err)
	}
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
	if got := string(s.read(back)); got != "one" {
		t.Errorf("it holds %q", got)
	}
	if info, err := os.Stat(s.target("a")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("its top directory is %v, %v", info, err)
	}
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
	s.end()
	storage, err := s.openLocal() // as far as the process came
	check.OK(t, err)
	_, err = storage.Undelete(t.Context(), "a")
	check.OK(t, errors.Join(err, storage.Close(t.Context())))
	s.begin()
	if info, err := os.Stat(s.target("a")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("its top directory is %v, %v", info, err)
	}
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
	wait.Until(s.T, "its export", func() bool { return !s.get("a").Condition.Abnormal })
	s.served("a")
}

func TestTrash_NothingIsRestoredBeyondMaxExports(t *testing.T) {
	s := onXFS(t)
	s.end()
	s.change = func(c *Config) { c.MaxExports = 1 }
	s.begin()
	s.create("a")
	s.remove("a")
	s.create("b")
	_, err := s.Undelete(t.Context(), "a")
	s.want(err, backend.ErrExhausted, "a", "exports 1", "maxExports")
	if all, err := s.Trash(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("the trash holds %+v, %v", all, err)
	}
	s.remove("b")
	if _, err := s.Undelete(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	s.served("a")
}
