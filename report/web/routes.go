package web

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-storage/holdfast/listener"
	"github.com/holdfast-storage/holdfast/report/facts"
)

// route is one path of the API. What is said here is served, and described in the OpenAPI document.
type route struct {
	path       string
	summary    string
	parameters []parameter // of the query
	answer     any         // the zero value of what is answered
	handle     func(*Server, *query) (any, error)
}

func apiRoutes() []route {
	return []route{
		{"/api/v1/cluster", "The StorageCluster, and the capacity of all pools of nodes that can be used. What an NFS server has is within a volume, and not counted again.", nil, Cluster{}, (*Server).cluster},
		{"/api/v1/nodes", "Nodes and NFS servers that store, ready or not.", lists(nodeOrders, nodeParameter, poolParameter, nodePhaseParameter), List[Node]{}, (*Server).listNodes},
		{"/api/v1/nodes/{name}", "One node or NFS server.", nil, Node{}, (*Server).node},
		{"/api/v1/pools", "Pools of all nodes and NFS servers.", lists(poolOrders, nodeParameter, poolParameter), List[Pool]{}, (*Server).listPools},
		{"/api/v1/volumes", "Volumes of all nodes and NFS servers.", lists(volumeOrders, nodeParameter, poolParameter, phaseParameter, attentionParameter), List[Volume]{}, (*Server).listVolumes},
		{"/api/v1/volumes/{name}", "One volume.", nil, Volume{}, (*Server).volume},
		{"/api/v1/snapshots", "Snapshots of all nodes and NFS servers.", lists(snapshotOrders, nodeParameter, poolParameter, phaseParameter, volumeParameter, attentionParameter), List[Snapshot]{}, (*Server).listSnapshots},
		{"/api/v1/snapshots/{name}", "One snapshot.", nil, Snapshot{}, (*Server).snapshot},
		{"/api/v1/nfsservers", "NFS servers.", lists(serverOrders, nodeParameter, serverPhase), List[NFSServer]{}, (*Server).listServers},
		{"/api/v1/findings", "What needs attention now, problems first. Volumes in the same phase are one, and so are snapshots.", ordered, List[facts.Finding]{}, (*Server).listFindings},
		{"/api/v1/operations", "What is being done now: upgrades and jobs first, then the longest.", ordered, List[facts.Operation]{}, (*Server).listOperations},
		{"/api/v1/events", "Warnings of Holdfast that Kubernetes still keeps, the newest first; those of the same reason about the same object are one.", ordered, List[facts.Event]{}, (*Server).listEvents},
	}
}

// ordered are the parameters of a list that has an order of its own.
var ordered = []parameter{searchParameter, limitParameter, offsetParameter}

// Error is the answer to a request that cannot be served.
type Error struct {
	Status  int    `json:"status" doc:"Status code of HTTP."`
	Reason  string `json:"reason" doc:"The same in words."`
	Message string `json:"message" doc:"What is wrong, what is allowed and what to do."`
}

// refusal is an error with its status.
type refusal struct {
	status  int
	message string
}

func (r *refusal) Error() string { return r.message }

func refuse(status int, format string, args ...any) error {
	return &refusal{status, fmt.Sprintf(format, args...)}
}

// documentPaths answer with the OpenAPI document.
var documentPaths = []string{"/openapi.json", "/api/v1/openapi.json"}

func (s *Server) routes() (http.Handler, error) {
	files, err := pageFiles()
	if err != nil {
		return nil, err
	}
	paths := []string{"/"}
	open, closed := http.NewServeMux(), http.NewServeMux()
	answer := func(path string, serve http.HandlerFunc) { closed.Handle(path, readOnly(serve)) }
	for _, r := range apiRoutes() {
		paths = append(paths, r.path)
		answer(r.path, s.api(r))
	}
	for _, path := range documentPaths {
		paths = append(paths, path)
		answer(path, func(w http.ResponseWriter, _ *http.Request) { write(w, http.StatusOK, s.document) })
	}
	for path, serve := range files {
		answer(path, serve)
	}
	closed.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, http.StatusNotFound, fmt.Sprintf("nothing is at %q; there are /livez, /readyz, %s", r.URL.Path, strings.Join(paths, ", ")))
	})
	health := readOnly(s.Health.Handler().ServeHTTP)
	for _, path := range []string{"/livez", "/livez/", "/readyz", "/readyz/"} {
		open.Handle(path, health)
	}
	open.Handle("/", s.guarded(listener.LimitRequests(closed, maxAnswers)))
	return open, nil
}

// readOnly refuses what would change something, and bodies, which nothing here reads.
func readOnly(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			fail(w, http.StatusMethodNotAllowed, fmt.Sprintf("method %s: only GET and HEAD are allowed, as nothing can be changed here; kubectl can", r.Method))
		case r.ContentLength != 0:
			fail(w, http.StatusRequestEntityTooLarge, "the request has a body; it must have none")
		default:
			next(w, r)
		}
	})
}

func (s *Server) api(of route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !s.filled.Load() {
			w.Header().Set("Retry-After", "1")
			fail(w, http.StatusServiceUnavailable, "the cluster could not be read so far; try again")
			return
		}
		q, err := readQuery(r, of.parameters)
		if err != nil {
			fail(w, http.StatusBadRequest, err.Error())
			return
		}
		answer, err := of.handle(s, q)
		if r, refused := errors.AsType[*refusal](err); refused {
			fail(w, r.status, r.message)
			return
		}
		body, err := encode(answer, err)
		if err != nil {
			s.Log.Error("an answer of the API could not be made", "path", of.path, "error", err)
			fail(w, http.StatusInternalServerError, "the answer could not be made; the log of the controller says why")
			return
		}
		if age, known := s.age(); known {
			w.Header().Set("Age", strconv.Itoa(int(age.Seconds())))
		}
		writeUnlessKnown(w, r, body)
	}
}

// writeUnlessKnown spares a client that asks again and again what it has already.
func writeUnlessKnown(w http.ResponseWriter, r *http.Request, body []byte) {
	tag := tagOf(body)
	w.Header().Set("ETag", tag)
	if r.Header.Get("If-None-Match") == tag {
		secure(w.Header())
		w.WriteHeader(http.StatusNotModified)
		return
	}
	write(w, http.StatusOK, body)
}

// tagOf names a content.
func tagOf(body []byte) string {
	sum := sha256.Sum256(body)
	return `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
}

func encode(answer any, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err = e.Encode(answer)
	return b.Bytes(), err
}

func fail(w http.ResponseWriter, status int, message string) {
	body, err := encode(Error{status, http.StatusText(status), message}, nil)
	if err != nil {
		body = nil // three plain fields
	}
	write(w, status, body)
}

func write(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	secure(h)
	w.WriteHeader(status)
	_, _ = w.Write(body) // who asked has gone or not
}

// secure keeps browsers, which send the password by themselves once they have it, from giving an answer to other sites, and
// from taking it for anything but what it is. The page has a policy that allows it more.
func secure(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	if h.Get("Content-Security-Policy") == "" {
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	}
}

func names(all []parameter) []string {
	var n []string
	for _, p := range all {
		n = append(n, p.name)
	}
	slices.Sort(n)
	return n
}
