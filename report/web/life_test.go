package web

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/listener"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func TestServer_IsNotMadeOnAPortThatIsTaken(t *testing.T) {
	inBubble(t, func(r *rig) {
		other := r.listening()
		defer other.listener.Close()
		_, err := New(Config{Address: other.Address(), Namespace: namespace, Watches: r.watches(), Kubernetes: r.theirs, Log: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), other.Address()) {
			r.Errorf("%v", err)
		}
	})
}

func TestServer_SpeaksTLSWithinLimitsUntilItsContextEnds(t *testing.T) {
	r := newRig(t)
	s := r.listening()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()
	dial := func() (net.Conn, error) { return new(net.Dialer).DialContext(t.Context(), "tcp", s.Address()) }
	speak := func(config *tls.Config) (*tls.Conn, error) {
		config.InsecureSkipVerify = true
		plain := check.Got(dial())(r)
		t.Cleanup(func() { plain.Close() })
		conn := tls.Client(plain, config)
		return conn, conn.HandshakeContext(t.Context())
	}
	if _, err := speak(&tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}); err == nil { //nolint:gosec // it must be refused
		t.Error("TLS 1.1 is spoken")
	}
	conn, err := speak(&tls.Config{NextProtos: []string{"h2"}})
	if err != nil || conn.ConnectionState().NegotiatedProtocol != "h2" || !conn.ConnectionState().PeerCertificates[0].Equal(r.shownBy(s)) {
		t.Errorf("HTTP/2: %+v, %v", conn.ConnectionState(), err)
	}
	request := func(header string, want int) *tls.Conn {
		conn := check.Got(speak(&tls.Config{NextProtos: []string{"http/1.1"}}))(r)
		go fmt.Fprintf(conn, "GET /livez HTTP/1.1\r\nHost: h\r\nX: %s\r\n\r\n", header) // the server may hang up before all of it is written
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		r.must(err)
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("a header of %d bytes: %s", len(header), response.Status)
		}
		return conn
	}
	request(strings.Repeat("x", 64<<10), http.StatusRequestHeaderFieldsTooLarge)
	idle, closed := request("x", http.StatusOK), make(chan struct{})
	go func() {
		defer close(closed)
		_, _ = io.Copy(io.Discard, idle)
	}()
	var silent []net.Conn
	for range 2 * listener.Connections {
		c := check.Got(dial())(r)
		silent = append(silent, c)
	}
	select {
	case <-closed:
	case <-time.After(time.Minute): // half of what an idle connection has
		t.Error("more connections than the limit stay open")
	}
	for _, c := range silent {
		c.Close()
	}
	cancel()
	check.Report(t, <-ended)
	if conn, err := dial(); err == nil {
		conn.Close()
		t.Error("the port is open")
	}
}

func TestWhatIsKnownIsToldWhileTheApiServerIsAway(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.node("a", metav1.ConditionTrue, "fast")
		r.open()
		wait.Until(r, "the server is ready", r.isKept)
		r.api.Close()
		if report := r.report(); len(report.Nodes) != 1 {
			r.Errorf("got %+v", report)
		}
		if a := r.get("/readyz"); a.status != http.StatusOK {
			r.Error("it is not ready any more")
		}
	})
}

func TestBeforeTheClusterIsKnownTheServerSaysSo(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.api.Close()
		r.start()
		if a := r.get("/livez"); a.status != http.StatusOK {
			r.Errorf("/livez: %d %s", a.status, a.body)
		}
		if a := r.get("/readyz"); a.status != http.StatusInternalServerError || !strings.Contains(string(a.body), "[-]informer-sync failed: the reason is in the log") {
			r.Errorf("/readyz: %d %s", a.status, a.body)
		}
		if a := r.get(reportPath); a.status != http.StatusForbidden || !strings.Contains(a.message(), "not known yet") {
			r.Errorf("the report: %d %s", a.status, a.body)
		}
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(r.server.Collector())
		if families, err := registry.Gather(); err != nil || len(families) > 0 {
			r.Errorf("the metrics: %v, %v", families, err)
		}
	})
}
