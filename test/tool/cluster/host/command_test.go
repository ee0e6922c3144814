package host

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestCommand_EndsWithItsRunner(t *testing.T) {
	if os.Getenv("HOLDFAST_VICTIM") != "" {
		_, err := Run(t.Context(), "sh", "-c", "echo $$ >$HOLDFAST_VICTIM.new; mv $HOLDFAST_VICTIM.new $HOLDFAST_VICTIM; exec sleep 1000")
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "pid") // not before: the victim is killed and would leave one
	victim := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	victim.Env = append(os.Environ(), "HOLDFAST_VICTIM="+file)
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	var program Process
	err := Until(t.Context(), time.Minute, func() error {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err == nil {
			program, err = Identify(pid)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Stop(context.Background(), 0) })
	_ = victim.Process.Kill()
	_ = victim.Wait() // killed
	if err := Until(t.Context(), time.Minute, func() error {
		if program.Alive() {
			return os.ErrExist
		}
		return nil
	}); err != nil {
		t.Error("the program still runs")
	}
}
