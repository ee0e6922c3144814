package web

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
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
	"github.com/holdfast-storage/holdfast/test/rig/miniapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

const (
	namespace = "holdfast-system"
	user      = "admin"
	password  = "correct horse"
)

// rig is an API server, and a Server that serves what is there over TLS.
type rig struct {
	*testing.T
	api    *miniapi.Server
	ours   client.Interface
	theirs kubernetes.Interface
	server *Server
	http   *http.Client
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

func newRig(t *testing.T) *rig {
	api := miniapi.New(t)
	r := &rig{T: t, api: api, ours: client.NewForConfigOrDie(api.Config()), theirs: kubernetes.NewForConfigOrDie(api.Config())}
	r.http = &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{
		DialContext:     func(ctx context.Context, _, _ string) (net.Conn, error) { return r.dial(ctx, "127.0.0.1") },
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // who it is is tested apart from what it says
		// Each request shows the certificate of its time.
		DisableKeepAlives: true, ForceAttemptHTTP2: true,
	}}
	return r
}

// port takes connections of this process, without sockets, so that a bubble has all of them.
type port struct {
	address net.Addr
	calls   chan net.Conn
	closed  chan struct{}
	close   func()
}

func newPort(address net.Addr) *port {
	p := &port{address: address, calls: make(chan net.Conn), closed: make(chan struct{})}
	p.close = sync.OnceFunc(func() { close(p.closed) })
	return p
}

func (p *port) Addr() net.Addr { return p.address }

func (p *port) Close() error {
	p.close()
	return nil
}

func (p *port) Accept() (net.Conn, error) {
	select {
	case c := <-p.calls:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// call connects from an address.
func (p *port) call(from string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.calls <- called{server, &net.TCPAddr{IP: net.ParseIP(from), Port: 1000}}:
		return client, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// called is the end of the server.
type called struct {
	net.Conn
	from net.Addr
}

func (c called) RemoteAddr() net.Addr { return c.from }

// dial connects to the server from an address.
func (r *rig) dial(ctx context.Context, from string) (net.Conn, error) {
	if p, is := r.server.listener.(*port); is {
		return p.call(from)
	}
	return new(net.Dialer).DialContext(ctx, "tcp", r.server.Address())
}

// dialTLS connects to the server, and fails with what the handshake does.
func (r *rig) dialTLS(config *tls.Config) (*tls.Conn, error) {
	r.Helper()
	plain, err := r.dial(r.Context(), "127.0.0.1")
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { plain.Close() })
	conn := tls.Client(plain, config)
	return conn, conn.HandshakeContext(r.Context())
}

// watches are those of one process, until the test ends.
func (r *rig) watches() *kube.Watches {
	ctx, cancel := context.WithCancel(context.Background())
	r.Cleanup(cancel)
	ours, theirs := r.clients()
	return kube.NewWatches(ctx, ours, theirs, namespace)
}

// start serves until the test ends.
func (r *rig) start() *Server {
	r.Helper()
	s := r.replica()
	r.server = s
	return s
}

func (r *rig) replica() *Server {
	r.Helper()
	s := r.listening()
	if err := s.listener.Close(); err != nil {
		r.Fatal(err)
	}
	s.listener = newPort(s.listener.Addr())
	ctx, cancel := context.WithCancel(context.Background())
	alongside.Run(ctx, r, cancel, s.Run)
	return s
}

// listening is a server with a real port, which does not run.
func (r *rig) listening() *Server {
	r.Helper()
	_, theirs := r.clients()
	s, err := New(Config{
		Address: "127.0.0.1:0", Namespace: namespace, Watches: r.watches(), Kubernetes: theirs,
		Log: slog.New(slog.NewTextHandler(io.MultiWriter(r.Output(), &r.log), &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		r.Fatal(err)
	}
	return s
}

// open makes a cluster with a user, and waits until the user may come in.
func (r *rig) open() {
	r.Helper()
	r.cluster("holdfast", "access")
	r.secret("access", map[string]string{userKey: user, passwordKey: password})
	r.start()
	wait.Until(r, "the user may come in", func() bool { return r.get("/api/v1/cluster").status == http.StatusOK })
}

func (r *rig) cluster(name, secret string) *v1beta1.StorageCluster {
	r.Helper()
	c := &v1beta1.StorageCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if secret != "" {
		c.Spec.SecretRef = &v1beta1.SecretReference{Name: secret}
	}
	made, err := r.ours.HoldfastV1beta1().StorageClusters().Create(r.Context(), c, metav1.CreateOptions{})
	if err != nil {
		r.Fatal(err)
	}
	return made
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
	if err != nil {
		r.Fatal(err)
	}
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   []byte
	proto  string
	pair   *tls.ConnectionState
}

func (a answer) message() string {
	var e Error
	if json.Unmarshal(a.body, &e) != nil {
		return string(a.body)
	}
	return e.Message
}

func (r *rig) get(path string) answer { return r.ask(r.request(http.MethodGet, path, nil)) }

func (r *rig) request(method, path string, body io.Reader) *http.Request {
	r.Helper()
	q, err := http.NewRequestWithContext(r.Context(), method, "https://"+r.server.Address()+path, body)
	if err != nil {
		r.Fatal(err)
	}
	q.SetBasicAuth(user, password)
	return q
}

func (r *rig) ask(q *http.Request) answer {
	r.Helper()
	response, err := r.http.Do(q)
	if err != nil {
		r.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		r.Fatal(err)
	}
	return answer{response.StatusCode, response.Header, body, response.Proto, response.TLS}
}

// read asks and expects an answer.
func read[T any](r *rig, path string) (into T) {
	r.Helper()
	a := r.get(path)
	if a.status != http.StatusOK {
		r.Fatalf("%s: %d %s", path, a.status, a.body)
	}
	if err := json.Unmarshal(a.body, &into); err != nil {
		r.Fatal(err)
	}
	return into
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func second[T any](_ T, err error) error { return err }

func gib(n int64) *resource.Quantity { return resource.NewQuantity(n<<30, resource.BinarySI) }

func (r *rig) node(name string, ready metav1.ConditionStatus, pools ...string) {
	r.Helper()
	n := &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	nodes := r.ours.HoldfastV1beta1().StorageNodes()
	n, err := nodes.Create(r.Context(), n, metav1.CreateOptions{})
	if err != nil {
		r.Fatal(err)
	}
	n.Status = v1beta1.StorageNodeStatus{Version: "v1.2.3", Conditions: []metav1.Condition{{
		Type: v1beta1.ReadyCondition, Status: ready, Reason: "Because", Message: "what " + name + " says", LastTransitionTime: metav1.Now(),
	}}}
	for _, p := range pools {
		n.Status.Pools = append(n.Status.Pools, v1beta1.Pool{
			Name: p, Path: "/srv/" + p, Engine: v1beta1.EngineImage, Capacity: *gib(100), Promised: *gib(40), Used: *gib(30), Available: *gib(60),
			Smallest: *gib(1), Largest: *gib(60), Volumes: 2, Snapshots: 1,
		})
	}
	if _, err = nodes.UpdateStatus(r.Context(), n, metav1.UpdateOptions{}); err != nil {
		r.Fatal(err)
	}
}

// fence gives a node the condition Fenced.
func (r *rig) fence(name string, status metav1.ConditionStatus, reason string) {
	r.Helper()
	nodes := r.ours.HoldfastV1beta1().StorageNodes()
	n, err := nodes.Get(r.Context(), name, metav1.GetOptions{})
	if err != nil {
		r.Fatal(err)
	}
	n.Status.Conditions = append(n.Status.Conditions, metav1.Condition{Type: v1beta1.FencedCondition, Status: status, Reason: reason, Message: "why it is so", LastTransitionTime: metav1.Now()})
	if _, err = nodes.UpdateStatus(r.Context(), n, metav1.UpdateOptions{}); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) volume(name, node, pool string, status v1beta1.VolumeStatus) {
	r.Helper()
	v := &v1beta1.Volume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.VolumeSpec{Name: "pvc-" + name, ClaimRef: v1beta1.ReferenceTo("shop/" + name), Node: node, Pool: pool}}
	volumes := r.ours.HoldfastV1beta1().Volumes()
	v, err := volumes.Create(r.Context(), v, metav1.CreateOptions{})
	if err != nil {
		r.Fatal(err)
	}
	v.Status = status
	if _, err = volumes.UpdateStatus(r.Context(), v, metav1.UpdateOptions{}); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) snapshot(name, source, node string, status v1beta1.SnapshotStatus) {
	r.Helper()
	o := &v1beta1.Snapshot{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.SnapshotSpec{Name: "snapshot-" + name, SourceRef: v1beta1.FromVolume(source), Node: node}}
	snapshots := r.ours.HoldfastV1beta1().Snapshots()
	o, err := snapshots.Create(r.Context(), o, metav1.CreateOptions{})
	if err != nil {
		r.Fatal(err)
	}
	o.Status = status
	if _, err = snapshots.UpdateStatus(r.Context(), o, metav1.UpdateOptions{}); err != nil {
		r.Fatal(err)
	}
}

// volumes waits until the server knows n of them.
func (r *rig) volumes(n int) {
	r.Helper()
	wait.Until(r, fmt.Sprintf("%d volumes are known", n), func() bool {
		l := read[List[Volume]](r, "/api/v1/volumes")
		return len(l.Items)+l.Remaining == n
	})
}
