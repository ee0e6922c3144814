package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	client "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/test/rig/alongside"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/miniapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

const (
	namespace = "holdfast-system"
	user      = "admin"
	password  = "correct horse"
)

// rig is an API server, and a Server whose handler the test calls.
type rig struct {
	*testing.T
	api    *miniapi.Server
	ours   client.Interface
	theirs kubernetes.Interface
	server *Server
	denied atomic.Pointer[denial] // to the server
	log    logged                 // of the server
}

// denial is for requests of which a role lacks the right.
type denial func(*http.Request) bool

// deny refuses requests of the server from now on; nil: none.
func (r *rig) deny(these denial) { r.denied.Store(&these) }

// readsOf a resource, or of one object.
func readsOf(resource, name string) denial {
	return func(q *http.Request) bool {
		return q.Method == http.MethodGet && path.Base(q.URL.Path) == resource && (name == "" || nameIn(q) == name)
	}
}

func nameIn(q *http.Request) string {
	return strings.TrimPrefix(q.URL.Query().Get("fieldSelector"), "metadata.name=")
}

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(q *http.Request) (*http.Response, error) { return t(q) }

// clients are those of the server.
func (r *rig) clients() (client.Interface, kubernetes.Interface) {
	config := r.api.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport(func(q *http.Request) (*http.Response, error) {
			if these := r.denied.Load(); these == nil || *these == nil || !(*these)(q) {
				return next.RoundTrip(q)
			}
			status := apierrors.NewForbidden(core.Resource(path.Base(q.URL.Path)), nameIn(q), errors.New("no role has it")).Status()
			status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
			body, err := json.Marshal(status)
			return &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{"Content-Type": {"application/json"}}, Request: q, Body: io.NopCloser(bytes.NewReader(body))}, err
		})
	})
	return client.NewForConfigOrDie(config), kubernetes.NewForConfigOrDie(config)
}

// logged is a log that the test reads.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(text)
}

// lines are those that have a text.
func (l *logged) lines(with string) (lines []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, with) {
			lines = append(lines, line)
		}
	}
	return lines
}

// inBubble calls f with a rig, in a bubble of testing/synctest.
func inBubble(t *testing.T, f func(*rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(newRig(t)) })
}

func newRig(t *testing.T) *rig {
	api := miniapi.New(t)
	return &rig{T: t, api: api, ours: client.NewForConfigOrDie(api.Config()), theirs: kubernetes.NewForConfigOrDie(api.Config())}
}

// noPort accepts no connection, and keeps no clock of a bubble waiting.
type noPort struct {
	net.Listener
	closed chan struct{}
	close  func()
}

func newNoPort(of net.Listener) *noPort {
	p := &noPort{Listener: of, closed: make(chan struct{})}
	p.close = sync.OnceFunc(func() { close(p.closed) })
	return p
}

func (p *noPort) Close() error {
	p.close()
	return nil
}

func (p *noPort) Accept() (net.Conn, error) {
	<-p.closed
	return nil, net.ErrClosed
}

// watches are those of one process, until the test ends.
func (r *rig) watches() *kube.Watches {
	ctx, cancel := context.WithCancel(context.Background())
	r.Cleanup(cancel)
	ours, theirs := r.clients()
	return kube.NewWatches(ctx, ours, theirs, namespace)
}

// start serves until the test ends.
func (r *rig) start() {
	r.Helper()
	r.server = r.replica()
}

func (r *rig) replica() *Server {
	r.Helper()
	s := r.listening()
	r.must(s.listener.Close())
	s.listener = newNoPort(s.listener)
	ctx, cancel := context.WithCancel(context.Background())
	alongside.Run(ctx, r, cancel, s.Run)
	return s
}

// listening is a server with a real port, which does not run.
func (r *rig) listening() *Server {
	r.Helper()
	_, theirs := r.clients()
	return check.Got(New(Config{
		Address: "127.0.0.1:0", Namespace: namespace, Watches: r.watches(), Kubernetes: theirs,
		Log: slog.New(slog.NewTextHandler(io.MultiWriter(r.Output(), &r.log), &slog.HandlerOptions{Level: slog.LevelDebug})),
	}))(r)
}

// open makes a cluster with a user, and waits until the user may come in.
func (r *rig) open() {
	r.Helper()
	r.cluster("holdfast", "access")
	r.secret("access", map[string]string{userKey: user, passwordKey: password})
	r.start()
	wait.Until(r, "the user may come in", func() bool { return r.get(reportPath).status == http.StatusOK })
}

func (r *rig) cluster(name, secret string) *v1beta1.StorageCluster {
	r.Helper()
	c := &v1beta1.StorageCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if secret != "" {
		c.Spec.SecretRef = &v1beta1.SecretReference{Name: secret}
	}
	return check.Got(r.ours.HoldfastV1beta1().StorageClusters().Create(r.Context(), c, metav1.CreateOptions{}))(r)
}

// secret creates or replaces the secret.
func (r *rig) secret(name string, data map[string]string) {
	r.Helper()
	s := &core.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Data: map[string][]byte{}}
	for k, v := range data {
		s.Data[k] = []byte(v)
	}
	secrets := r.theirs.CoreV1().Secrets(namespace)
	_, err := secrets.Update(r.Context(), s, metav1.UpdateOptions{})
	if err != nil {
		_, err = secrets.Create(r.Context(), s, metav1.CreateOptions{})
	}
	r.must(err)
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a answer) message() string {
	var e Error
	if json.Unmarshal(a.body, &e) != nil {
		return string(a.body)
	}
	return e.Message
}

func (r *rig) get(path string) answer { return r.ask(r.request(http.MethodGet, path, nil)) }

// as asks for the report as another user.
func (r *rig) as(user, password string) answer {
	q := r.request(http.MethodGet, reportPath, nil)
	q.SetBasicAuth(user, password)
	return r.ask(q)
}

func (r *rig) request(method, path string, body io.Reader) *http.Request {
	q := httptest.NewRequestWithContext(r.Context(), method, path, body)
	q.SetBasicAuth(user, password)
	return q
}

func (r *rig) ask(q *http.Request) answer {
	w := httptest.NewRecorder()
	r.server.handler.ServeHTTP(w, q)
	return answer{w.Code, w.Result().Header, w.Body.Bytes()}
}

// report is the answer to the user.
func (r *rig) report() (report Report) {
	r.Helper()
	a := r.get(reportPath)
	if a.status != http.StatusOK {
		r.Fatalf("%d %s", a.status, a.body)
	}
	r.must(json.Unmarshal(a.body, &report))
	return report
}

// until waits for a report.
func (r *rig) until(what string, is func(Report) bool) (report Report) {
	r.Helper()
	wait.Until(r, what, func() bool { report = r.report(); return is(report) })
	return report
}

func (r *rig) must(err error) {
	r.Helper()
	check.OK(r, err)
}

func gib(n int64) *resource.Quantity { return resource.NewQuantity(n<<30, resource.BinarySI) }

func (r *rig) node(name string, ready metav1.ConditionStatus, pools ...string) {
	r.Helper()
	n := &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1beta1.StorageNodeStatus{Version: "v1.2.3", Conditions: []metav1.Condition{{
		Type: v1beta1.ReadyCondition, Status: ready, Reason: "Because", Message: "what " + name + " says", LastTransitionTime: metav1.Now(),
	}}}}
	for _, p := range pools {
		message := ""
		if p == "gone" {
			message = "its disk is not there"
		}
		n.Status.Pools = append(n.Status.Pools, v1beta1.Pool{
			Name: p, Message: message, Path: "/srv/" + p, Engine: v1beta1.EngineImage, Capacity: *gib(100), Promised: *gib(40), Used: *gib(30), Available: *gib(60),
			Smallest: *gib(1), Largest: *gib(60), Volumes: 2, Snapshots: 1,
		})
	}
	wait.Put(r, n, r.ours.HoldfastV1beta1().StorageNodes())
}

func (r *rig) volume(name, node, pool string, status v1beta1.VolumeStatus) {
	r.Helper()
	spec := v1beta1.VolumeSpec{Name: "pvc-" + name, ClaimRef: v1beta1.ReferenceTo("shop/" + name), Node: node, Pool: pool}
	wait.Put(r, &v1beta1.Volume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec, Status: status}, r.ours.HoldfastV1beta1().Volumes())
}

func (r *rig) snapshot(name, source, node string, status v1beta1.SnapshotStatus) {
	r.Helper()
	spec := v1beta1.SnapshotSpec{Name: "snapshot-" + name, SourceRef: v1beta1.FromVolume(source), Node: node}
	wait.Put(r, &v1beta1.Snapshot{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec, Status: status}, r.ours.HoldfastV1beta1().Snapshots())
}

// nfsServer is one that the operator has looked at.
func (r *rig) nfsServer(namespace, name string, status v1beta1.NFSServerStatus) {
	r.Helper()
	status.ObservedGeneration = 1
	wait.Put(r, &v1beta1.NFSServer{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Status: status}, r.ours.HoldfastV1beta1().NFSServers(namespace))
}

func (r *rig) warn(name, reason string, at time.Time) {
	r.Helper()
	check.Got(r.theirs.CoreV1().Events("shop").Create(r.Context(), &core.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Type: core.EventTypeWarning, Reason: reason, Message: "of " + name, LastTimestamp: metav1.NewTime(at),
		InvolvedObject: core.ObjectReference{Kind: "Pod", Namespace: "shop", Name: name}, Source: core.EventSource{Component: "holdfast"},
	}, metav1.CreateOptions{}))(r)
}
