package web

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// The number of items of one answer.
const (
	defaultLimit = 500
	maxLimit     = 1000
)

// parameter is one of the query of a request.
type parameter struct {
	name    string
	doc     string
	allowed []string // none allows all
	number  bool
}

var (
	nodeParameter      = parameter{name: "node", doc: "Only what is on this node."}
	poolParameter      = parameter{name: "pool", doc: "Only what is in a pool of this name, or has one."}
	phaseParameter     = parameter{name: "phase", doc: "Only what is in this phase.", allowed: words(phases)}
	nodePhaseParameter = parameter{name: "phase", doc: "Only nodes in this phase.", allowed: words(nodePhases)}
	volumeParameter    = parameter{name: "volume", doc: "Only snapshots of this volume."}
	limitParameter     = parameter{name: "limit", doc: fmt.Sprintf("At most this many items, 1 to %d; %d if left out.", maxLimit, defaultLimit), number: true}
	continueParameter  = parameter{name: "continue", doc: "Go on where the answer ended that had this value. What is made or removed between the two requests may be missing; nothing else is left out or repeated."}
)

var phases = []v1beta1.Phase{v1beta1.PhasePending, v1beta1.PhaseReady, v1beta1.PhaseFailed, v1beta1.PhaseUnreachable, v1beta1.PhaseLost, v1beta1.PhaseDeleting}

func words[S ~string](all []S) []string {
	var w []string
	for _, s := range all {
		w = append(w, string(s))
	}
	return w
}

// lists are the parameters of a list with these filters.
func lists(filters ...parameter) []parameter {
	return append(filters, limitParameter, continueParameter)
}

// query is a request that is well formed.
type query struct {
	name  string // in the path
	path  string
	text  map[string]string
	limit int
	after string // the key of the last item of the answer before
}

func readQuery(r *http.Request, allowed []parameter) (*query, error) {
	q := &query{name: r.PathValue("name"), path: r.URL.Path, text: map[string]string{}, limit: defaultLimit}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("the query cannot be read: %w", err)
	}
	for name, all := range values {
		i := slices.IndexFunc(allowed, func(p parameter) bool { return p.name == name })
		switch {
		case i < 0 && len(allowed) == 0:
			return nil, fmt.Errorf("parameter %q: none is allowed here", name)
		case i < 0:
			return nil, fmt.Errorf("parameter %q: allowed here are %s", name, strings.Join(names(allowed), ", "))
		case len(all) > 1:
			return nil, fmt.Errorf("parameter %q is given %d times; it may be given once", name, len(all))
		}
		if err := q.set(allowed[i], all[0]); err != nil {
			return nil, err
		}
	}
	return q, nil
}

func (q *query) set(p parameter, value string) error {
	switch {
	case p.name == limitParameter.name:
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 || n > maxLimit {
			return fmt.Errorf("limit %q: it must be a whole number, 1 to %d", value, maxLimit)
		}
		q.limit = n
	case p.name == continueParameter.name:
		after, err := q.readToken(value)
		if err != nil {
			return err
		}
		q.after = after
	case value == "":
		return fmt.Errorf("parameter %q is empty; leave it out or give a value", p.name)
	case len(p.allowed) > 0 && !slices.Contains(p.allowed, value):
		return fmt.Errorf("%s %q: it must be one of %s", p.name, value, strings.Join(p.allowed, ", "))
	default:
		q.text[p.name] = value
	}
	return nil
}

// wants says whether a filter lets a value pass.
func (q *query) wants(p parameter, value string) bool {
	want, given := q.text[p.name]
	return !given || want == value
}

// A token names the list and the last item that was answered. It holds no state here, so that it is good at every
// replica and for any time.
func (q *query) token(last string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(q.path + " " + last))
}

func (q *query) readToken(token string) (after string, err error) {
	text, err := base64.RawURLEncoding.DecodeString(token)
	path, after, found := strings.Cut(string(text), " ")
	if err != nil || !found || path != q.path || after == "" {
		return "", fmt.Errorf("continue %q: it must be the value that the answer before had, for the same path; leave it out to begin again", token)
	}
	return after, nil
}

// page answers with those objects that come next in the order of their keys.
func page[O, T any](q *query, all []O, key func(O) string, show func(O) T) *List[T] {
	slices.SortFunc(all, func(a, b O) int { return strings.Compare(key(a), key(b)) })
	start := 0
	if q.after != "" {
		start, _ = slices.BinarySearchFunc(all, q.after, func(o O, after string) int {
			if key(o) <= after {
				return -1
			}
			return 1
		})
	}
	all = all[start:]
	list := &List[T]{Items: []T{}}
	for _, o := range all[:min(q.limit, len(all))] {
		list.Items = append(list.Items, show(o))
	}
	if list.Remaining = len(all) - len(list.Items); list.Remaining > 0 {
		list.Continue = q.token(key(all[len(list.Items)-1]))
	}
	return list
}
