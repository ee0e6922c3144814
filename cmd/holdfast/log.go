package main

import (
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/holdfast-storage/holdfast/trace"
)

// logging configures the log, on standard error.
type logging struct {
	floor  slog.Level    // the configured one; debug may lower it while the program runs
	level  slog.LevelVar // at the moment
	format string
	traces *trace.Exporter
}

func logFlags(flags *pflag.FlagSet) *logging {
	l := &logging{traces: trace.New("holdfast-" + flags.Name())}
	flags.TextVar(&l.floor, "log-level", slog.LevelInfo, "the lowest `level` that is logged: debug, info, warn or error")
	flags.StringVar(&l.format, "log-format", "text", "`format` of the log: text or json")
	return l
}

// silenceLibraries takes the logger of the libraries away: what they log there they return as errors too, and they log
// mount flags, which may be sensitive.
var silenceLibraries = sync.OnceFunc(func() { klog.SetSlogLogger(slog.New(slog.DiscardHandler)) })

func (l *logging) logger() (*slog.Logger, error) {
	silenceLibraries()
	l.level.Set(l.floor)
	options := &slog.HandlerOptions{Level: &l.level}
	switch l.format {
	case "text":
		return slog.New(l.traces.Handler(slog.NewTextHandler(os.Stderr, options))), nil
	case "json":
		return slog.New(l.traces.Handler(slog.NewJSONHandler(os.Stderr, options))), nil
	}
	return nil, fmt.Errorf("--log-format %q: it must be text or json: %w", l.format, errUsage)
}
