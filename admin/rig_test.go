package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	typed "github.com/holdfast-storage/holdfast/api/client/clientset/typed/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/miniapi"
)

const (
	gib       = 1 << 30
	namespace = "storage"
	user      = "alice@example.org"
)

// rig is an Admin with an API server, on which the test acts as all other clients.
type rig struct {
	*testing.T
	*Admin
	out   *transcript
	door  *door
	api   *miniapi.Server
	kinds typed.HoldfastV1beta1Interface // client of the test
	core  kubernetes.Interface
}

// inBubble calls f with a rig, in a bubble of testing/synctest.
func inBubble(t *testing.T, f func(*rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(newRig(t)) })
}

func newRig(t *testing.T) *rig {
	t.Helper()
	api := miniapi.New(t)
	r := &rig{T: t, api: api, out: &transcript{}, door: &door{refused: map[string]string{}}}
	r.kinds, r.core = holdfast.NewForConfigOrDie(api.Config()).HoldfastV1beta1(), kubernetes.NewForConfigOrDie(api.Config())
	config := api.Config()
	config.WrapTransport = func(next http.RoundTripper) http.RoundTripper { return r.door.before(next) }
	r.Admin = &Admin{Config: Config{
		Clients: check.Got(Connect(config, namespace))(t), Out: r.out, Timeout: DefaultTimeout,
		Progress: func(state string) error { _, err := r.out.Write([]byte(state + "\n")); return err },
	}}
	return r
}

// transcript is the output of a command.
type transcript struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (w *transcript) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all.Write(p)
}

func (w *transcript) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all.String()
}

// says expects words in the output.
func (r *rig) says(words ...string) {
	r.Helper()
	for _, word := range words {
		if !strings.Contains(r.out.String(), word) {
			r.Errorf("%q is not in the output:\n%s", word, r.out)
		}
	}
}

// refuses expects an error that contains the words.
func (r *rig) refuses(err error, words ...string) {
	r.Helper()
	if err == nil {
		r.Logf("it has printed\n%s", r.out)
	}
	refusal(r.T, err, words)
}

// refusal expects an error that contains the words.
func refusal(t *testing.T, err error, words []string) {
	t.Helper()
	if err == nil {
		t.Fatal("it was not refused")
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q is not in: %v", word, err)
		}
	}
}

// wrote expects what was written, and nothing else.
func (r *rig) wrote(want ...string) {
	r.Helper()
	if w := r.door.written(); !slices.Equal(w, want) {
		r.Errorf("it wrote %q, want %q", w, want)
	}
}

// untouched expects that nothing was written.
func (r *rig) untouched() {
	r.Helper()
	r.wrote()
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatalf("%v\n%s", err, r.out)
	}
}

// door is a proxy of the API server: it has the user and the rights, and records who writes.
type door struct {
	mu      sync.Mutex
	refused map[string]string // message by verb and resource, or by "impersonate"
	missing string            // a resource that the API server does not have
	writes  []string          // such as "PATCH volumes/a as system:..."
	after   map[string]func() // what another client does after such a write
}

type through func(*http.Request) (*http.Response, error)

func (f through) RoundTrip(q *http.Request) (*http.Response, error) { return f(q) }

func (d *door) before(next http.RoundTripper) http.RoundTripper {
	return through(func(q *http.Request) (*http.Response, error) {
		path := strings.Split(q.URL.Path, "/")
		as := q.Header.Get("Impersonate-User")
		switch last := path[len(path)-1]; {
		case last == "selfsubjectreviews":
			return answer(q, 201, authentication.SelfSubjectReview{Status: authentication.SelfSubjectReviewStatus{UserInfo: authentication.UserInfo{Username: user}}})
		case last == "selfsubjectaccessreviews":
			return d.mayI(q)
		case as != "" && d.refusal("impersonate") != "":
			return forbidden(q, d.refusal("impersonate"))
		case d.refusal(q.Method+" "+last) != "":
			return forbidden(q, d.refusal(q.Method+" "+last))
		case last == d.missing:
			return answer(q, 404, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: 404, Reason: metav1.StatusReasonNotFound})
		}
		if q.Method != http.MethodGet && q.URL.Query().Get("dryRun") == "" {
			write := strings.TrimSuffix(q.Method+" "+strings.Join(path[len(path)-2:], "/")+" as "+as, " as ")
			d.note(write)
			if f := d.after[write]; f != nil {
				defer f()
			}
		}
		return next.RoundTrip(q)
	})
}

func (d *door) mayI(q *http.Request) (*http.Response, error) {
	var review authorization.SelfSubjectAccessReview
	if err := json.NewDecoder(q.Body).Decode(&review); err != nil {
		return nil, err
	}
	a := review.Spec.ResourceAttributes
	review.Status.Allowed = d.refusal(a.Verb+" "+a.Resource) == ""
	return answer(q, 201, review)
}

func (d *door) refusal(of string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.refused[of]
}

func (d *door) note(write string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.writes = append(d.writes, write)
}

func (d *door) written() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.writes
}

func forbidden(q *http.Request, message string) (*http.Response, error) {
	return answer(q, 403, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: 403, Reason: metav1.StatusReasonForbidden, Message: message,
	})
}

func answer(q *http.Request, code int, value any) (*http.Response, error) {
	data, err := json.Marshal(value)
	return &http.Response{
		StatusCode: code, Request: q, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(data)),
	}, err
}

// seeing calls f with every object that is written from now on, until the test ends.
func seeing[T any](r *rig, open func(context.Context, metav1.ListOptions) (watch.Interface, error), f func(T)) {
	r.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w := check.Got(open(ctx, metav1.ListOptions{}))(r)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range w.ResultChan() {
			if o, is := e.Object.(T); is && e.Type != watch.Deleted {
				f(o)
			}
		}
	}()
	r.Cleanup(func() { cancel(); w.Stop(); <-done })
}
