package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// aboutData are tests that are evidence in any group: the suite that every backend passes, crashes and power cuts.
var aboutData = regexp.MustCompile(`Conform|Crash|PowerCut`)

// testPackage is a package whose tests a lane runs.
type testPackage struct {
	path, dir string
	of        *group
	binary    string
	hash      string // of all that its result depends on; "" where no results are kept
}

// name is the package as a reader looks for it.
func (p testPackage) name() string {
	return strings.TrimPrefix(p.path, "github.com/holdfast-storage/holdfast/")
}

// failure is a test that failed, or all of a package that failed outside of its tests.
type failure struct {
	in      testPackage
	test    string
	because string
	once    bool // it is not run again
}

func (f failure) String() string {
	if f.test == outside {
		return f.in.name()
	}
	return f.in.name() + "." + f.test
}

const (
	// With more failures in a lane than that the cause is no accident.
	mostRepeated = 5
	// lateBy is how long before the limit of its lane a test binary that hangs prints its stacks and ends.
	lateBy = 30 * time.Second
)

// test runs the tests of packages, and those that failed once more, alone.
func (r *runner) test(ctx context.Context, l lane, packages []testPackage, o *outcome) error {
	var failures []failure
	for i := range l.tests {
		ofGroup := slices.DeleteFunc(slices.Clone(packages), func(p testPackage) bool { return p.of != &l.tests[i] })
		failed, err := r.group(ctx, l, &l.tests[i], ofGroup, o)
		failures = append(failures, failed...)
		if err != nil {
			o.failed = append(o.failed, names(failures)...)
			return err
		}
	}
	for _, f := range failures {
		if f.once || len(failures) > mostRepeated || ctx.Err() != nil {
			o.failed = append(o.failed, f.String())
			continue
		}
		r.printf("== %s failed and is run once more, alone\n", f)
		if again := r.runPackage(ctx, l, f.in, f.test, &outcome{}); len(again) > 0 {
			o.failed = append(o.failed, f.String())
			continue
		}
		o.passed++
		o.flakes = append(o.flakes, flake{f.String(), f.because})
		if err := o.keep(f.in.name(), f.in.hash, flaked, 0); err != nil {
			return err
		}
	}
	return nil
}

func names(failures []failure) (all []string) {
	for _, f := range failures {
		all = append(all, f.String())
	}
	return all
}

// group compiles packages and then runs them, so that no compiler is beside a test.
func (r *runner) group(ctx context.Context, l lane, g *group, packages []testPackage, o *outcome) (failures []failure, err error) {
	dir := filepath.Join(r.dir, l.name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	broken := r.compile(ctx, dir, packages)
	var mu sync.Mutex // of failures and o
	var running errgroup.Group
	running.SetLimit(max(g.atOnce, 1))
	for i, p := range packages {
		running.Go(func() error {
			begun := time.Now()
			var one outcome
			var found []failure
			if broken[i] != nil {
				r.printf("FAIL\t%s\n%v\n", p.path, broken[i])
				found = []failure{{in: p, because: "it does not compile", once: true}}
			} else {
				found = r.runPackage(ctx, l, p, "", &one)
			}
			mu.Lock()
			defer mu.Unlock()
			failures = append(failures, found...)
			o.passed, o.skipped = o.passed+one.passed, o.skipped+one.skipped
			return o.keep(p.name(), p.hash, stateOf(len(found) == 0), time.Since(begun))
		})
	}
	return failures, running.Wait()
}

// list returns the packages of a group that have tests.
func (r *runner) list(ctx context.Context, g *group) (packages []testPackage, err error) {
	const format = "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}"
	module := filepath.Join(r.root, g.module)
	args := []string{"list", "-tags", g.tags, "-f", format}
	all, err := goOutput(ctx, module, append(args, g.packages...)...)
	if err != nil {
		return nil, err
	}
	var except string
	if len(g.except) > 0 {
		if except, err = goOutput(ctx, module, append(args, g.except...)...); err != nil {
			return nil, err
		}
	}
	left := strings.Split(except, "\n")
	for line := range strings.SplitSeq(all, "\n") {
		path, dir, ok := strings.Cut(line, " ")
		if ok && !slices.Contains(left, line) {
			packages = append(packages, testPackage{path: path, dir: dir, of: g})
		}
	}
	if len(packages) == 0 {
		return nil, fmt.Errorf("%s has no tests", strings.Join(g.packages, " "))
	}
	return packages, nil
}

// compile makes the test binaries, two beside each other, and returns what the compiler says of each package.
func (r *runner) compile(ctx context.Context, dir string, packages []testPackage) []error {
	said := make([]error, len(packages))
	var compiling errgroup.Group
	compiling.SetLimit(2)
	for i := range packages {
		p := &packages[i]
		p.binary = filepath.Join(dir, strings.ReplaceAll(p.name(), "/", "_")+".test")
		args := []string{"test", "-c", "-vet=off", "-tags", p.of.tags, "-o", p.binary}
		if p.of.race {
			args = append(args, "-race")
		}
		compiling.Go(func() error {
			cmd := r.command(ctx, "go", append(args, p.path)...)
			cmd.Dir = filepath.Join(r.root, p.of.module)
			cmd.Env = append(os.Environ(), p.of.cgo()...)
			if out, err := cmd.CombinedOutput(); err != nil {
				said[i] = fmt.Errorf("%w\n%s", err, out)
			}
			return nil
		})
	}
	_ = compiling.Wait() // each has its own error
	return said
}

// cgo is needed by the race detector and the libraries of Ceph, and else by nothing.
func (g *group) cgo() []string {
	if g.race || g.tags != "" {
		return []string{"CGO_ENABLED=1"}
	}
	return nil
}

// runPackage runs the tests of a package, or one of them, and returns those that failed.
func (r *runner) runPackage(ctx context.Context, l lane, p testPackage, test string, o *outcome) []failure {
	begun := time.Now()
	report, err := r.execute(ctx, l, p, test)
	o.passed, o.skipped = report.count("pass"), report.count("skip")
	took := time.Since(begun).Seconds()
	if l.figures {
		r.printf("%s", report.figures())
		o.passed += report.count("fail")
		err = nil
	}
	if err == nil {
		r.printf("ok  \t%s\t%.3fs\n", p.path, took)
		return nil
	}
	var text strings.Builder
	var failures []failure
	for _, name := range report.failed() {
		text.WriteString(report.said(name))
		failures = append(failures, failure{in: p, test: name, because: report.because(name)})
	}
	text.WriteString(report.said(outside))
	if len(failures) == 0 {
		failures = []failure{{in: p, because: firstLine(err.Error())}}
	}
	for i := range failures {
		failures[i].once = p.of.evidence || report.raced() || aboutData.MatchString(failures[i].test)
	}
	r.printf("%sFAIL\t%s\t%.3fs: %v\n", shortened(text.String()), p.path, took, err)
	return failures
}

// shortened leaves out the middle of a long output, which is whole in the log.
func shortened(text string) string {
	const most = 400
	lines := strings.SplitAfter(text, "\n")
	if len(lines) <= most {
		return text
	}
	return strings.Join(lines[:most/2], "") + fmt.Sprintf("[%d lines]\n", len(lines)-most) + strings.Join(lines[len(lines)-most/2:], "")
}

// execute runs a test binary as go test does, in the directory of its package.
func (r *runner) execute(ctx context.Context, l lane, p testPackage, test string) (report, error) {
	if p.of.server {
		if err := errors.Join(r.inCluster(ctx, l.cluster, "down"), r.inCluster(ctx, l.cluster, "-api-only", "up")); err != nil {
			return report{}, err
		}
	}
	deadline, _ := ctx.Deadline()
	name := p.binary
	if test != "" {
		name += "." + test // the log of the first try stays
	}
	args := []string{"-t", "-p", p.path, p.binary, "-test.v=test2json", "-test.paniconexit0", "-test.timeout", max(time.Until(deadline)-lateBy, time.Second).String()}
	if p.of.short {
		args = append(args, "-test.short")
	}
	switch {
	case test != "":
		args = append(args, "-test.run", "^"+test+"$")
	case p.of.run != "":
		args = append(args, "-test.run", p.of.run)
	}
	cmd := r.command(ctx, r.test2json, args...)
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), r.environment(l, p.of)...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return report{}, err
	}
	cmd.Stderr = cmd.Stdout
	log, err := os.Create(name + ".log")
	if err != nil {
		return report{}, err
	}
	defer log.Close()
	if err := cmd.Start(); err != nil {
		return report{}, err
	}
	found, err := read(stdout, log)
	return found, errors.Join(err, cmd.Wait())
}

func (r *runner) environment(l lane, g *group) []string {
	require := l.require
	if given := os.Getenv("REQUIRE"); given != "" {
		require = given
	}
	env := append([]string{"HOLDFAST_REQUIRE=" + require}, g.env...)
	switch {
	case l.figures:
		env = append(env, "HOLDFAST_TESTS=figures")
	case l.long:
		env = append(env, "HOLDFAST_TESTS=all")
	}
	if g.race {
		env = append(env, "HOLDFAST_TIME_SCALE=3")
	}
	if slices.Contains(l.setup, crashing) {
		env = append(env, "HOLDFAST_CRASHING_BINARY="+filepath.Join(r.root, "bin/holdfast-crashpoints"))
	}
	if g.server {
		env = append(env, "HOLDFAST_API="+l.cluster)
	}
	if memory := os.Getenv("HOLDFAST_MEMORY"); l.memory && memory != "" {
		env = append(env, "TMPDIR="+memory)
	}
	return env
}
