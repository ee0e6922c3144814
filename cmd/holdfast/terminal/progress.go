package terminal

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/holdfast-storage/holdfast/printable"
)

// Progress shows what a command is doing. On a terminal it is one line, which is rewritten and goes when there is
// something to read; elsewhere each state is a line of its own.
type Progress struct {
	out   io.Writer
	t     *Terminal
	began time.Time

	mu    sync.Mutex
	state string
	stop  chan struct{} // ends the clock; nil while nothing is shown
	ended sync.WaitGroup
}

// NewProgress writes to out, beside which nothing else writes but through Write.
func NewProgress(out io.Writer) *Progress { return &Progress{out: out, t: Of(out)} }

// tick is how often the time that has passed is rewritten.
const tick = time.Second

// Set shows another state, in one line: others may have written some of it.
func (p *Progress) Set(state string) error {
	state = printable.Line(state)
	p.mu.Lock()
	defer p.mu.Unlock()
	if state == p.state {
		return nil
	}
	p.state = state
	if p.t == nil {
		_, err := fmt.Fprintln(p.out, state)
		return err
	}
	if p.stop == nil {
		stop := make(chan struct{})
		p.began, p.stop = time.Now(), stop
		p.ended.Go(func() { p.run(stop) })
	}
	return p.draw()
}

func (p *Progress) run(stop chan struct{}) {
	clock := time.NewTicker(tick)
	defer clock.Stop()
	for {
		select {
		case <-stop:
			return
		case <-clock.C:
			p.mu.Lock()
			if p.stop == stop {
				_ = p.draw() // the next write of the command fails too
			}
			p.mu.Unlock()
		}
	}
}

// draw rewrites the line, cut to one: a longer one could not be rewritten.
func (p *Progress) draw() error {
	width, _ := p.t.Size()
	line := fmt.Sprintf("[%ds] %s", int(time.Since(p.began).Seconds()), p.state)
	_, err := io.WriteString(p.out, "\r"+Cut(line, width-1)+clearLine)
	return err
}

// Done takes the line away, if there is one.
func (p *Progress) Done() {
	p.mu.Lock()
	stop := p.stop
	if stop != nil {
		close(stop)
		_, _ = io.WriteString(p.out, "\r"+clearLine)
	}
	p.stop, p.state = nil, ""
	p.mu.Unlock()
	p.ended.Wait()
}

// Write is for all else that the command prints: it takes the place of the line.
func (p *Progress) Write(text []byte) (int, error) {
	p.Done()
	return p.out.Write(text)
}

// Cut shortens a line to a width.
func Cut(line string, width int) string {
	runes := []rune(line)
	if width <= 0 || len(runes) <= width {
		return line
	}
	end := "~"
	if Unicode() {
		end = "…"
	}
	return string(runes[:width-1]) + end
}
