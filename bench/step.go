package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// Failure is an object that did not finish a step.
type Failure struct {
	Step   string `json:"step"`
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

type state int

const (
	pending state = iota
	finished
	full   // pending until other objects make space
	failed // will never finish
)

// state returns that of a plan whose pod or claim waits for an event.
func (s *seen) state(p plan, until event) state {
	ran := !s.at(until, p).IsZero()
	switch pod := s.pods[p.pod]; {
	case ran && until == podRunning && p.claim != "" && s.at(claimBound, p).IsZero():
		return pending // the pod's watch may be ahead of the claim's
	case ran:
		return finished
	case until == podRunning && pod.ended != "":
		return failed
	case until == podRunning && isFull(pod.unplaced):
		return full
	}
	return pending
}

// isFull returns whether the scheduler's message says that nodes have too many pods, or too many volumes of the driver.
func isFull(message string) bool {
	return strings.Contains(message, "Too many pods") || strings.Contains(message, "exceed max volume count")
}

// step calls do for all plans concurrently and waits for an event of each. If some have finished and the cluster has no
// space for the others, it returns early, without an error.
func (b *Bench) step(ctx context.Context, what string, plans []plan, until event, do func(context.Context, plan) error) error {
	if len(plans) > 1 {
		b.Log.Info("waiting", "for", what, "atOnce", len(plans))
	}
	limited, cancel := context.WithTimeoutCause(ctx, b.Timeout, fmt.Errorf("not done within the timeout of %s", b.Timeout))
	defer cancel()
	err := atOnce(plans, func(p plan) (string, error) { return p.name(until), do(limited, p) })
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	err = b.seen.await(limited, func() (bool, error) {
		count := map[state]int{}
		for _, p := range plans {
			count[b.seen.state(p, until)]++
		}
		if count[failed] > 0 {
			return false, errors.New("an object cannot finish")
		}
		return count[pending] == 0 && (count[full] == 0 || count[finished] > 0), nil
	})
	if err == nil || ctx.Err() != nil {
		return err // an interruption is not a failure
	}
	return b.unfinished(what, plans, until, err)
}

// unfinished records why plans have not finished.
func (b *Bench) unfinished(what string, plans []plan, until event, cause error) error {
	var left []string
	b.seen.read(func() {
		for _, p := range plans {
			if b.seen.state(p, until) != finished {
				f := Failure{Step: what, Kind: until.kind(), Name: p.name(until)}
				f.Reason = b.seen.why(f.Kind, f.Name)
				b.failures = append(b.failures, f)
				left = append(left, f.Name+" ("+f.Reason+")")
			}
		}
	})
	const shown = 3
	list := strings.Join(left[:min(len(left), shown)], ", ")
	if len(left) > shown {
		list += fmt.Sprintf(" and %d more", len(left)-shown)
	}
	return fmt.Errorf("%s: %w: %d of %d did not finish: %s", what, cause, len(left), len(plans), list)
}

// why returns what is known about an object that does not finish.
func (s *seen) why(kind, name string) string {
	pod := s.pods[name]
	for _, reason := range []string{pod.ended, pod.waiting, s.warnings.last[objectKey{kind, name}], pod.unplaced} {
		if reason != "" {
			return reason
		}
	}
	return "the cluster does not say why"
}

// atOnce calls do for all concurrently, which returns a name and an error.
func atOnce[T any](all []T, do func(T) (string, error)) error {
	var g errgroup.Group
	var failed atomic.Int64
	for _, one := range all {
		g.Go(func() error {
			name, err := do(one)
			if err != nil {
				failed.Add(1)
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		})
	}
	err := g.Wait()
	if n := failed.Load(); n > 1 {
		return fmt.Errorf("%w (and %d more of %d)", err, n-1, len(all))
	}
	return err
}
