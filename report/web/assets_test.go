package web

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// pagePaths are those of the files of the page.
func pagePaths(t *testing.T) (paths []string) {
	t.Helper()
	files, err := pageFiles()
	if err != nil {
		t.Fatal(err)
	}
	for path := range files {
		paths = append(paths, strings.TrimSuffix(path, "{$}"))
	}
	if len(paths) < 5 {
		t.Fatalf("only %v", paths)
	}
	return paths
}

func TestPage_IsBehindTheSameLogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.open()
		for _, path := range pagePaths(t) {
			q := r.request(http.MethodGet, path, nil)
			q.Header.Del("Authorization")
			if a := r.ask(q); a.status != http.StatusUnauthorized || !strings.HasPrefix(a.header.Get("WWW-Authenticate"), "Basic ") {
				t.Errorf("%s without a password: %d", path, a.status)
			}
			q.SetBasicAuth(user, "wrong")
			if a := r.ask(q); a.status != http.StatusUnauthorized {
				t.Errorf("%s with a wrong password: %d", path, a.status)
			}
		}
	})
}

func TestPage_ItsFilesMayLoadNothingFromElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.open()
		elsewhere := regexp.MustCompile(`(https?:)?//[a-z0-9.-]+\.[a-z]|\b(innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval|Function)\b|<script>| style=| on[a-z]+="`)
		for _, path := range pagePaths(t) {
			a := r.get(path)
			h := a.header
			if a.status != http.StatusOK || h.Get("Content-Security-Policy") != pagePolicy || h.Get("X-Content-Type-Options") != "nosniff" ||
				h.Get("Referrer-Policy") != "no-referrer" || h.Get("Cross-Origin-Resource-Policy") != "same-origin" || h.Get("Set-Cookie") != "" || h.Get("Content-Type") == "" {
				t.Errorf("%s: %d %v", path, a.status, h)
			}
			text := strings.ReplaceAll(string(a.body), `xmlns="http://www.w3.org/2000/svg"`, "")
			if found := elsewhere.FindString(text); found != "" {
				t.Errorf("%s has %q", path, found)
			}
			q := r.request(http.MethodGet, path, nil)
			q.Header.Set("If-None-Match", h.Get("ETag"))
			if again := r.ask(q); again.status != http.StatusNotModified || len(again.body) > 0 {
				t.Errorf("%s requested again: %d, %d bytes", path, again.status, len(again.body))
			}
			for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
				if a := r.ask(r.request(method, path, nil)); a.status != http.StatusMethodNotAllowed {
					t.Errorf("%s %s: %d", method, path, a.status)
				}
			}
		}
	})
}

func TestAnswers_AreForThePagesOfTheSameOriginAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.open()
		for _, path := range []string{"/api/v1/volumes", "/api/v1/none", "/openapi.json"} {
			h := r.get(path).header
			if h.Get("Cross-Origin-Resource-Policy") != "same-origin" || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Access-Control-Allow-Origin") != "" ||
				h.Get("Content-Security-Policy") != "default-src 'none'; frame-ancestors 'none'" || h.Get("Cache-Control") != "no-store" {
				t.Errorf("%s: %v", path, h)
			}
		}
	})
}

// An answer is never taken for a page, whatever is in it.
func TestAnswers_HostileNamesAreTextOfJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		hostile := `<img src=x onerror=alert(1)>"'` + "\u202e"
		r.node(hostile, metav1.ConditionFalse, hostile)
		r.volume("v", hostile, hostile, v1beta1.VolumeStatus{Phase: v1beta1.PhaseReady})
		r.open()
		r.volumes(1)
		for _, path := range []string{"nodes", "pools", "volumes", "findings", "volumes?search=" + `%3Cimg`, "volumes/" + `%3Cimg`} {
			a := r.get("/api/v1/" + path)
			if a.header.Get("Content-Type") != "application/json" || !strings.Contains(string(a.body), `<img`) {
				t.Errorf("%s: %v %s", path, a.header, a.body)
			}
		}
		if v := read[List[Volume]](r, "/api/v1/volumes").Items[0]; v.Node != hostile {
			t.Errorf("the node is %q", v.Node)
		}
	})
}
