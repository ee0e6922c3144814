package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"testing"
	"time"
)

// scraped serves metrics, healthy as long as check says so, and returns where.
func scraped(t *testing.T, check func(context.Context) error) string {
	t.Helper()
	free, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- serveMetrics(ctx, address, newRegistry(), check, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return address
}

// connect waits until somebody listens.
func connect(t *testing.T, address string) net.Conn {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		if err == nil {
			t.Cleanup(func() { c.Close() })
			return c
		}
		select {
		case <-t.Context().Done():
			t.Fatal(err)
		case <-tick.C:
		}
	}
}

func TestPeersWithoutAPasswordDoNotKeepTheKubeletAndPrometheusOut(t *testing.T) {
	address := scraped(t, func(context.Context) error { return nil })
	var first net.Conn
	for i := range 500 {
		c := connect(t, address)
		first = cmp.Or(first, c)
		if i%2 == 0 {
			if _, err := io.WriteString(c, "GET /metrics HTTP/1.1\r\nX-Long: "); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, path := range []string{"/livez", "/healthz", "/metrics"} {
		if status := statusOf(t, address, path); status != http.StatusOK {
			t.Errorf("%s: %d", path, status)
		}
	}
	if err := first.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, first); os.IsTimeout(err) {
		t.Error("the first of 500 still has its connection")
	}
}

func TestWhatIsNotHealthyIsToldAndStillScraped(t *testing.T) {
	address := scraped(t, func(context.Context) error { return errors.New("the CSI socket does not answer") })
	connect(t, address)
	for path, want := range map[string]int{"/livez": http.StatusOK, "/healthz": http.StatusServiceUnavailable, "/metrics": http.StatusOK} {
		if status := statusOf(t, address, path); status != want {
			t.Errorf("%s: %d, not %d", path, status, want)
		}
	}
}

func statusOf(t *testing.T, address, path string) int {
	t.Helper()
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		t.Error(err)
	}
	return answer.StatusCode
}
