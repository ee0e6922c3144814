package hostfs

import (
	"bufio"
	"os/exec"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// Beside starts a program that ends well when its standard input is closed, which it is at the end of the test, and returns
// the first line that it prints: it holds then what the test needs to be held by another process.
func Beside(t testing.TB, name string, args ...string) (line string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	stay, err := cmd.StdinPipe()
	check.OK(t, err)
	out, err := cmd.StdoutPipe()
	check.OK(t, err)
	check.OK(t, cmd.Start())
	t.Cleanup(func() {
		stay.Close()
		check.Report(t, cmd.Wait())
	})
	line, err = bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("%s: %v: %s", name, err, line)
	}
	return strings.TrimSuffix(line, "\n")
}
