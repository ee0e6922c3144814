package backend

import (
	"log/slog"
	"time"
)

// Step begins a step of what is done to a volume or snapshot. The returned function ends it, and logs how long it took, which
// makes it a span of its trace:
//
//	defer backend.Step(log, id, "mount")()
func Step(log *slog.Logger, id ID, step string) (end func()) {
	begun := time.Now()
	return func() { log.Debug(step, "id", id, "duration", time.Since(begun)) } //nolint:sloglint // of a few
}
