package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-storage/holdfast/test/rig/standalone"
)

const (
	gib   = 1 << 30
	first = gib / 2 // size of the volume when it is made
)

// story is the client's side of the demo.
type story struct {
	standalone.Volumes
	out   io.Writer
	steps int
}

// step does one thing and prints it as one line with what came of it and how long it took.
func (s *story) step(ctx context.Context, what string, do func(context.Context) (detail string, err error)) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("stopped before: %s: %w", what, err)
	}
	begun := time.Now()
	detail, err := do(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	s.steps++
	_, err = fmt.Fprintf(s.out, "%2d  %-44s %8.1f ms   %s\n", s.steps, what, float64(time.Since(begun).Microseconds())/1000, detail)
	return err
}

// run is a volume's life.
func (s *story) run(ctx context.Context) error {
	const name, copied = "orders", "orders-before"
	for _, part := range []struct {
		what string
		do   func(context.Context) (string, error)
	}{
		{"create a volume of 512 MiB", func(ctx context.Context) (string, error) { return s.create(ctx, name, nil) }},
		{"stage it: attach and mount", func(ctx context.Context) (string, error) { return "staged", s.Stage(ctx, name) }},
		{"publish it where a workload looks", func(ctx context.Context) (string, error) { return s.Target(name), s.Publish(ctx, name) }},
		{"write a file", func(context.Context) (string, error) { return s.write(name, "first") }},
		{"write until it is full: the limit holds", func(ctx context.Context) (string, error) { return s.overfill(ctx, name) }},
		{"take a snapshot", func(ctx context.Context) (string, error) { return s.snapshot(ctx, name, "monday") }},
		{"overwrite the file", func(context.Context) (string, error) { return s.write(name, "second") }},
		{"restore the snapshot into a second volume", func(ctx context.Context) (string, error) {
			return s.create(ctx, copied, standalone.Source("monday", ""))
		}},
		{"stage that one beside the first", func(ctx context.Context) (string, error) { return "staged", s.Stage(ctx, copied) }},
		{"publish it", func(ctx context.Context) (string, error) { return s.Target(copied), s.Publish(ctx, copied) }},
		{"read both", func(context.Context) (string, error) { return s.compare(name, "second", copied, "first") }},
		{"look at the first volume's size", func(ctx context.Context) (string, error) { return s.usage(ctx, name, 0) }},
		{"grow it to 2 GiB while it is used", func(ctx context.Context) (string, error) { return s.expand(ctx, name, 2*gib) }},
		{"look again", func(ctx context.Context) (string, error) { return s.usage(ctx, name, 19*gib/10) }},
		{"read both again", func(context.Context) (string, error) { return s.compare(name, "second", copied, "first") }},
		{"unpublish, unstage and delete the second", func(ctx context.Context) (string, error) { return s.end(ctx, copied) }},
		{"delete the snapshot", func(ctx context.Context) (string, error) { return s.forget(ctx, "monday") }},
		{"unpublish, unstage and delete the first", func(ctx context.Context) (string, error) { return s.end(ctx, name) }},
		{"see that the pool is empty", s.empty},
	} {
		if err := s.step(ctx, part.what, part.do); err != nil {
			return err
		}
	}
	return nil
}

func (s *story) file(name string) string { return filepath.Join(s.Target(name), "book") }

func (s *story) write(name, content string) (string, error) {
	return fmt.Sprintf("%q", content), os.WriteFile(s.file(name), []byte(content), 0o644)
}

// overfill writes until the volume is full.
func (s *story) overfill(ctx context.Context, name string) (string, error) {
	path := filepath.Join(s.Target(name), "too-large")
	f, err := os.Create(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	var written int64
	for chunk := make([]byte, 4<<20); written <= first && ctx.Err() == nil; {
		n, err := f.Write(chunk)
		written += int64(n)
		if errors.Is(err, syscall.ENOSPC) {
			return fmt.Sprintf("after %d MiB: %v", written>>20, syscall.ENOSPC), os.Remove(path)
		}
		if err != nil {
			return "", err
		}
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	return "", fmt.Errorf("%d bytes were written to a volume of %d", written, first)
}

// compare reads the file of the volume and of the one restored from its snapshot.
func (s *story) compare(name, want, copied, wantCopied string) (string, error) {
	content, err := os.ReadFile(s.file(name))
	if err != nil {
		return "", err
	}
	old, err := os.ReadFile(s.file(copied))
	if err == nil && (string(content) != want || string(old) != wantCopied) {
		err = fmt.Errorf("they say %q and %q, not %q and %q", content, old, want, wantCopied)
	}
	return fmt.Sprintf("the volume says %q, the restored one %q", content, old), err
}

// usage reports what the driver says and what df sees, and fails below least bytes.
func (s *story) usage(ctx context.Context, name string, least int64) (string, error) {
	resp, err := s.NodeGetVolumeStats(ctx, &csi.NodeGetVolumeStatsRequest{VolumeId: name, VolumePath: s.Target(name)})
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for _, u := range resp.GetUsage() {
		if u.GetUnit() == csi.VolumeUsage_INODES {
			fmt.Fprintf(&text, ", %d of %d files", u.GetUsed(), u.GetTotal())
			continue
		}
		if u.GetTotal() < least {
			return "", fmt.Errorf("the volume has %d bytes, expected at least %d", u.GetTotal(), least)
		}
		fmt.Fprintf(&text, "%d of %d MiB used", u.GetUsed()>>20, u.GetTotal()>>20)
	}
	size, err := df(ctx, s.Target(name))
	return fmt.Sprintf("stats: %s; df: %s", &text, size), err
}

func (s *story) empty(ctx context.Context) (string, error) {
	volumes, err := s.ListVolumes(ctx, &csi.ListVolumesRequest{})
	if err != nil {
		return "", err
	}
	if n := len(volumes.GetEntries()); n > 0 {
		return "", fmt.Errorf("%d volumes are left", n)
	}
	room, err := s.GetCapacity(ctx, &csi.GetCapacityRequest{})
	return fmt.Sprintf("%d MiB can be promised", room.GetAvailableCapacity()>>20), err
}
