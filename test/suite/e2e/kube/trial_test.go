package kube

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// trial is a test within a test: it may fail, and what it said can be looked at.
type trial struct {
	testing.TB
	name     string
	failed   bool
	skipped  bool
	said     strings.Builder
	cleanups []func()
}

// try runs a test to its end, cleanup included.
func try(t *testing.T, name string, test func(testing.TB)) *trial {
	t.Helper()
	tr := &trial{TB: t, name: name}
	tr.part(func() { test(tr) })
	for len(tr.cleanups) > 0 {
		last := tr.cleanups[len(tr.cleanups)-1]
		tr.cleanups = tr.cleanups[:len(tr.cleanups)-1]
		tr.part(last)
	}
	return tr
}

// part runs what may end itself.
func (tr *trial) part(run func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		run()
	}()
	<-ended
}

func (tr *trial) Helper()                       {}
func (tr *trial) Name() string                  { return tr.name }
func (tr *trial) Failed() bool                  { return tr.failed }
func (tr *trial) Cleanup(f func())              { tr.cleanups = append(tr.cleanups, f) }
func (tr *trial) Logf(text string, args ...any) { fmt.Fprintf(&tr.said, text+"\n", args...) }
func (tr *trial) Errorf(text string, args ...any) {
	tr.failed = true
	tr.Logf(text, args...)
}
func (tr *trial) Error(args ...any) { tr.Errorf("%s", fmt.Sprint(args...)) }
func (tr *trial) Skip(args ...any) {
	tr.skipped = true
	tr.Logf("%s", fmt.Sprint(args...))
	runtime.Goexit()
}
func (tr *trial) Fatal(args ...any) { tr.Fatalf("%s", fmt.Sprint(args...)) }
func (tr *trial) Fatalf(text string, args ...any) {
	tr.Errorf(text, args...)
	runtime.Goexit()
}
