package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// repository is one of its own, with packages whose tests do what is tried.
type repository struct {
	*runner
	t   *testing.T
	out *strings.Builder
}

func newRepository(t *testing.T, files map[string]string) *repository {
	t.Helper()
	r := &repository{t: t, out: &strings.Builder{}}
	tool := check.Got(goOutput(t.Context(), "", "tool", "-n", "test2json"))(t)
	root := t.TempDir()
	r.runner = &runner{root: root, dir: filepath.Join(root, "bin/lanes"), test2json: tool, out: r.out}
	r.write("go.mod", "module example.com/m\n\ngo 1.26\n")
	r.write(flakyFile, "test\tday\tbecause\n")
	r.write(".gitignore", "bin/\nmark\n")
	for name, content := range files {
		r.write(name, content)
	}
	return r
}

func (r *repository) write(name, content string) {
	r.t.Helper()
	file := filepath.Join(r.root, name)
	check.OK(r.t, os.MkdirAll(filepath.Dir(file), 0o755))
	check.OK(r.t, os.WriteFile(file, []byte(content), 0o600))
}

// commit puts all under version control.
func (r *repository) commit() {
	r.t.Helper()
	const script = "git init -q; git add -A; git -c user.name=a -c user.email=a@example.com commit -qm a"
	cmd := exec.CommandContext(r.t.Context(), "sh", "-ec", script)
	cmd.Dir = r.root
	if out, err := cmd.CombinedOutput(); err != nil {
		r.t.Fatalf("%v: %s", err, out)
	}
}

// run runs the tests of all packages as one lane.
func (r *repository) run(change func(l *lane), resume bool) outcome {
	r.t.Helper()
	r.out.Reset()
	l := lane{name: "all", limit: 5 * time.Minute, tests: []group{{packages: []string{"./..."}}}}
	if change != nil {
		change(&l)
	}
	return r.lane(r.t.Context(), l, resume)
}

const (
	passes = "package a\nimport \"testing\"\nfunc TestA(t *testing.T) {}\nfunc TestB(t *testing.T) { t.Skip() }\n"
	// flakes fails the first time in a directory, and passes from then on.
	flakes = "package b\nimport (\"os\"; \"testing\")\nfunc TestFlakes(t *testing.T) {\n if _, err := os.Stat(\"mark\"); err != nil {\n  os.WriteFile(\"mark\", nil, 0o600)\n  t.Fatal(\"the first time\")\n }\n}\n"
	fails  = "package c\nimport \"testing\"\nfunc TestFails(t *testing.T) { t.Run(\"sub\", func(t *testing.T) { t.Error(\"always\") }) }\n"
	panics = "package d\nimport \"testing\"\nfunc TestFirst(t *testing.T) {}\nfunc TestPanics(t *testing.T) { panic(\"at once\") }\nfunc TestNever(t *testing.T) {}\n"
	hangs  = "package e\nimport \"testing\"\nfunc TestHangs(t *testing.T) { select {} }\n"
	broken = "package f\nimport \"testing\"\nfunc TestBroken(t *testing.T) { undefined() }\n"
	raced  = "package g\nimport (\"fmt\"; \"os\"; \"testing\")\nfunc TestRaces(t *testing.T) {\n if _, err := os.Stat(\"mark\"); err == nil { return }\n os.WriteFile(\"mark\", nil, 0o600)\n fmt.Println(\"WARNING: DATA RACE\")\n t.Fail()\n}\n"
)

func TestLane_TestThatPassesTheSecondTimeHasFlakedAndIsRecordedOnce(t *testing.T) {
	r := newRepository(t, map[string]string{"a/a_test.go": passes, "b/b_test.go": flakes})
	o := r.run(nil, false)
	if len(o.failed) > 0 || len(o.flakes) != 1 || o.flakes[0].test != "example.com/m/b.TestFlakes" || !strings.Contains(o.flakes[0].because, "the first time") {
		t.Fatalf("%+v\n%s", o, r.out)
	}
	for range 2 {
		check.OK(t, r.sum([]outcome{o}))
	}
	recorded, err := os.ReadFile(filepath.Join(r.root, flakyFile))
	if err != nil || strings.Count(string(recorded), "TestFlakes") != 1 {
		t.Errorf("recorded is %q, %v", recorded, err)
	}
	if lines := strings.Split(strings.TrimSpace(r.out.String()), "\n"); !strings.HasPrefix(lines[len(lines)-2], "FLAKY example.com/m/b.TestFlakes") {
		t.Errorf("last it printed %q", lines[len(lines)-2:])
	}
	if err := r.sum([]outcome{o, o, o}); err != nil {
		t.Errorf("three flakes: %v", err)
	}
	if err := r.sum([]outcome{o, o, o, o}); err == nil {
		t.Error("a run with four flakes passes")
	}
}

func TestLane_FailuresAreNamed(t *testing.T) {
	for name, test := range map[string]struct{ content, failed string }{
		"twice":        {fails, "example.com/m/x.TestFails"},
		"by a panic":   {panics, "example.com/m/x.TestPanics"},
		"to compile":   {broken, "example.com/m/x"},
		"with a race":  {raced, "example.com/m/x.TestRaces"},
		"of TestMain":  {"package x\nimport (\"os\"; \"testing\")\nfunc TestMain(*testing.M) { os.Exit(3) }\nfunc TestA(t *testing.T) {}\n", "example.com/m/x"},
		"among others": {flakes + "\nfunc TestAgain(t *testing.T) { t.Fatal() }\n", "example.com/m/x.TestAgain"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRepository(t, map[string]string{"a/a_test.go": passes, "x/x_test.go": test.content})
			if o := r.run(nil, false); !slices.Equal(o.failed, []string{test.failed}) {
				t.Errorf("%q\n%s", o.failed, r.out)
			} else if err := r.sum([]outcome{o}); err == nil {
				t.Error("the run passes")
			}
		})
	}
}

func TestLane_NothingIsRunAgainWhereAFailureIsEvidence(t *testing.T) {
	for name, evidence := range map[string]bool{"TestFlakes": true, "TestMemory_Conforms": false, "TestPowerCut_IsSurvived": false, "TestCrash_AtAnyStep": false} {
		r := newRepository(t, map[string]string{"b/b_test.go": strings.ReplaceAll(flakes, "TestFlakes", name)})
		o := r.run(func(l *lane) { l.tests[0].evidence = evidence }, false)
		if !slices.Equal(o.failed, []string{"example.com/m/b." + name}) || len(o.flakes) > 0 {
			t.Errorf("%s: %+v\n%s", name, o, r.out)
		}
	}
}

func TestLane_HangIsNamedAtTheLimit(t *testing.T) {
	r := newRepository(t, map[string]string{"e/e_test.go": hangs})
	o := r.run(func(l *lane) { l.limit = lateBy + 10*time.Second }, false)
	if !slices.Contains(o.failed, "example.com/m/e.TestHangs") {
		t.Errorf("%q\n%s", o.failed, r.out)
	}
}

func TestLane_InterruptedLetsTestsRemoveWhatTheyMade(t *testing.T) {
	r := newRepository(t, map[string]string{"h/h_test.go": `package h
import ("os"; "os/signal"; "syscall"; "testing")
func TestRemoves(t *testing.T) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM)
	os.WriteFile("made", nil, 0o600)
	<-c
	os.Remove("made")
}
`})
	ctx, cancel := context.WithCancel(t.Context())
	made := func() bool { _, err := os.Stat(filepath.Join(r.root, "h/made")); return err == nil }
	go func() {
		defer cancel()
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for !made() && t.Context().Err() == nil {
			<-tick.C
		}
	}()
	l := lane{name: "all", limit: 5 * time.Minute, tests: []group{{packages: []string{"./..."}}}}
	if o := r.lane(ctx, l, false); made() {
		t.Errorf("what the test made is still there; %+v", o)
	}
}

func TestLane_ResumesWithWhatHasChanged(t *testing.T) {
	r := newRepository(t, map[string]string{
		"a/a_test.go": strings.ReplaceAll(passes, "package a\n", "package a\nimport _ \"example.com/m/lib\"\n"), "h/h_test.go": strings.ReplaceAll(passes, "package a", "package h"),
		"lib/lib.go": "package lib\n", "README.md": "a\n",
	})
	r.commit()
	kept := func(l *lane) { l.long = true }
	ran := func(want ...string) {
		t.Helper()
		if o := r.run(kept, true); len(o.failed) > 0 {
			t.Errorf("%+v\n%s", o, r.out)
		}
		for _, name := range []string{"a", "h"} {
			if did := strings.Contains(r.out.String(), "ok  \texample.com/m/"+name+"\t"); did != slices.Contains(want, name) {
				t.Errorf("of %q: %s ran is %v\n%s", want, name, did, r.out)
			}
		}
	}
	ran("a", "h")
	ran()
	r.write("README.md", "b\n")
	ran()
	r.write("lib/lib.go", "package lib\n\nconst A = 1\n")
	ran("a")
	r.write("lib/lib.go", "package lib\n")
	ran("a") // what passed before has another hash
	r.write("data.yaml", "a: b\n")
	ran("a", "h")
	if o := r.run(kept, false); o.passed != 2 { // not resumed
		t.Errorf("%+v", o)
	}
}

func TestLane_WhatFailedOrFlakedIsNotGreen(t *testing.T) {
	r := newRepository(t, map[string]string{"a/a_test.go": passes, "b/b_test.go": flakes, "c/c_test.go": fails})
	r.commit()
	l := lane{name: "all", limit: 5 * time.Minute, long: true, tests: []group{{packages: []string{"./..."}}}}
	state := func() string {
		t.Helper()
		said, _, err := r.stateOf(context.WithoutCancel(t.Context()), l)
		check.OK(t, err)
		return said
	}
	if said := state(); said != "3 missing of 3" {
		t.Errorf("before the first run: %s", said)
	}
	r.lane(t.Context(), l, true)
	if said := state(); said != "1 failed, 1 flaked of 3" {
		t.Errorf("after it: %s\n%s", said, r.out)
	}
	r.write("c/c_test.go", strings.ReplaceAll(passes, "package a", "package c"))
	r.lane(t.Context(), l, true)
	if said := state(); said != "green" {
		t.Errorf("mended: %s\n%s", said, r.out)
	}
}

// A package that no lane has would be tested by nothing.
func TestLanes_HaveEveryPackage(t *testing.T) {
	r := check.Got(newRunner(t.Context(), &strings.Builder{}))(t)
	in, named := map[string]bool{}, map[string]bool{}
	for _, l := range slices.Concat(gate, rest) {
		if named[l.name] || l.limit == 0 || l.about == "" {
			t.Errorf("lane %q is there twice, or has no limit or no description", l.name)
		}
		named[l.name] = true
		for i := range l.tests {
			packages := check.Got(r.list(t.Context(), &l.tests[i]))(t)
			for _, p := range packages {
				in[p.path] = true
			}
		}
	}
	all := check.Got(r.list(t.Context(), &group{packages: []string{"./..."}, tags: cephTags}))(t)
	for _, p := range all {
		if !in[p.path] {
			t.Errorf("%s is in no lane", p.name())
		}
	}
}
