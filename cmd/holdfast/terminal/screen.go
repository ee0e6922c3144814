package terminal

import (
	"context"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"
)

// What moves the cursor and changes the screen, as terminals have understood it since the VT220 and xterm.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // another screen, on which the cursor is not shown
	leaveScreen = "\x1b[?25h\x1b[?1049l" // the one of before, with what was on it
	home        = "\x1b[H"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
)

// Frame is what a command shows at one time.
type Frame struct {
	// Draw writes it, on a terminal of that size. Without a terminal it is nil; a frame without text is left out then.
	Draw func(out io.Writer, t *Terminal) error
	// Between is the line between this frame and the one before, without a terminal.
	Between string
	// Same is equal for frames between which nothing has changed that is worth another block of lines.
	Same string
	// Pause is how long it is before the next one.
	Pause time.Duration
}

// Watch shows frames until ctx ends: on a terminal each in the place of the last one, elsewhere a block of lines for
// each that differs from the one before. What next answers with an error ends it.
func Watch(ctx context.Context, out io.Writer, next func(context.Context) (*Frame, error)) error {
	t := Of(out)
	if t == nil {
		return blocks(ctx, out, next)
	}
	resized := make(chan os.Signal, 1)
	if len(resizes) > 0 { // otherwise all signals would be meant
		signal.Notify(resized, resizes...)
	}
	defer signal.Stop(resized)
	var last *Frame
	entered := false
	defer func() {
		if !entered {
			return
		}
		_, _ = io.WriteString(t.file, leaveScreen)
		_ = last.Draw(t.file, t) // what was seen last stays readable
	}()
	for {
		frame, err := next(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		last = frame
		if !entered {
			entered = true
			if _, err := io.WriteString(t.file, enterScreen); err != nil {
				return err
			}
		}
		if ended, err := t.show(ctx, frame, resized); ended || err != nil {
			return err
		}
	}
}

// show draws a frame, and again whenever the terminal gets another size, until it is time for the next one.
func (t *Terminal) show(ctx context.Context, frame *Frame, resized <-chan os.Signal) (ended bool, err error) {
	pause := time.NewTimer(frame.Pause)
	defer pause.Stop()
	for {
		if err := t.draw(frame); err != nil {
			return true, err
		}
		select {
		case <-ctx.Done():
			return true, nil
		case <-pause.C:
			return false, nil
		case <-resized:
		}
	}
}

// draw overwrites what is shown, in one write, so that nothing flickers. What does not fit is left out.
func (t *Terminal) draw(frame *Frame) error {
	var text strings.Builder
	if err := frame.Draw(&text, t); err != nil {
		return err
	}
	_, height := t.Size()
	lines := strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
	lines = lines[:min(len(lines), height)]
	_, err := io.WriteString(t.file, home+strings.Join(lines, clearLine+"\n")+clearLine+clearBelow)
	return err
}

// blocks is for what is no terminal.
func blocks(ctx context.Context, out io.Writer, next func(context.Context) (*Frame, error)) error {
	var last *Frame
	written := false
	for {
		frame, err := next(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the user has ended it
		}
		if err != nil {
			return err
		}
		if last == nil || frame.Same != last.Same {
			last = frame
			text, err := frame.block(written)
			if err != nil {
				return err
			}
			if _, err := io.WriteString(out, text); err != nil {
				return err
			}
			written = written || text != ""
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(frame.Pause):
		}
	}
}

// block is the text of a frame, after the line that separates it from the one before.
func (f *Frame) block(separate bool) (string, error) {
	var text strings.Builder
	err := f.Draw(&text, nil)
	if !separate || text.Len() == 0 {
		return text.String(), err
	}
	return f.Between + "\n" + text.String(), err
}
