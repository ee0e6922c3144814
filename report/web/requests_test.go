package web

import (
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestRequest_ThatIsWrongIsAnsweredWithWhatIsAllowed(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.open()
		for _, test := range []struct {
			method, path string
			body         io.Reader
			status       int
			want         string
		}{
			{"POST", reportPath, nil, 405, "GET and HEAD"},
			{"DELETE", "/", nil, 405, "kubectl"},
			{"OPTIONS", "/page/page.js", nil, 405, "OPTIONS"},
			{"PUT", "/livez", nil, 405, "PUT"},
			{"GET", "/api/v1/volumes", nil, 404, reportPath},
			{"GET", reportPath + "/", nil, 404, "nothing is at"},
			{"GET", "/page/", nil, 404, reportPath},
			{"GET", "/page/..%2f..%2fetc", nil, 404, `"/page/../../etc"`},
			{"GET", reportPath + "?limit=1", nil, 400, "no parameters"},
			{"GET", reportPath, strings.NewReader("x"), 413, "must have none"},
			{"GET", "/", io.MultiReader(strings.NewReader("x")), 413, "must have none"}, // of an unknown length
		} {
			a := r.ask(r.request(test.method, test.path, test.body))
			var e Error
			if err := json.Unmarshal(a.body, &e); err != nil || e.Status != a.status || e.Reason != http.StatusText(a.status) {
				r.Errorf("%s %s: no error as they are all: %d %s", test.method, test.path, a.status, a.body)
			}
			if a.status != test.status || !strings.Contains(e.Message, test.want) {
				r.Errorf("%s %s: %d %s, want %d %s", test.method, test.path, a.status, a.body, test.status, test.want)
			}
			if allow := a.header.Get("Allow"); a.status == 405 && allow != "GET, HEAD" {
				r.Errorf("%s: Allow is %q", test.method, allow)
			}
		}
		if a := r.ask(r.request(http.MethodHead, reportPath, nil)); a.status != http.StatusOK || len(a.body) > 0 || a.header.Get("Content-Length") == "" {
			r.Errorf("HEAD: %d %v %q", a.status, a.header, a.body)
		}
	})
}

// pagePaths are those of the files of the page.
func pagePaths(t *testing.T) (paths []string) {
	t.Helper()
	files := check.Got(pageFiles())(t)
	for path := range files {
		paths = append(paths, strings.TrimSuffix(path, "{$}"))
	}
	if len(paths) < 5 {
		t.Fatalf("only %v", paths)
	}
	return paths
}

func TestPage_ItsFilesMayLoadNothingFromElsewhere(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.open()
		elsewhere := regexp.MustCompile(`(https?:)?//[a-z0-9.-]+\.[a-z]|\b(innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval|Function)\b|<script>| style=| on[a-z]+="`)
		for _, path := range pagePaths(r.T) {
			a := r.get(path)
			h := a.header
			if a.status != http.StatusOK || h.Get("Content-Security-Policy") != pagePolicy || h.Get("X-Content-Type-Options") != "nosniff" ||
				h.Get("Referrer-Policy") != "no-referrer" || h.Get("Cross-Origin-Resource-Policy") != "same-origin" || h.Get("Set-Cookie") != "" || h.Get("Content-Type") == "" {
				r.Errorf("%s: %d %v", path, a.status, h)
			}
			text := strings.ReplaceAll(string(a.body), `xmlns="http://www.w3.org/2000/svg"`, "")
			if found := elsewhere.FindString(text); found != "" {
				r.Errorf("%s has %q", path, found)
			}
			q := r.request(http.MethodGet, path, nil)
			q.Header.Set("If-None-Match", h.Get("ETag"))
			if again := r.ask(q); again.status != http.StatusNotModified || len(again.body) > 0 {
				r.Errorf("%s requested again: %d, %d bytes", path, again.status, len(again.body))
			}
		}
	})
}

func TestAnswers_AreJSONForPagesOfTheSameOriginWhateverIsInThem(t *testing.T) {
	inBubble(t, func(r *rig) {
		hostile := `<img src=x onerror=alert(1)>"'` + "\u202e"
		r.node(hostile, metav1.ConditionFalse, hostile)
		r.volume("v", hostile, hostile, v1beta1.VolumeStatus{Phase: v1beta1.PhaseReady})
		r.open()
		report := r.until("the volume is known", func(report Report) bool { return len(report.Volumes) == 1 })
		if v := report.Volumes[0]; v.Node != hostile || v.Pool != hostile {
			r.Errorf("got %+v", v)
		}
		for _, path := range []string{reportPath, "/" + "%3Cimg"} {
			a := r.get(path)
			h := a.header
			if h.Get("Content-Type") != "application/json" || h.Get("Cross-Origin-Resource-Policy") != "same-origin" || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Access-Control-Allow-Origin") != "" ||
				h.Get("Content-Security-Policy") != "default-src 'none'; frame-ancestors 'none'" || h.Get("Cache-Control") != "no-store" || !strings.Contains(string(a.body), "<img") {
				r.Errorf("%s: %v %s", path, h, a.body)
			}
		}
	})
}
