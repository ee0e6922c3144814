package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"
)

// call is done to a volume, or to a snapshot. It is a row of the table if it has a title.
type call struct {
	title    string
	verb     string
	name, of string // what it is done to, and its source
	size     int64
	fs       string // of an image that is created
}

// subject makes volumes and uses them: the driver through its socket, or shell commands that do the same.
type subject interface {
	do(ctx context.Context, c call) error
	path(name string) string // where a volume is mounted once it is attached
}

// perform does calls one after the other, and returns how many seconds each took.
func perform(ctx context.Context, s subject, calls ...call) (took []float64, err error) {
	for _, c := range calls {
		begun := time.Now()
		if c.verb == "write" {
			err = fill(c.size, filepath.Join(s.path(c.name), "file"))
		} else {
			err = s.do(ctx, c)
		}
		if err != nil {
			return nil, fmt.Errorf("%s of %s: %w", c.verb, c.name, err)
		}
		took = append(took, time.Since(begun).Seconds())
	}
	return took, nil
}

// begin creates and attaches a volume, of which end leaves nothing.
func begin(ctx context.Context, s subject, name string, size int64, fs string) error {
	_, err := perform(ctx, s, call{verb: "create", name: name, size: size, fs: fs}, call{verb: "attach", name: name})
	return err
}

func end(ctx context.Context, s subject, name string) error {
	_, err := perform(ctx, s, call{verb: "detach", name: name}, call{verb: "remove", name: name})
	return err
}
