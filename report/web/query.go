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
	maxOffset    = 1 << 20
)

// parameter is one of the query of a request.
type parameter struct {
	name    string
	doc     string
	allowed []string // none allows all
	// Of a number, 0 for a text.
	least, most int
	usual       int // what it is if left out
}

var (
	nodeParameter      = parameter{name: "node", doc: "Only what is on this node."}
	poolParameter      = parameter{name: "pool", doc: "Only what is in a pool of this name, or has one."}
	phaseParameter     = parameter{name: "phase", doc: "Only what is in this phase.", allowed: words(phases)}
	nodePhaseParameter = parameter{name: "phase", doc: "Only nodes in this phase.", allowed: words(nodePhases)}
	volumeParameter    = parameter{name: "volume", doc: "Only snapshots of this volume."}
	attentionParameter = parameter{name: "attention", doc: "Only what needs attention, or only what does not.", allowed: []string{"true", "false"}}
	serverPhase        = parameter{name: "phase", doc: "Only NFS servers in this phase.", allowed: words(serverPhases)}
	searchParameter    = parameter{name: "search", doc: "Only what has all of these words in what names it: its name, claim, node, NFS server, pool, phase, or what it is about. Upper and lower case are the same."}
	offsetParameter    = parameter{name: "offset", doc: fmt.Sprintf("Leave out so many items at the beginning, at most %d. For people who turn pages: what is made or removed between two requests shifts the others.", maxOffset), most: maxOffset}
	limitParameter     = parameter{name: "limit", doc: fmt.Sprintf("At most this many items, 1 to %d; %d if left out.", maxLimit, defaultLimit), least: 1, most: maxLimit, usual: defaultLimit}
	continueParameter  = parameter{name: "continue", doc: "Go on where the answer ended that had this value. What is made or removed between the two requests may be missing; nothing else is left out or repeated."}
)

var serverPhases = []v1beta1.NFSPhase{v1beta1.NFSPending, v1beta1.NFSRunning, v1beta1.NFSDegraded, v1beta1.NFSTerminating}

var phases = []v1beta1.Phase{v1beta1.PhasePending, v1beta1.PhaseReady, v1beta1.PhaseFailed, v1beta1.PhaseUnreachable, v1beta1.PhaseLost, v1beta1.PhaseDeleting}

func words[S ~string](all []S) []string {
	var w []string
	for _, s := range all {
		w = append(w, string(s))
	}
	return w
}

// lists are the parameters of a list in these orders, with these filters.
func lists[O any](by orders[O], filters ...parameter) []parameter {
	return append(filters, searchParameter, by.parameter(), limitParameter, offsetParameter, continueParameter)
}

// query is a request that is well formed.
type query struct {
	name   string // in the path
	path   string
	text   map[string]string
	limit  int
	offset int
	sort   string // the order; by name if empty
	after  string // the key of the last item of the answer before
	search []string
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
	if q.after != "" && (q.sort != "" || q.offset > 0) {
		return nil, fmt.Errorf("continue goes on in the order of the names: leave it out, or leave out %s and %s", sortName, offsetParameter.name)
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
	case p.name == offsetParameter.name:
		n, err := strconv.Atoi(value)
		if err != nil || n < 0 || n > maxOffset {
			return fmt.Errorf("offset %q: it must be a whole number, 0 to %d", value, maxOffset)
		}
		q.offset = n
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
	case p.name == sortName:
		q.sort = value
	case p.name == searchParameter.name:
		q.search = strings.Fields(strings.ToLower(value))
	default:
		q.text[p.name] = value
	}
	return nil
}

// finds says whether what names an object has all words of the search.
func (q *query) finds(texts ...string) bool {
	if len(q.search) == 0 {
		return true
	}
	all := strings.ToLower(strings.Join(texts, "\n"))
	return !slices.ContainsFunc(q.search, func(word string) bool { return !strings.Contains(all, word) })
}

// wants says whether a filter lets a value pass.
func (q *query) wants(p parameter, value string) bool {
	want, given := q.text[p.name]
	return !given || want == value
}

// wantsAttention is wants for what facts say of an object.
func (q *query) wantsAttention(_ string, needed bool) bool {
	return q.wants(attentionParameter, strconv.FormatBool(needed))
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
