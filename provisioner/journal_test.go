package provisioner

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func reopen(t *testing.T, dir string) *journal {
	t.Helper()
	j := check.Got(openJournal(dir, slog.New(slog.NewTextHandler(t.Output(), nil))))(t)
	t.Cleanup(func() { j.close() })
	return j
}

func TestJournal_SurvivesTheProcessAndIsReadBeforeAnotherContinuesIt(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state", "provisioner")
	standby, active := reopen(t, dir), reopen(t, dir)
	e := entry{Name: "pvc-2", Namespace: "default", Claim: "data", UID: "2"}
	for range 2 {
		check.OK(t, active.begin("pvc-1", entry{Name: "pvc-1", UID: "1"}))
		check.OK(t, active.begin("pvc-2", e))
	}
	for range 2 {
		check.OK(t, active.end("pvc-1"))
	}
	check.OK(t, standby.read(slog.New(slog.DiscardHandler)))
	for name, j := range map[string]*journal{"the standby": standby, "the next process": reopen(t, dir)} {
		if got, _ := j.get("pvc-2"); got != e || len(j.all()) != 1 || j.store != active.store || j.store == "" {
			t.Errorf("%s has %v, %+v, store %q and not %q", name, j.all(), got, j.store, active.store)
		}
	}
	check.OK(t, standby.end("pvc-2"))
	if left := reopen(t, dir).all(); len(left) != 0 {
		t.Errorf("left are %v", left)
	}
}

func TestJournal_OtherFilesAreSkipped(t *testing.T) {
	dir := t.TempDir()
	check.OK(t, reopen(t, dir).begin("pvc-1", entry{Name: "pvc-1", UID: "1"}))
	for name, content := range map[string]string{
		"pvc-2.new": `{"name":"pvc-2","uid":"2"}`, "pvc-3": "", "pvc-4": "{", "pvc-5": "{}", "pvc-6": `{"name":"pvc-6"}`, "pvc-7": `{"uid":"7"}`, "lost+found": "x",
	} {
		check.OK(t, os.WriteFile(filepath.Join(dir, begunDir, name), []byte(content), 0o600))
	}
	if got := reopen(t, dir).all(); !slices.Equal(got, []backend.ID{"pvc-1"}) {
		t.Errorf("it has %v", got)
	}
}

func TestIdentity_TruncatedIsRecreatedAndForgedIsRefused(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, identityFile)
	check.OK(t, os.WriteFile(file, nil, 0o600))
	if j := reopen(t, dir); j.store == "" {
		t.Error("it has no identity")
	}
	check.OK(t, os.WriteFile(file, []byte("../x"), 0o600))
	if _, err := openJournal(dir, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %v", err)
	}
}

func TestJournal_ThatCannotBeWrittenStopsProvisioning(t *testing.T) {
	s, p := quiet(t)
	check.OK(t, os.RemoveAll(filepath.Join(s.config.StateDir, begunDir)))
	if _, _, err := p.Provision(t.Context(), options(nil)); err == nil || len(s.disk.volumes()) != 0 {
		t.Errorf("volumes %v, %v", s.disk.volumes(), err)
	}
}
