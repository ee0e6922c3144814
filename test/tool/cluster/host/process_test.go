package host

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == Entry {
		_ = Become(os.Args[2])
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func sleeper(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

func TestProcess_IsIdentifiedByPIDAndStartTime(t *testing.T) {
	p, err := Identify(sleeper(t).Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if !p.Alive() {
		t.Error("a running process is not alive")
	}
	for what, other := range map[string]Process{
		"another start": {PID: p.PID, Start: p.Start + 1, Boot: p.Boot},
		"another boot":  {PID: p.PID, Start: p.Start, Boot: "0"},
	} {
		if other.Alive() {
			t.Errorf("the pid with %s counts as the same process", what)
		}
	}
}

func TestProcess_StopSparesAnotherProcessWithThePID(t *testing.T) {
	p, err := Identify(sleeper(t).Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	other := p
	other.Start++
	if err := other.Stop(t.Context(), time.Second); err != nil {
		t.Fatal(err)
	}
	if !p.Alive() {
		t.Error("a stranger was ended")
	}
}

func TestProcess_StopKillsOneThatIgnoresSIGTERM(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `trap "" TERM; echo ready; exec sleep 1000`)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() })
	if _, err := out.Read(make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	p, err := Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(t.Context(), 50*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if p.Alive() {
		t.Error("it still runs")
	}
}

func TestProcess_StartTimeIsReadBehindAnyProgramName(t *testing.T) {
	const stat = "42 (a ) R 1 (b) S 1 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 2"
	start, state, err := parseStat(stat)
	if err != nil || start != 987654 || state != "S" {
		t.Errorf("start %d, state %q, error %v", start, state, err)
	}
	if _, _, err := parseStat("42 (x) S 1"); err == nil {
		t.Error("a short line is taken")
	}
}

func daemon(t *testing.T, argv ...string) Daemon {
	t.Helper()
	dir := t.TempDir()
	return Daemon{Argv: argv, Log: filepath.Join(dir, "log"), Record: filepath.Join(dir, "record"), Dir: dir}
}

func TestDaemon_IsRecordedBeforeItsProgramStartsAndHasItsOwnSession(t *testing.T) {
	d := daemon(t, "sh", "-c", `cat record; cut -d" " -f6 /proc/$$/stat; echo $$ >pid; exec sleep 1000`)
	p, err := Start(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(context.Background(), 0); err != nil {
			t.Error(err)
		}
	})
	var log []string
	err = Until(t.Context(), time.Minute, func() error {
		_, err := os.Stat(filepath.Join(d.Dir, "pid"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	log = strings.Split(Tail(d.Log, 1000), "}")
	recorded, err := ReadProcess(d.Record)
	if err != nil || recorded != p || !p.Alive() {
		t.Errorf("recorded %v, started %v, error %v", recorded, p, err)
	}
	if len(log) != 2 || !strings.Contains(log[0], `"pid"`) {
		t.Fatalf("the program did not see its record: %q", log)
	}
	if session := strings.TrimSpace(log[1]); session != strings.TrimSpace(Tail(filepath.Join(d.Dir, "pid"), 100)) {
		t.Errorf("the daemon is in session %s of another", session)
	}
}

func TestDaemon_MissingProgramIsReportedToTheStarter(t *testing.T) {
	d := daemon(t, "/no/such/program")
	if _, err := Start(t.Context(), d); err == nil || !strings.Contains(err.Error(), "/no/such/program") {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(d.Record); err == nil {
		t.Error("a record of nothing is left")
	}
}
