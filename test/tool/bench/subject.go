package main

import "context"

// subject makes volumes and uses them: the driver through its socket, or shell commands that do the same.
type subject interface {
	create(ctx context.Context, name string, size int64, fs string) error // which only images choose
	attach(ctx context.Context, name string) error                        // and mount it at path(name)
	path(name string) string
	snapshot(ctx context.Context, name, of string) error
	restore(ctx context.Context, name, snapshot string, size int64) error
	clone(ctx context.Context, name, of string, size int64) error
	expand(ctx context.Context, name string, size int64) error // while attached
	detach(ctx context.Context, name string) error
	remove(ctx context.Context, name string) error
	removeSnapshot(ctx context.Context, name string) error
}

func begin(ctx context.Context, s subject, name string, size int64, fs string) error {
	if err := s.create(ctx, name, size, fs); err != nil {
		return err
	}
	return s.attach(ctx, name)
}

func end(ctx context.Context, s subject, name string) error {
	if err := s.detach(ctx, name); err != nil {
		return err
	}
	return s.remove(ctx, name)
}
