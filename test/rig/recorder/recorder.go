// Package recorder keeps the events that a controller records in a test.
package recorder

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
)

// Recorder keeps events. Its zero value has none.
type Recorder struct {
	record.EventRecorder
	mu  sync.Mutex
	all []string
}

// Event keeps an event as NAME TYPE REASON: MESSAGE, without the name of an object that has none.
func (r *Recorder) Event(o runtime.Object, kind, reason, message string) {
	name := ""
	if m, ok := o.(interface{ GetName() string }); ok {
		name = m.GetName()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, fmt.Sprintf("%s %s %s: %s", name, kind, reason, message))
}

// Eventf is Event.
func (r *Recorder) Eventf(o runtime.Object, kind, reason, format string, args ...any) {
	r.Event(o, kind, reason, fmt.Sprintf(format, args...))
}

// With returns the events that contain all words.
func (r *Recorder) With(words ...string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.all), func(event string) bool {
		return slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(event, word) })
	})
}
