package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/cmd/holdfast/terminal"
	"github.com/holdfast-storage/holdfast/test/rig/miniapi"
	"github.com/holdfast-storage/holdfast/test/rig/pty"
)

// identified are the flags to reach an API that says who its user is.
func identified(t *testing.T, api *miniapi.Server) []string {
	t.Helper()
	return at(t, inFront(t, api, func(w http.ResponseWriter, r *http.Request) bool {
		asks := strings.HasSuffix(r.URL.Path, "/selfsubjectreviews")
		if asks {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1","status":{"userInfo":{"username":"alice"}}}`)
		}
		return asks
	}))
}

func TestProgress_OfARestoreIsOneLineOnATerminalAndPlainLinesInAPipe(t *testing.T) {
	flags := append(identified(t, storedAPI(t)), "--timeout", "2s") // no agent carries it out
	screen := pty.New(t, 100, 10)
	err := run(t.Context(), append([]string{"volumes", "restore", "pvc-9"}, flags...), screen.Program)
	if err == nil || !strings.Contains(err.Error(), "a takes volume pvc-9 out of its trash") {
		t.Fatalf("got %v", err)
	}
	screen.Await(0, "] waiting: a takes volume pvc-9 out of its trash\x1b[K\r\x1b[K") // and the line is gone
	if got := screen.Written(); strings.Contains(got, "\n") {
		t.Errorf("%q", got)
	}
	out, err := callLine(t, "volumes restore pvc-9", flags...)
	if err == nil || out != "waiting: a takes volume pvc-9 out of its trash\n" {
		t.Errorf("%v: %q", err, out)
	}
}

func TestProgress_OfABenchIsItsLastLineWithoutTimeAndLevel(t *testing.T) {
	screen := pty.New(t, 100, 10)
	p := terminal.NewProgress(screen.Program)
	log := progressLog(p)
	log.Info("measuring", "atOnce", 1, "round", 2, "of", 10)
	screen.Await(0, "[0s] measuring atOnce=1 round=2 of=10")
	p.Done()
}
