//go:build ceph

package ceph

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// lingers makes the test below play a run that is killed.
const lingers = "HOLDFAST_TEST_LINGERS"

func TestCluster_EndsWithAKilledRun(t *testing.T) {
	if os.Getenv(lingers) != "" {
		c := Start(t, Options{})
		check.Got(os.Stdout.WriteString(c.Dir + "\n"))(t)
		for {
			_ = unix.Pause() // until the kill
		}
	}
	Require(t)
	cmd := exec.Command("/proc/self/exe", "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), lingers+"=1")
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	check.OK(t, err)
	check.OK(t, cmd.Start())
	dir, err := bufio.NewReader(out).ReadString('\n')
	check.OK(t, cmd.Process.Kill())
	_ = cmd.Wait() // killed on purpose
	if err != nil {
		t.Fatalf("it said %q, %v", dir, err)
	}
	dir = strings.TrimSpace(dir)
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for len(processesOf(t, dir)) > 0 || exists(dir) {
		select {
		case <-ctx.Done():
			t.Fatalf("of %s are left: processes %v, the directory %t", dir, processesOf(t, dir), exists(dir))
		case <-tick.C:
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// processesOf finds what runs with a directory on its command line.
func processesOf(t *testing.T, dir string) (found []string) {
	t.Helper()
	processes := check.Got(os.ReadDir("/proc"))(t)
	for _, p := range processes {
		if line, err := os.ReadFile("/proc/" + p.Name() + "/cmdline"); err == nil && strings.Contains(string(line), dir) {
			found = append(found, p.Name())
		}
	}
	return found
}
