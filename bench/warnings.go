package bench

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Warning is an event of type Warning about one or more objects. Names in the message are replaced.
type Warning struct {
	Kind    string `json:"kind"` // of the objects
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Objects int    `json:"objects"` // number of objects
	Count   int    `json:"count"`   // number of occurrences
}

// warnings are events of type Warning, whose count only increases, and the last message about each object.
type warnings struct {
	events map[types.UID]*core.Event
	last   map[objectKey]string
}

type objectKey struct{ kind, name string }

func (w *warnings) add(e *core.Event) {
	w.events[e.UID] = e
	w.last[objectKey{e.InvolvedObject.Kind, e.InvolvedObject.Name}] = e.Reason + ": " + strings.TrimSpace(e.Message)
}

// all returns the warnings, the most frequent first.
func (w *warnings) all() []Warning {
	counts, objects := map[Warning]int{}, map[Warning]map[string]bool{}
	for _, e := range w.events {
		of := e.InvolvedObject
		what := Warning{Kind: of.Kind, Reason: e.Reason, Message: anonymous(e.Message, of.Name)}
		count := max(int(e.Count), 1)
		if e.Series != nil {
			count = max(count, int(e.Series.Count))
		}
		counts[what] += count
		if objects[what] == nil {
			objects[what] = map[string]bool{}
		}
		objects[what][of.Name] = true
	}
	result := make([]Warning, 0, len(counts))
	for what, names := range objects {
		result = append(result, Warning{what.Kind, what.Reason, what.Message, len(names), counts[what]})
	}
	slices.SortFunc(result, func(a, b Warning) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Kind+a.Reason+a.Message, b.Kind+b.Reason+b.Message))
	})
	return result
}

// id matches UIDs and container ids.
var id = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32,}`)

// anonymous replaces names, so that the same message about several objects is one.
func anonymous(message, name string) string {
	return id.ReplaceAllString(strings.ReplaceAll(message, name, "NAME"), "ID")
}
