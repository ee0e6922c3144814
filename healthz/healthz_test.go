package healthz

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const local = "127.0.0.1:1"

func get(t *testing.T, h http.Handler, client, path string) (status int, body string) {
	t.Helper()
	w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
	r.RemoteAddr = client
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func TestChecks_AreServedInTheFormatOfTheAPIServer(t *testing.T) {
	var broken error
	c := &Checks{}
	c.Live("socket", func(context.Context) error { return nil })
	c.Ready("socket", func(context.Context) error { return nil })
	c.Ready("pools", func(context.Context) error { return broken })
	h := c.Handler()
	ask := func(answers map[string]string) {
		t.Helper()
		for path, want := range answers {
			wantStatus := http.StatusOK
			if strings.Contains(want, "[-]") {
				wantStatus = http.StatusInternalServerError
			}
			if status, body := get(t, h, local, path); status != wantStatus || body != want {
				t.Errorf("%s: %d %q, not %d %q", path, status, body, wantStatus, want)
			}
		}
	}
	ask(map[string]string{
		"/livez": "ok", "/readyz": "ok", "/livez/ping": "ok", "/livez/socket": "ok", "/readyz/pools": "ok",
		"/livez?verbose":        "[+]ping ok\n[+]socket ok\nlivez check passed\n",
		"/readyz?verbose":       "[+]ping ok\n[+]socket ok\n[+]pools ok\nreadyz check passed\n",
		"/readyz/pools?verbose": "[+]pools ok\nreadyz check passed\n",
	})
	broken = errors.Join(errors.New("one"), errors.New("two"))
	ask(map[string]string{
		"/livez": "ok", "/readyz/socket": "ok",
		"/readyz":         "[+]ping ok\n[+]socket ok\n[-]pools failed: one; two\nreadyz check failed\n",
		"/readyz?verbose": "[+]ping ok\n[+]socket ok\n[-]pools failed: one; two\nreadyz check failed\n",
		"/readyz/pools":   "[-]pools failed: one; two\nreadyz check failed\n",
	})
	for _, path := range []string{"/", "/healthz", "/livez/pools", "/readyz/", "/readyz/none"} {
		if status, body := get(t, h, local, path); status != http.StatusNotFound {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}

func TestCheck_ShowsOnLocalhostAloneWhyItFails(t *testing.T) {
	c := &Checks{}
	c.Ready("pool", func(context.Context) error { return errors.New("the monitors 10.0.0.1:3300 refuse client.holdfast") })
	for client, shown := range map[string]bool{
		"127.0.0.1:1": true, "[::1]:1": true, "[::ffff:127.0.0.1]:1": true, "10.0.0.5:1": false, "[2001:db8::5]:1": false, "": false,
	} {
		status, body := get(t, c.Handler(), client, "/readyz")
		if status != http.StatusInternalServerError || !strings.Contains(body, "[-]pool failed: ") || strings.Contains(body, "10.0.0.1") != shown {
			t.Errorf("for %q: %d %s", client, status, body)
		}
	}
}

func TestCheck_HasALimitedTime(t *testing.T) {
	c := &Checks{}
	c.Ready("slow", func(ctx context.Context) error {
		if _, limited := ctx.Deadline(); !limited {
			t.Error("it may take forever")
		}
		return nil
	})
	if status, body := get(t, c.Handler(), local, "/readyz"); status != http.StatusOK {
		t.Errorf("%d %s", status, body)
	}
}

func TestLog_HasOnlyChanges(t *testing.T) {
	var out bytes.Buffer
	var broken error
	c := &Checks{Log: slog.New(slog.NewTextHandler(&out, nil))}
	c.Ready("pools", func(context.Context) error { return broken })
	h := c.Handler()
	for _, broken = range []error{nil, nil, errors.New("gone"), errors.New("gone"), nil, nil} {
		get(t, h, local, "/readyz")
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "level=WARN") || !strings.Contains(lines[0], "path=/readyz check=pools error=gone") || !strings.Contains(lines[1], "passes again") {
		t.Errorf("it has:\n%s", &out)
	}
}

func TestLog_IsSilentOfClientsThatGo(t *testing.T) {
	var out bytes.Buffer
	c := &Checks{Log: slog.New(slog.NewTextHandler(&out, nil))}
	ctx, cancel := context.WithCancel(t.Context())
	c.Ready("pools", func(ctx context.Context) error {
		cancel()
		return ctx.Err()
	})
	c.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/readyz", http.NoBody))
	if out.Len() > 0 {
		t.Errorf("it has:\n%s", &out)
	}
}
