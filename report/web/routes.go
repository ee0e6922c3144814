package web

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/holdfast-storage/holdfast/listener"
)

const reportPath = "/api/v1/report"

// Error is the answer to a request that cannot be served.
type Error struct {
	Status  int    `json:"status"`
	Reason  string `json:"reason"` // the status in words
	Message string `json:"message"`
}

func (s *Server) routes() (http.Handler, error) {
	files, err := pageFiles()
	if err != nil {
		return nil, err
	}
	open, closed := http.NewServeMux(), http.NewServeMux()
	closed.Handle(reportPath, readOnly(s.serveReport))
	for path, serve := range files {
		closed.Handle(path, readOnly(serve))
	}
	closed.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, http.StatusNotFound, fmt.Sprintf("nothing is at %q; there are /livez, /readyz, / and %s", r.URL.Path, reportPath))
	})
	health := readOnly(s.Health.Handler().ServeHTTP)
	for _, path := range []string{"/livez", "/livez/", "/readyz", "/readyz/"} {
		open.Handle(path, health)
	}
	open.Handle("/", s.guarded(listener.LimitRequests(closed, maxAnswers)))
	return open, nil
}

// readOnly refuses methods that change something, and bodies, which no handler reads.
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

func (s *Server) serveReport(w http.ResponseWriter, r *http.Request) {
	if r.URL.RawQuery != "" {
		fail(w, http.StatusBadRequest, "the report has no parameters: leave out what follows the question mark")
		return
	}
	body, err := encode(s.report())
	if err != nil {
		s.Log.Error("the report could not be made", "error", err)
		fail(w, http.StatusInternalServerError, "the report could not be made; the log of the controller says why")
		return
	}
	if age, known := s.age(); known {
		w.Header().Set("Age", strconv.Itoa(int(age.Seconds())))
	}
	w.Header().Set("Cache-Control", "no-store")
	serve(w, r, "application/json", body)
}

// serve answers with a body, or with 304 to a client that asks again and has it already.
func serve(w http.ResponseWriter, r *http.Request, kind string, body []byte) {
	sum := sha256.Sum256(body)
	w.Header().Set("ETag", `"`+base64.RawURLEncoding.EncodeToString(sum[:12])+`"`)
	w.Header().Set("Content-Type", kind)
	secure(w.Header())
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
}

func encode(answer any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(answer)
	return b.Bytes(), err
}

func fail(w http.ResponseWriter, status int, message string) {
	body, _ := encode(Error{status, http.StatusText(status), message}) // three plain fields
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	secure(w.Header())
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may have gone
}

// secure sets headers that keep other sites from reading answers (browsers send the password automatically) and browsers
// from guessing their type. The page has a policy that allows it more.
func secure(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	if h.Get("Content-Security-Policy") == "" {
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	}
}
