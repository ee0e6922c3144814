package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/holdfast-storage/holdfast/test/rig/alongside"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// scraped serves the metrics and checks of a process that does nothing else, and returns where.
func scraped(t *testing.T) string {
	t.Helper()
	return served(t, monitoringFlags(pflag.NewFlagSet("", pflag.ContinueOnError)))
}

func served(t *testing.T, m *monitoring) string {
	t.Helper()
	openPort(t, m)
	ctx, cancel := context.WithCancel(context.Background())
	alongside.Run(ctx, t, cancel, m.serve(quiet))
	return m.address
}

// openPort hands a port to what will serve.
func openPort(t *testing.T, m *monitoring) {
	t.Helper()
	m.port = check.Got(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	m.address = m.port.Addr().String()
}

func connect(t *testing.T, address string) net.Conn {
	t.Helper()
	c := check.Got(new(net.Dialer).DialContext(t.Context(), "tcp", address))(t)
	t.Cleanup(func() { c.Close() })
	return c
}

func TestLimits_PeersWithoutAPasswordDoNotBlockTheKubeletAndPrometheus(t *testing.T) {
	address := scraped(t)
	var first net.Conn
	for i := range 500 {
		c := connect(t, address)
		first = cmp.Or(first, c)
		if i%2 == 0 {
			check.Got(io.WriteString(c, "GET /metrics HTTP/1.1\r\nX-Long: "))(t)
		}
	}
	for _, path := range []string{"/livez", "/readyz", "/metrics"} {
		if status := statusOf(t, address, path); status != http.StatusOK {
			t.Errorf("%s: %d", path, status)
		}
	}
	check.OK(t, first.SetReadDeadline(time.Now().Add(time.Minute)))
	if _, err := io.Copy(io.Discard, first); os.IsTimeout(err) {
		t.Error("the first of 500 still has its connection")
	}
}

func TestLimits_PeersThatReadMetricsSlowlyTakeFewPlacesAndLeaveOneFree(t *testing.T) {
	m := monitoringFlags(pflag.NewFlagSet("", pflag.ContinueOnError))
	// More than the socket of a peer that does not read takes.
	large := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "large", Help: "Large."}, []string{"label"})
	large.WithLabelValues(strings.Repeat("x", 16<<20)).Set(1)
	m.registry.MustRegister(large)
	address := served(t, m)
	answered := make(chan net.Conn, 20)
	for range cap(answered) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.2")}}
		c := check.Got(d.DialContext(t.Context(), "tcp", address))(t)
		t.Cleanup(func() { c.Close() })
		check.Got(io.WriteString(c, "GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n"))(t)
		go func() {
			if n, _ := c.Read(make([]byte, 1)); n == 1 {
				answered <- c
			}
		}()
	}
	for range maxScrapes - 1 {
		<-answered
	}
	for range 2 {
		if status := statusOf(t, address, "/metrics"); status != http.StatusOK {
			t.Errorf("another peer gets %d", status)
		}
	}
	if n := len(answered); n > 0 {
		t.Errorf("%d more are answered at once", n)
	}
}

func statusOf(t *testing.T, address, path string) int {
	t.Helper()
	status, _ := fetch(t, address, path)
	return status
}

func fetch(t *testing.T, address, path string) (status int, body string) {
	t.Helper()
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	request := check.Got(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, http.NoBody))(t)
	answer, err := client.Do(request)
	check.OK(t, err)
	defer answer.Body.Close()
	return answer.StatusCode, string(check.Got(io.ReadAll(answer.Body))(t))
}

func TestBuildInfo_IsServedWithVersionRevisionAndGo(t *testing.T) {
	_, metrics := fetch(t, scraped(t), "/metrics")
	want := fmt.Sprintf(`holdfast_build_info{goversion=%q,revision=%q,version=%q} 1`, runtime.Version(), revision(), version)
	if !strings.Contains(metrics, want+"\n") {
		t.Errorf("no %s in:\n%s", want, metrics)
	}
}
