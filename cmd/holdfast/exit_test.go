package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/standalone"
)

// refusing is an API server that answers all requests with a code and a reason.
func refusing(t *testing.T, code int, reason string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "refused", "reason": %q, "code": %d}`, reason, code)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestExitCode_SeparatesNotHealthyFromNotAsked(t *testing.T) {
	healthy := reachable(t, running(t, v1beta1.ClusterRunning).Config().Host)
	degraded := reachable(t, running(t, v1beta1.ClusterDegraded).Config().Host)
	forbidden := reachable(t, refusing(t, http.StatusForbidden, "Forbidden"))
	withoutHoldfast := reachable(t, refusing(t, http.StatusNotFound, "NotFound"))
	for _, test := range []struct {
		kubeconfig, context, line string
		want                      int
	}{
		{healthy, "here", "status", 0},
		{degraded, "here", "status", 1},
		{healthy, "here", "doctor", 1}, // there are no pods
		{healthy, "here", "status --nodes", 2},
		{healthy, "nowhere", "status", 3},
		{healthy, "nowhere", "doctor", 3},
		{healthy, "nowhere", "volumes list", 3},
		{healthy, "nowhere", "volumes delete pvc-1 --yes", 3},
		{healthy, "here", "volumes delete pvc-1 --yes", 1},
		{healthy, "elsewhere", "status", 3},
		{"/nowhere/kubeconfig", "here", "status", 3},
		{forbidden, "here", "status", 3},
		{forbidden, "here", "doctor", 3},
		{forbidden, "here", "volumes list", 3},
		{forbidden, "here", "volumes restore pvc-1", 3},
		{forbidden, "here", "bench --storage-class fast", 3},
		{withoutHoldfast, "here", "status", 3},
		{withoutHoldfast, "here", "snapshots list", 3},
	} {
		out, err := call(t, append(strings.Fields(test.line), "--kubeconfig", test.kubeconfig, "--context", test.context)...)
		if got := exitCode(err); got != test.want {
			t.Errorf("%s in %s: %d instead of %d: %v\n%s", test.line, test.context, got, test.want, err, out)
		}
	}
}

func TestExitCode_IsThatOfTheProcessAndErrorsAreOnStderr(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the program; run without -short")
	}
	binary, err := standalone.Binary(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := reachable(t, running(t, v1beta1.ClusterDegraded).Config().Host)
	for line, want := range map[string]int{"--version": 0, "status --context here -o json": 1, "status --contxt here": 2, "status --context nowhere -o json": 3} {
		cmd := exec.CommandContext(t.Context(), binary, strings.Fields(line)...)
		cmd.Env = append(cmd.Environ(), "KUBECONFIG="+kubeconfig)
		var stdout, stderr strings.Builder
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		if got := cmd.ProcessState.ExitCode(); got != want || (got != 0) != strings.HasPrefix(stderr.String(), "holdfast: ") || strings.Contains(stdout.String(), "holdfast: ") {
			t.Errorf("%s: %v instead of %d\n%s\n%s", line, err, want, &stdout, &stderr)
		}
		if printed := stdout.String() != ""; printed != (want < 2) {
			t.Errorf("%s printed %q", line, &stdout)
		}
	}
}

func TestContext_UnknownOneListsThoseOfTheKubeconfig(t *testing.T) {
	kubeconfig := reachable(t, "http://127.0.0.1:1")
	for _, line := range []string{"status", "volumes list", "volumes restore v", "bench --storage-class s"} {
		_, err := call(t, append(strings.Fields(line), "--kubeconfig", kubeconfig, "--context", "her")...)
		if err == nil || !strings.Contains(err.Error(), `no context "her"`) || !strings.Contains(err.Error(), "here, nowhere") {
			t.Errorf("%s: %v", line, err)
		}
	}
	none := file(t, "{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}], contexts: [{name: a, context: {cluster: c}}, {name: b, context: {cluster: c}}]}")
	if _, err := call(t, "status", "--kubeconfig", none); err == nil || !strings.Contains(err.Error(), "no current context") || !strings.Contains(err.Error(), "a, b") {
		t.Errorf("without a current one: %v", err)
	}
}
