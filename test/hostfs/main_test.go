package hostfs

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

// lingering makes the test below play the run that is killed.
const lingering = "HOLDFAST_TEST_LINGERS"

func TestAKilledRunLeavesNoMountAndTheNextNoLoopDevice(t *testing.T) {
	if os.Getenv(lingering) != "" {
		linger(t)
	}
	RequireRoot(t)
	before := attached(t)
	cmd := exec.Command("/proc/self/exe", "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), lingering+"=1", insideVariable+"=")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	dir := strings.TrimSpace(ready)
	if during := attached(t); len(during) != len(before)+2 {
		t.Errorf("%d devices are attached during the run, %d before it", len(during), len(before))
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed on purpose
	// The kernel takes the namespace down after the process has ended, and tells nobody when.
	late := time.After(time.Minute)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for sweep(); len(attached(t)) != len(before); sweep() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("attached before: %v, after: %v", before, attached(t))
		}
	}
	if mounts, err := os.ReadFile("/proc/1/mounts"); err != nil || strings.Contains(string(mounts), dir) {
		t.Errorf("%s is still mounted, %v", dir, err)
	}
	if _, err := os.Stat(filepath.Dir(dir)); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", dir, err)
	}
}

// linger makes a file system with a file that is attached by hand, says where, and waits for its end.
func linger(t *testing.T) {
	dir := New(t, XFS, 1<<30)
	file := filepath.Join(dir, "image")
	if err := os.WriteFile(file, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, "losetup", "--find", file)
	if _, err := os.Stdout.WriteString(dir + "\n"); err != nil {
		t.Fatal(err)
	}
	for {
		_ = unix.Pause() // until the kill
	}
}

func attached(t *testing.T) []string {
	t.Helper()
	devices, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	return devices
}
