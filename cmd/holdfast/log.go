package main

import (
	"flag"
	"fmt"
	"log/slog"
	"os"

	"k8s.io/klog/v2"
)

// logging is how the program tells what it does, on standard error.
type logging struct {
	level  slog.Level
	format string
}

func logFlags(flags *flag.FlagSet) *logging {
	l := &logging{}
	flags.TextVar(&l.level, "log-level", slog.LevelInfo, "the least `level` that is logged: debug, info, warn or error")
	flags.StringVar(&l.format, "log-format", "text", "`format` of the log: text or json")
	return l
}

// logger also silences the logger of the libraries: what they log there they return as errors too, and they log
// mount flags, which may be sensitive.
func (l *logging) logger() (*slog.Logger, error) {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	options := &slog.HandlerOptions{Level: l.level}
	switch l.format {
	case "text":
		return slog.New(slog.NewTextHandler(os.Stderr, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(os.Stderr, options)), nil
	}
	return nil, fmt.Errorf("--log-format %q: it must be text or json: %w", l.format, errUsage)
}
