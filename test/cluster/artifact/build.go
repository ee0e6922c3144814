package artifact

import (
	"bufio"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/cluster/host"
)

// Program is a command that is built from Go source.
type Program struct {
	Name    string
	Module  string   // directory of its go.mod
	Package string   // relative to the module, as ./dns
	With    []string // other directories of the module that it consists of
	LDFlags string
	Links   []string // other names for the binary, which looks at the name it is called by
}

// Build compiles the program, unless it is in the cache, and returns the directory with it and its links. The cache
// lies outside the work tree and is keyed by the module's go.sum, the program's own source and the compiler.
func (p Program) Build(ctx context.Context, progress func(string)) (string, error) {
	key, err := p.key(ctx)
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "holdfast", p.Name+"-"+key)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	unlock, err := host.Lock(ctx, filepath.Join(dir, p.Name+".lock"), time.Hour)
	if err != nil {
		return "", err
	}
	defer unlock()
	binary := filepath.Join(dir, p.Name)
	if _, err := os.Stat(binary); err != nil {
		if err := p.compile(ctx, binary, progress); err != nil {
			return "", err
		}
	}
	return dir, p.link(dir)
}

func (p Program) key(ctx context.Context) (string, error) {
	version, err := host.Run(ctx, "go", "env", "GOVERSION", "GOARCH")
	if err != nil {
		return "", err
	}
	var sources []string
	for _, dir := range append([]string{p.Package}, p.With...) {
		for _, kind := range []string{"*.go", "*.c"} {
			files, err := filepath.Glob(filepath.Join(p.Module, dir, kind))
			if err != nil {
				return "", err
			}
			sources = append(sources, files...)
		}
	}
	hash := sha256.New()
	fmt.Fprintln(hash, version, p.LDFlags)
	for _, file := range append(sources, filepath.Join(p.Module, "go.sum")) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(hash, "%s %d\n%s", strings.TrimPrefix(file, p.Module), len(data), data)
	}
	return fmt.Sprintf("%x", hash.Sum(nil))[:16], nil
}

func (p Program) compile(ctx context.Context, binary string, progress func(string)) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-v", "-trimpath", "-ldflags", "-s -w "+p.LDFlags, "-o", binary+".new", p.Package)
	cmd.Dir = p.Module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	// A group of its own, so that the compilers end with it. It ends with the thread that starts it, so the thread stays.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	last := report(stderr, progress)
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("build %s in %s: %w:\n%s", p.Package, p.Module, err, last)
	}
	return os.Rename(binary+".new", binary)
}

// report prints what is compiled now, not more than once in five seconds, and returns the last lines.
func report(stderr io.Reader, progress func(string)) string {
	var last []string
	reported, count := time.Now(), 0
	for lines := bufio.NewScanner(stderr); lines.Scan(); count++ {
		if last = append(last, lines.Text()); len(last) > 20 {
			last = last[1:]
		}
		if time.Since(reported) > 5*time.Second {
			reported = time.Now()
			progress(fmt.Sprintf("%d packages, now %s", count, lines.Text()))
		}
	}
	return strings.Join(last, "\n")
}

func (p Program) link(dir string) error {
	for _, name := range p.Links {
		if target, err := os.Readlink(filepath.Join(dir, name)); err == nil && target == p.Name {
			continue
		}
		if err := os.Symlink(p.Name, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}
