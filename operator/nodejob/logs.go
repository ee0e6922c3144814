package nodejob

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

// logs reads logs concurrently, and queues a job when one of its logs has something new.
type logs struct {
	kubernetes kubernetes.Interface
	wake       func(job string, after time.Duration)

	mu    sync.Mutex
	known map[types.UID]*reading
}

// reading is the state of one pod's log.
type reading struct {
	job    string
	state  logState
	cancel context.CancelFunc // of the running reader; nil if there is none
}

const (
	readAttempts = 3
	readTimeout  = 20 * time.Second
	readAgain    = time.Second
	tailLines    = 200
)

// of returns the states of the pods' logs.
func (l *logs) of(pods []*core.Pod) map[types.UID]logState {
	l.mu.Lock()
	defer l.mu.Unlock()
	states := map[types.UID]logState{}
	for _, p := range pods {
		if r := l.known[p.UID]; r != nil {
			states[p.UID] = r.state
		}
	}
	return states
}

// forget stops the readers of a job that is gone or has ended.
func (l *logs) forget(job string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for uid, r := range l.known {
		if r.job != job {
			continue
		}
		if r.cancel != nil {
			r.cancel()
		}
		delete(l.known, uid)
	}
}

// read reads the log of a container, unless it is being read already or has been found to hold the word: what is read
// after that may lack the word, which has been rotated away. The log of a container that runs is followed until it holds
// the word, across its rotations; where there is no word, what it has by now is read.
func (l *logs) read(ctx context.Context, job, word string, pod *core.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.known[pod.UID]
	if r == nil {
		r = &reading{job: job}
		l.known[pod.UID] = r
	}
	if r.cancel != nil || r.state.found {
		return
	}
	ctx, r.cancel = context.WithCancel(ctx)
	go func() {
		var state logState
		var after time.Duration
		if word != "" && containerStatus(pod).State.Running != nil {
			state, after = l.stream(ctx, pod, word, &core.PodLogOptions{Container: containerName, Follow: true}), readAgain
		} else {
			state = l.readWhole(ctx, word, pod)
		}
		if state.found {
			after = 0
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		r.cancel()
		r.state, r.cancel = state, nil
		l.wake(job, after)
	}()
}

// heard keeps the end of a log that is still being read.
func (l *logs) heard(pod types.UID, tail string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.known[pod]; r != nil {
		r.state.tail = tail
	}
}

// readWhole tries until it gets the log, ends with the last error, or with ctx.
func (l *logs) readWhole(ctx context.Context, word string, pod *core.Pod) logState {
	options := &core.PodLogOptions{Container: containerName}
	if word == "" {
		options.TailLines = new(int64(tailLines))
	}
	state := logState{err: context.Canceled} // unless it is tried
	tries := wait.Backoff{Duration: readAgain, Steps: readAttempts}
	_ = wait.ExponentialBackoffWithContext(ctx, tries, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		state = l.stream(ctx, pod, word, options)
		return state.err == nil || apierrors.IsNotFound(state.err), nil
	})
	state.whole = true
	if t := containerStatus(pod).State.Terminated; t != nil {
		state.tail = cmp.Or(state.tail, t.Message)
	}
	return state
}

// stream reads to the end of the log, or to the word.
func (l *logs) stream(ctx context.Context, pod *core.Pod, word string, options *core.PodLogOptions) logState {
	body, err := l.kubernetes.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, options).Stream(ctx)
	if err != nil {
		return logState{err: err}
	}
	defer body.Close()
	s := search{word: word}
	buffer := make([]byte, 32<<10)
	for {
		n, err := body.Read(buffer)
		s.add(buffer[:n])
		l.heard(pod.UID, s.text())
		switch {
		case s.found || errors.Is(err, io.EOF):
			return logState{found: s.found, tail: s.text()}
		case err != nil:
			return logState{tail: s.text(), err: fmt.Errorf("reading the log of pod %s: %w", pod.Name, err)}
		}
	}
}

// search looks for the word in a stream, and keeps the end of the stream.
type search struct {
	word  string
	found bool
	kept  []byte
}

func (s *search) add(data []byte) {
	s.kept = append(s.kept, data...)
	// The word may begin in the previous data.
	if s.word != "" && !s.found {
		from := max(0, len(s.kept)-len(data)-len(s.word)+1)
		s.found = strings.Contains(string(s.kept[from:]), s.word)
	}
	if over := len(s.kept) - longestTail; over > 0 {
		s.kept = append(s.kept[:0], s.kept[over:]...)
	}
}

func (s *search) text() string { return strings.ToValidUTF8(string(s.kept), "") }
