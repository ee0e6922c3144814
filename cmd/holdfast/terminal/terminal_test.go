package terminal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/pty"
)

// counted are frames 1, 2, 3 ..., each with a line for its number and lines more than fit.
func counted(pause time.Duration, last int) func(context.Context) (*Frame, error) {
	n := 0
	return func(ctx context.Context) (*Frame, error) {
		if n++; n > last {
			<-ctx.Done()
		}
		number := n
		return &Frame{Pause: pause, Same: fmt.Sprint(number / 2), Draw: func(out io.Writer, t *Terminal) error {
			if t == nil {
				_, err := fmt.Fprintf(out, "frame %d\n", number)
				return err
			}
			width, height := t.Size()
			_, err := fmt.Fprintf(out, "frame %d of %dx%d\n%s", number, width, height, strings.Repeat("more\n", 100))
			return err
		}}, nil
	}
}

// watched runs Watch beside the test.
func watched(t *testing.T, screen *pty.Terminal, frames func(context.Context) (*Frame, error)) (end func() error) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Watch(ctx, screen.Program, frames) }()
	return func() error { cancel(); return <-ended }
}

func TestWatch_RedrawsATerminalAndLeavesItAsItWas(t *testing.T) {
	screen := pty.New(t, 60, 10)
	finish := watched(t, screen, counted(time.Millisecond, 2))
	end := screen.Await(0, enterScreen+home+"frame 1 of 60x10")
	end = screen.Await(end, home+"frame 2 of 60x10")
	if shown := screen.Written(); strings.Count(shown[:strings.Index(shown, "frame 2")], "\n") != 9 {
		t.Errorf("10 lines are filled with\n%q", shown)
	}
	check.Report(t, finish())
	screen.Await(end, leaveScreen+"frame 2")
}

func TestWatch_DrawsAgainWhenTheTerminalIsResized(t *testing.T) {
	screen := pty.New(t, 60, 10)
	finish := watched(t, screen, counted(time.Hour, 1))
	end := screen.Await(0, "frame 1 of 60x10")
	screen.Resize(40, 5)
	check.OK(t, unix.Kill(os.Getpid(), unix.SIGWINCH)) // as the kernel does to a program whose terminal it is
	screen.Await(end, "frame 1 of 40x5")
	check.Report(t, finish())
}

func TestWatch_ErrorLeavesTheTerminalAsItWas(t *testing.T) {
	screen := pty.New(t, 60, 10)
	failure, frames := errors.New("it failed"), counted(time.Millisecond, 1)
	n := 0
	err := Watch(t.Context(), screen.Program, func(ctx context.Context) (*Frame, error) {
		if n++; n > 1 {
			return nil, failure
		}
		return frames(ctx)
	})
	if !errors.Is(err, failure) {
		t.Errorf("got %v", err)
	}
	screen.Await(0, leaveScreen)
}

func TestWatch_WithoutATerminalPrintsWhatHasChanged(t *testing.T) {
	for kind, open := range map[string]func() (*os.File, func() string){
		"a file": func() (*os.File, func() string) {
			f := check.Got(os.Create(filepath.Join(t.TempDir(), "out")))(t)
			return f, func() string {
				text := check.Got(os.ReadFile(f.Name()))(t)
				return string(text)
			}
		},
		"a terminal without a cursor": func() (*os.File, func() string) {
			screen := pty.New(t, 60, 10)
			t.Setenv("TERM", "dumb")
			return screen.Program, func() string {
				screen.Await(0, "frame 4\n")
				return screen.Written()
			}
		},
	} {
		f, written := open()
		ctx, cancel := context.WithCancel(t.Context())
		frames := counted(time.Millisecond, 9)
		err := Watch(ctx, f, func(ctx context.Context) (*Frame, error) {
			frame, err := frames(ctx)
			if frame.Same == "3" {
				cancel()
			}
			return frame, err
		})
		cancel()
		if got := written(); err != nil || got != "frame 1\n\nframe 2\n\nframe 4\n" {
			t.Errorf("%s: %v: %q", kind, err, got)
		}
	}
}

func TestProgress_IsOneLineOfATerminalThatGivesWay(t *testing.T) {
	screen := pty.New(t, 40, 10)
	p := NewProgress(screen.Program)
	for _, state := range []string{"node a is asked", "node a is asked", "node a answers\nwith words that do not fit on this line"} {
		check.OK(t, p.Set(state))
	}
	end := screen.Await(0, "[1s] node a answers") // it counts
	fmt.Fprintln(p, "it is done")
	screen.Await(end, "\r"+clearLine+"it is done\n")
	p.Done()
	got := screen.Written()
	if strings.Count(got, "node a is asked") != 1 || strings.Count(got, "\n") != 1 {
		t.Errorf("%q", got)
	}
	for line := range strings.SplitSeq(got, "\r") {
		if line = strings.TrimSuffix(line, clearLine); len([]rune(line)) > 39 && strings.HasPrefix(line, "[") {
			t.Errorf("%q is longer than a line", line)
		}
	}
}

func TestProgress_IsPlainLinesElsewhere(t *testing.T) {
	var out strings.Builder
	p := NewProgress(&out)
	for _, state := range []string{"one", "one", "two"} {
		check.OK(t, p.Set(state))
	}
	fmt.Fprintln(p, "done")
	p.Done()
	if got := out.String(); got != "one\ntwo\ndone\n" {
		t.Errorf("%q", got)
	}
}

func TestTerminal_ColoursAndGlyphsFollowTheEnvironment(t *testing.T) {
	screen := pty.New(t, 60, 10)
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG", "NO_COLOR"} {
		t.Setenv(name, "")
	}
	if o := Of(screen.Program); o == nil || !o.Colour() || Unicode() {
		t.Errorf("%v, %t", o, Unicode())
	}
	t.Setenv("NO_COLOR", "1")
	t.Setenv("LANG", "de_DE.UTF-8")
	if Of(screen.Program).Colour() || !Unicode() {
		t.Error("colours in spite of NO_COLOR, or no UTF-8 in a locale of it")
	}
	t.Setenv("LC_ALL", "C")
	if Unicode() {
		t.Error("LC_ALL does not decide")
	}
	t.Setenv("LC_ALL", "en_US.utf8")
	t.Setenv("TERM", "dumb")
	if Unicode() || Of(screen.Program) != nil {
		t.Error("TERM=dumb does not decide")
	}
	if Of(io.Discard) != nil {
		t.Error("what is no file is a terminal")
	}
}

func TestProgress_WhatOthersWroteDoesNotMoveTheCursor(t *testing.T) {
	const state = "node a answers\x1b[2J\u009b2J\nAll is well"
	screen := pty.New(t, 80, 10)
	var out strings.Builder
	for _, p := range []*Progress{NewProgress(screen.Program), NewProgress(&out)} {
		check.OK(t, p.Set(state))
		defer p.Done()
	}
	screen.Await(0, "] node a answers [2J 2J All is well"+clearLine)
	if got := out.String(); got != "node a answers [2J 2J All is well\n" {
		t.Errorf("%q", got)
	}
}
