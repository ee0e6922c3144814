package host

import (
	"os"
	"os/exec"
	"path/filepath"
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

func daemon(t *testing.T, argv ...string) Daemon {
	t.Helper()
	dir := t.TempDir()
	return Daemon{Argv: argv, Log: filepath.Join(dir, "log"), Record: filepath.Join(dir, "record"), Dir: dir}
}
