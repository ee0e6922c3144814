package transfer

import (
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/holdfast-storage/holdfast/transfer/protocol"
)

// report writes the progress at every change of the phase, and in intervals.
type report struct {
	out  io.Writer
	stop chan struct{}
	over sync.WaitGroup

	mu  sync.Mutex
	now protocol.Progress
	err error // of the first line that could not be written
}

func startReport(out io.Writer, every time.Duration, size int64) *report {
	r := &report{out: out, stop: make(chan struct{}), now: protocol.Progress{Total: size}}
	r.over.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-r.stop:
				return
			case <-tick.C:
				r.mu.Lock()
				r.write()
				r.mu.Unlock()
			}
		}
	})
	return r
}

// phase begins a phase. What was done in the one before is the best estimate of what there is to do.
func (r *report) phase(p protocol.Phase) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now.Done > 0 {
		r.now.Total = r.now.Done
	}
	r.now.Phase, r.now.Done = p, 0
	r.write()
}

func (r *report) add(bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now.Done += bytes
	r.now.Total = max(r.now.Total, r.now.Done)
}

// write needs the lock.
func (r *report) write() {
	line, err := json.Marshal(r.now)
	if err == nil {
		_, err = r.out.Write(append(line, '\n'))
	}
	r.err = errors.Join(r.err, err)
}

func (r *report) end() error {
	close(r.stop)
	r.over.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.write()
	return r.err
}
