package ganesha

import (
	"bytes"
	"context"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// lines is an io.Writer that calls hear for each line.
type lines struct {
	hear func(line string)

	mu   sync.Mutex
	rest []byte
}

const longestLine = 4000

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, p...)
	for {
		line, rest, found := bytes.Cut(l.rest, []byte("\n"))
		if !found && len(l.rest) < longestLine {
			return len(p), nil
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			l.hear(string(line[:min(len(line), longestLine)]))
		}
		l.rest = bytes.Clone(rest)
	}
}

// logLine matches a line of Ganesha's log: component, level, message.
var logLine = regexp.MustCompile(`:([A-Z0-9_ ]+) :([A-Z_]+) :(.*)$`)

var levels = map[string]slog.Level{
	"FATAL": slog.LevelError,
	"MAJ":   slog.LevelError,
	"CRIT":  slog.LevelError,
	"WARN":  slog.LevelWarn,
}

// ignoredMessages are complaints of Ganesha that do not matter here: no rpcbind, Kerberos, domain, or RADOS library.
var ignoredMessages = []string{
	"Cannot register NFS V4 on TCP",
	"gssd_refresh_krb5_machine_credential",
	"does not specify default realm",
	"while getting full hostname",
	"Missing RADOS URLs backend library",
}

// logGanesha logs a line with the matching level.
func logGanesha(log *slog.Logger) func(string) {
	return func(line string) {
		part, level, text := "", slog.LevelInfo, line
		if m := logLine.FindStringSubmatch(line); m != nil {
			part, text = strings.TrimSpace(m[1]), m[3]
			level = logLevel(part, m[2], text)
		}
		log.Log(context.Background(), level, "NFS-Ganesha says", "part", part, "text", text)
	}
}

func logLevel(part, level, text string) slog.Level {
	if slices.ContainsFunc(ignoredMessages, func(u string) bool { return strings.Contains(text, u) }) {
		return slog.LevelDebug
	}
	if l, known := levels[level]; known {
		return l
	}
	if part == "STATE" && level == "EVENT" { // start and end of the grace period
		return slog.LevelInfo
	}
	return slog.LevelDebug
}
