package bench

import (
	"cmp"
	"maps"
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

// warnings counts events of type Warning.
type warnings struct {
	counted map[types.UID]int              // by event: its last count, since repetitions only increase that
	last    map[objectKey]string           // message per object
	kinds   map[Warning]int                // occurrences per warning, without its numbers
	objects map[Warning]map[objectKey]bool // objects per warning
}

type objectKey struct{ kind, name string }

func newWarnings() warnings {
	return warnings{map[types.UID]int{}, map[objectKey]string{}, map[Warning]int{}, map[Warning]map[objectKey]bool{}}
}

func (w *warnings) add(e *core.Event) {
	count := max(int(e.Count), 1)
	if e.Series != nil {
		count = max(count, int(e.Series.Count))
	}
	of := objectKey{e.InvolvedObject.Kind, e.InvolvedObject.Name}
	what := Warning{Kind: of.kind, Reason: e.Reason, Message: anonymous(e.Message, of.name)}
	w.kinds[what] += max(count-w.counted[e.UID], 0)
	w.counted[e.UID] = max(count, w.counted[e.UID])
	w.last[of] = joinReason(e.Reason, e.Message)
	if w.objects[what] == nil {
		w.objects[what] = map[objectKey]bool{}
	}
	w.objects[what][of] = true
}

// all returns the warnings, the most frequent first.
func (w *warnings) all() []Warning {
	result := make([]Warning, 0, len(w.kinds))
	for what := range maps.Keys(w.kinds) {
		counted := what
		counted.Count, counted.Objects = w.kinds[what], len(w.objects[what])
		result = append(result, counted)
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
