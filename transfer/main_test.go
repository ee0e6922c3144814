package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

// With these in its environment, the process of a test is one that copies.
const (
	fromVariable   = "HOLDFAST_TRANSFER_FROM"
	toVariable     = "HOLDFAST_TRANSFER_TO"
	resultVariable = "HOLDFAST_TRANSFER_RESULT"
)

func TestMain(m *testing.M) {
	from := os.Getenv(fromVariable)
	if from == "" {
		os.Exit(hostfs.Main(m))
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	err := Run(ctx, Config{
		From: from, To: os.Getenv(toVariable), Result: os.Getenv(resultVariable),
		Every: time.Millisecond, Progress: os.Stdout, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// process copies in a process of its own, which can be killed.
func process(t testing.TB, from, to string) (cmd *exec.Cmd, output *bytes.Buffer, result string) {
	t.Helper()
	result = filepath.Join(t.TempDir(), "result")
	cmd = exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fromVariable+"="+from, toVariable+"="+to, resultVariable+"="+result)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	output = &bytes.Buffer{}
	cmd.Stderr = output
	return cmd, output, result
}

// transferred runs in this process, and returns the progress and the content of the result file.
func transferred(t testing.TB, from, to string, copied func()) (progress, result string, err error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "result")
	var out strings.Builder
	err = Run(t.Context(), Config{
		From: from, To: to, Result: file, Every: time.Hour, Progress: &out, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), copied: copied,
	})
	text := check.Got(os.ReadFile(file))(t)
	return out.String(), string(text), err
}

func must(t testing.TB, errs ...error) {
	t.Helper()
	check.OK(t, errors.Join(errs...))
}

// plant makes some thousand files of all sizes, with hard links.
func plant(t testing.TB, top string) {
	t.Helper()
	for d := range 20 {
		dir := filepath.Join(top, fmt.Sprint("dir", d))
		must(t, os.Mkdir(dir, 0o750))
		for i := range 100 {
			path := filepath.Join(dir, fmt.Sprint("file", i))
			must(t, os.WriteFile(path, bytes.Repeat([]byte{byte(d), byte(i)}, (d*100+i)*7), 0o640), os.Chown(path, d, i))
			must(t, os.Link(path, filepath.Join(top, fmt.Sprintf("link%d-%d", d, i))))
		}
		must(t, os.WriteFile(filepath.Join(dir, "large"), bytes.Repeat([]byte{byte(d), 1, 2, 3}, 1<<20), 0o600))
		must(t, unix.Setxattr(filepath.Join(dir, "large"), "user.number", []byte(fmt.Sprint(d)), 0))
		must(t, os.Symlink(fmt.Sprint("file", d), filepath.Join(dir, "symlink")))
	}
}

// same compares two trees by their archives.
func same(t testing.TB, from, to string) {
	t.Helper()
	if archived(t, from) != archived(t, to) {
		t.Errorf("the archives of %s and %s differ", from, to)
	}
}

// archived is the sum of what tar writes of a tree: all that it knows, in the order of the names.
func archived(t testing.TB, dir string) string {
	t.Helper()
	script := `set -o pipefail; tar --sort=name --xattrs --xattrs-include='*' --acls --numeric-owner --exclude=./lost+found --format=posix --pax-option='delete=atime,delete=ctime' -cC "$0" . | sha256sum`
	out, err := exec.Command("bash", "-c", script, dir).CombinedOutput()
	if err != nil {
		t.Fatalf("tar: %v: %s", err, out)
	}
	return string(out)
}

func command(t testing.TB, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
}

func readAll(t testing.TB, r io.Reader) []byte {
	t.Helper()
	b, err := io.ReadAll(r)
	must(t, err)
	return b
}
