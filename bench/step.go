package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
)

// Failure is an object that did not finish a step.
type Failure struct {
	Step   string `json:"step"`
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// state is the state of an object in a step.
type state int

const (
	pending state = iota
	finished
	full   // pending until other objects make space
	failed // will never finish
)

func doneIf(done bool) state {
	if done {
		return finished
	}
	return pending
}

// step calls do for all names concurrently and waits until each has finished. If some have finished and the cluster has
// no space for the others, it returns early, without an error. The state does not change while look runs.
func (b *Bench) step(ctx context.Context, what, kind string, names []string, do func(context.Context, string) error, look func(string) state) error {
	if len(names) > 1 {
		b.Log.Info("waiting", "for", what, "atOnce", len(names))
	}
	limited, cancel := context.WithTimeoutCause(ctx, b.Timeout, fmt.Errorf("not done within the timeout of %s", b.Timeout))
	defer cancel()
	err := atOnce(names, func(name string) error { return do(limited, name) })
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	err = b.seen.await(limited, func() (bool, error) {
		count := map[state]int{}
		for _, name := range names {
			count[look(name)]++
		}
		if count[failed] > 0 {
			return false, errors.New("an object cannot finish")
		}
		return count[pending] == 0 && (count[full] == 0 || count[finished] > 0), nil
	})
	if err == nil || ctx.Err() != nil {
		return err // an interruption is not a failure
	}
	return b.unfinished(what, kind, names, look, err)
}

// unfinished records why names have not finished.
func (b *Bench) unfinished(what, kind string, names []string, look func(string) state, cause error) error {
	var left []string
	b.seen.read(func() {
		for _, name := range names {
			if look(name) != finished {
				reason := b.seen.why(kind, name)
				left = append(left, name+" ("+reason+")")
				b.failures = append(b.failures, Failure{Step: what, Kind: kind, Name: name, Reason: reason})
			}
		}
	})
	const shown = 3
	list := strings.Join(left[:min(len(left), shown)], ", ")
	if len(left) > shown {
		list += fmt.Sprintf(" and %d more", len(left)-shown)
	}
	return fmt.Errorf("%s: %w: %d of %d did not finish: %s", what, cause, len(left), len(names), list)
}

// why returns what is known about an object that does not finish.
func (s *seen) why(kind, name string) string {
	pod := podSeen{}
	if kind == "Pod" {
		pod = *s.pod(name)
	}
	for _, reason := range []string{pod.ended, pod.waiting, s.warnings.last[objectKey{kind, name}], pod.unplaced} {
		if reason != "" {
			return reason
		}
	}
	return "the cluster does not say why"
}

// atOnce calls do for all names concurrently.
func atOnce(names []string, do func(name string) error) error {
	var (
		doing sync.WaitGroup
		start = make(chan struct{})
		errs  = make([]error, len(names))
	)
	for i, name := range names {
		doing.Go(func() {
			<-start
			if err := do(name); err != nil {
				errs[i] = fmt.Errorf("%s: %w", name, err)
			}
		})
	}
	close(start)
	doing.Wait()
	var failed []error
	for _, err := range errs {
		if err != nil {
			failed = append(failed, err)
		}
	}
	if len(failed) > 1 {
		return fmt.Errorf("%w (and %d more of %d)", failed[0], len(failed)-1, len(names))
	}
	return errors.Join(failed...)
}
