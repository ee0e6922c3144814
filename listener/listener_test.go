package listener

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// served is a server with a limited number of connections.
type served struct {
	*testing.T
	address string
	open    *limited
}

func serve(t *testing.T, most int, handler http.HandlerFunc) *served {
	t.Helper()
	plain := check.Got(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	l := Limit(plain, most).(*limited)
	server := HTTP(handler)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return &served{t, plain.Addr().String(), l}
}

func ok(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }

// from connects from an address of the loopback network, so that there are many clients.
func (s *served) from(client string, say string) net.Conn {
	s.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(client)}}
	c := check.Got(d.DialContext(s.Context(), "tcp", s.address))(s)
	s.Cleanup(func() { c.Close() })
	check.Got(io.WriteString(c, say))(s)
	return c
}

// scrape sends one request on a connection of its own.
func (s *served) scrape(client string) {
	s.Helper()
	c := s.from(client, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
	check.OK(s, c.SetDeadline(time.Now().Add(time.Minute)))
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		s.Fatalf("the scrape did not get in: %v", err)
	}
	defer answer.Body.Close()
	if body, err := io.ReadAll(answer.Body); err != nil || string(body) != "ok" {
		s.Errorf("the scrape got %q, %v", body, err)
	}
}

func (s *served) count() int {
	s.open.mu.Lock()
	defer s.open.mu.Unlock()
	return len(s.open.open)
}

// await waits until that many connections are accepted.
func (s *served) await(open int) {
	s.Helper()
	wait.Until(s, fmt.Sprintf("that %d connections are open", open), func() bool { return s.count() == open })
}

const slowly = "GET / HTTP/1.1\r\nHost: h\r\nX-Long: "

func TestLimits_PeersThatHoldAllConnectionsDoNotBlockAScrape(t *testing.T) {
	for name, test := range map[string]struct {
		say    string
		client func(int) string
	}{
		"idle, of one client":         {"", func(int) string { return "127.0.0.2" }},
		"idle, of a hundred clients":  {"", func(i int) string { return fmt.Sprintf("127.0.1.%d", i%100+1) }},
		"idle, each of its own":       {"", func(i int) string { return fmt.Sprintf("127.1.%d.%d", i/200+1, i%200+1) }},
		"slow with their headers":     {slowly, func(int) string { return "127.0.0.2" }},
		"slow, of a hundred clients":  {slowly, func(i int) string { return fmt.Sprintf("127.0.1.%d", i%100+1) }},
		"idle after a request of own": {"GET / HTTP/1.1\r\nHost: h\r\n\r\n", func(int) string { return "127.0.0.2" }},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, 64, ok)
			for i := range 500 {
				s.from(test.client(i), test.say)
			}
			s.scrape("127.0.0.1")
			if n := s.count(); n > 64 {
				t.Errorf("%d connections are open", n)
			}
		})
	}
}

func TestLimits_ClientDisplacesItsOwnConnectionsBeforeThoseOfOthers(t *testing.T) {
	begun, end := make(chan bool), make(chan bool)
	s := serve(t, 8, func(w http.ResponseWriter, r *http.Request) {
		begun <- true
		<-end
		ok(w, r)
	})
	defer close(end)
	busy := s.from("127.0.0.1", "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
	<-begun
	for range 100 {
		s.from("127.0.0.2", "")
	}
	end <- true
	answer, err := http.ReadResponse(bufio.NewReader(busy), nil)
	check.OK(t, err) // what was being answered was not cut off
	answer.Body.Close()
}

func TestLimits_OfEqualClientsTheLongestSilentIsDisconnected(t *testing.T) {
	s := serve(t, 2, ok)
	first, second := s.from("127.0.0.1", ""), s.from("127.0.0.2", "")
	s.await(2) // so that the second is the more recent one
	answers := bufio.NewReader(first)
	ask := func() {
		t.Helper()
		check.Got(io.WriteString(first, "GET / HTTP/1.1\r\nHost: h\r\n\r\n"))(t)
		answer, err := http.ReadResponse(answers, nil)
		check.OK(t, err)
		_, _ = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
	}
	ask()
	s.scrape("127.0.0.3")
	if _, err := io.Copy(io.Discard, second); os.IsTimeout(err) {
		t.Error(err)
	}
	ask()
}

func TestLimits_EndedConnectionFreesItsPlace(t *testing.T) {
	var answered atomic.Int32
	s := serve(t, 2, func(w http.ResponseWriter, r *http.Request) { answered.Add(1); ok(w, r) })
	for range 50 {
		s.scrape("127.0.0.1")
	}
	if n := answered.Load(); n != 50 {
		t.Errorf("%d of 50 were answered", n)
	}
	s.open.mu.Lock()
	defer s.open.mu.Unlock()
	if len(s.open.perClient) > 1 || len(s.open.open) > 2 {
		t.Errorf("remembered: %v", s.open.perClient)
	}
}

func TestLimits_UnfinishedHeaderEndsTheConnection(t *testing.T) {
	t.Parallel()
	s := serve(t, 8, ok)
	c := s.from("127.0.0.1", slowly)
	check.OK(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
	check.Got(io.Copy(io.Discard, c))(t) // until the server closes it
}

func TestServer_HasAllLimits(t *testing.T) {
	s := HTTP(nil)
	if s.ReadHeaderTimeout <= 0 || s.ReadTimeout <= 0 || s.WriteTimeout <= 0 || s.IdleTimeout <= 0 || s.MaxHeaderBytes <= 0 {
		t.Errorf("a limit is missing: %+v", s)
	}
}

func TestLimits_SilentPeerOfASocketIsDisconnected(t *testing.T) {
	t.Parallel()
	dir := check.Got(os.MkdirTemp("", "listener"))(t)
	defer os.RemoveAll(dir)
	plain := check.Got(new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(dir, "s")))(t)
	server := GRPC()
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(Limit(plain, 4)) }()
	defer func() {
		server.Stop()
		check.Report(t, <-ended)
	}()
	c := check.Got(new(net.Dialer).DialContext(context.WithoutCancel(t.Context()), "unix", plain.Addr().String()))(t)
	defer c.Close()
	check.OK(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
	if _, err := io.Copy(io.Discard, c); err != nil && !errors.Is(err, net.ErrClosed) && os.IsTimeout(err) {
		t.Errorf("it still has its place: %v", err)
	}
}

func TestLimits_OneHostIsOneClient(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.7:50123":              "192.0.2.7/32",
		"[::ffff:192.0.2.7]:50123":     "192.0.2.7/32",
		"[2001:db8:1:2:3:4:5:6]:50123": "2001:db8:1:2::/64",
		"[fe80::1%eth0]:50123":         "fe80::/64",
	} {
		if got := ClientOf(address); got != netip.MustParsePrefix(want) {
			t.Errorf("%s is %s, not %s", address, got, want)
		}
	}
	for _, address := range []string{"", "@", "/run/csi.sock", "host:1"} {
		if got := ClientOf(address); got.IsValid() {
			t.Errorf("%q is %s", address, got)
		}
	}
}
