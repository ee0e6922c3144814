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
	"k8s.io/utils/ptr"
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

// begin starts read for the pod, unless its log is being read already or has been found to hold the word: what is read
// after that may lack the word, which has been rotated away.
func (l *logs) begin(ctx context.Context, job string, pod *core.Pod, read func(ctx context.Context) (logState, time.Duration)) {
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
		state, after := read(ctx)
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

// follow reads the log from its beginning while the container runs, until it holds the word. The stream continues when
// the log is rotated.
func (l *logs) follow(ctx context.Context, job, word string, pod *core.Pod) {
	l.begin(ctx, job, pod, func(ctx context.Context) (logState, time.Duration) {
		state, err := l.stream(ctx, pod, word, &core.PodLogOptions{Container: containerName, Follow: true})
		if state.found {
			return state, 0
		}
		state.err = errorText(err)
		return state, readAgain
	})
}

// read reads the log of a container that has ended.
func (l *logs) read(ctx context.Context, job, word string, pod *core.Pod) {
	l.begin(ctx, job, pod, func(ctx context.Context) (logState, time.Duration) {
		options := &core.PodLogOptions{Container: containerName}
		if word == "" {
			options.TailLines = ptr.To[int64](tailLines)
		}
		state, err := logState{}, context.Canceled // unless it is tried
		tries := wait.Backoff{Duration: readAgain, Steps: readAttempts}
		_ = wait.ExponentialBackoffWithContext(ctx, tries, func(ctx context.Context) (bool, error) {
			state, err = l.readOnce(ctx, pod, word, options)
			return err == nil || apierrors.IsNotFound(err), nil
		}) // it ends with the last error, or with ctx
		state.whole, state.err = true, errorText(err)
		if t := containerStatus(pod).State.Terminated; t != nil {
			state.tail = cmp.Or(state.tail, t.Message)
		}
		return state, 0
	})
}

func (l *logs) readOnce(ctx context.Context, pod *core.Pod, word string, options *core.PodLogOptions) (logState, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return l.stream(ctx, pod, word, options)
}

// stream reads to the end of the log, or to the word.
func (l *logs) stream(ctx context.Context, pod *core.Pod, word string, options *core.PodLogOptions) (logState, error) {
	body, err := l.kubernetes.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, options).Stream(ctx)
	if err != nil {
		return logState{}, err
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
			return logState{found: s.found, tail: s.text()}, nil
		case err != nil:
			return logState{tail: s.text()}, fmt.Errorf("reading the log of pod %s: %w", pod.Name, err)
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

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
