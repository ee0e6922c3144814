package ganesha

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// The back-off between a failure of Ganesha and its next start. After a long run, it restarts almost at once.
const (
	shortestWait = 200 * time.Millisecond
	longestWait  = 30 * time.Second
	longLife     = time.Minute
)

// questionsBeforeRetry is the number of probes after which exports that Ganesha refused are retried, such as one whose
// disk was missing.
const questionsBeforeRetry = 6

// Run serves until ctx ends, and then stops its processes. It may be called once.
func (s *Server) Run(ctx context.Context) error {
	if err := s.begin(); err != nil {
		return err
	}
	defer close(s.ended)
	wait := time.Duration(0)
	for {
		began := time.Now()
		err := s.runOnce(ctx)
		if ctx.Err() != nil {
			if errors.Is(err, ctx.Err()) {
				err = nil // it had not started yet
			}
			return err
		}
		wait = nextWait(wait, time.Since(began))
		s.countRestart()
		s.config.Log.Error("the NFS server is down and starts again", "error", err, "wait", wait)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

func (s *Server) countRestart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.restarts++
}

// nextWait returns the back-off from the previous one and the duration of the last run.
func nextWait(before, lived time.Duration) time.Duration {
	if lived > longLife {
		before = 0
	}
	return min(max(2*before, shortestWait), longestWait)
}

func (s *Server) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun {
		return errors.New("the NFS server has run before; make another with New")
	}
	for _, dir := range []string{s.config.RunDir, s.config.RecoveryDir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("the NFS server's directory: %w", err)
		}
	}
	s.begun = true
	return nil
}

// runOnce starts Ganesha and returns when it has ended.
func (s *Server) runOnce(ctx context.Context) error {
	l, err := s.start(ctx)
	if err != nil {
		return err
	}
	s.serve(l)
	err = s.applyLoop(ctx, l)
	s.serve(nil)
	if ctx.Err() != nil {
		return l.end(s.config.StopLimit)
	}
	return errors.Join(err, l.exitCause(), l.end(0))
}

// applyLoop keeps the exports of Ganesha as desired until ctx ends or Ganesha fails.
func (s *Server) applyLoop(ctx context.Context, l *process) error {
	s.config.Log.Info("the NFS server is up", "port", s.config.Port, "exports", len(l.served))
	watching, stop := context.WithCancel(ctx)
	defer stop()
	sick := make(chan error, 2)
	go func() { sick <- l.watch(watching, &s.config) }()
	go func() { sick <- s.disk.watch(watching, s.config.Patience) }()
	retry := time.NewTicker(questionsBeforeRetry * s.config.Interval)
	defer retry.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case err = <-sick:
			return err
		case <-l.bus.done:
			return nil // fate returns the cause
		case <-l.ganesha.done:
			return nil
		case r := <-s.requests:
			err = s.apply(l, r.id)
			r.done <- err
		case <-retry.C:
			err = s.applyAll(l)
		}
		if err != nil && !errors.Is(err, errRefused) {
			return err
		}
	}
}
