package hostfs

import (
	"bufio"
	"os/exec"
	"strings"
	"testing"
)

// Beside starts a program that ends well when its standard input is closed, which it is at the end of the test, and returns
// the first line that it prints: it holds then what the test needs to be held by another process.
func Beside(t testing.TB, name string, args ...string) (line string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	stay, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stay.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	line, err = bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("%s: %v: %s", name, err, line)
	}
	return strings.TrimSuffix(line, "\n")
}
