package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestBench_UsageErrorNamesTheAllowedValues(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nowhere/kubeconfig") // no cluster is needed to say it
	for name, test := range map[string]struct {
		args []string
		want []string
	}{
		"no class":             {nil, []string{"storage class is missing"}},
		"an unknown format":    {[]string{"--output", "xml"}, []string{`"xml"`, "table, wide, json or yaml"}},
		"no number":            {[]string{"--at-once", "1,many"}, []string{`"many"`, "1,20,100"}},
		"nothing at once":      {[]string{"--at-once", ""}, []string{"at-once", "1,20,100"}},
		"too many at once":     {[]string{"--at-once", "1, 100000"}, []string{"100000", "1 to 1000"}},
		"a number twice":       {[]string{"--at-once", "5,1,5"}, []string{"5 volumes", "twice"}},
		"a size that is none":  {[]string{"--size", "big"}, []string{"size", `"big"`}},
		"no repetition":        {[]string{"--repeat", "0"}, []string{"0 repetitions", "1 to 1000"}},
		"a timeout that ended": {[]string{"--timeout", "-1s"}, []string{"-1s", "5m"}},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"bench"}, test.args...)
			if name != "no class" {
				args = append(args, "--storage-class", "fast")
			}
			_, err := call(t, args...)
			if !errors.Is(err, errUsage) {
				t.Fatalf("got %v, want an error of usage", err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not name %s", err, want)
				}
			}
		})
	}
}

func TestBench_HelpShowsTheDefaults(t *testing.T) {
	out := check.Got(call(t, "bench", "--help"))(t)
	for _, want := range []string{
		"--storage-class NAME", "--at-once NUMBERS", "default: 1,20,100", "--repeat NUMBER", "--size SIZE", "default: 64Mi",
		"--image IMAGE", "default: busybox:1", "--node NAME", "--timeout DURATION", "default: 5m0s", "-o, --output FORMAT", "default: table",
		"--kubeconfig FILE", "--context NAME", "$KUBECONFIG",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in:\n%s", want, out)
		}
	}
}

// emptyCluster is an API server that has nothing, with a kubeconfig whose contexts all lead to it. It reports how often
// it was asked.
func emptyCluster(t *testing.T, contexts ...string) (kubeconfig string, asked *atomic.Int32) {
	t.Helper()
	asked = new(atomic.Int32)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}`)
	}))
	t.Cleanup(server.Close)
	var b strings.Builder
	fmt.Fprintf(&b, "{apiVersion: v1, kind: Config, current-context: %s, clusters: [{name: c, cluster: {server: '%s'}}], contexts: [", contexts[0], server.URL)
	for _, context := range contexts {
		fmt.Fprintf(&b, "{name: %s, context: {cluster: c}}, ", context)
	}
	b.WriteString("]}")
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	check.OK(t, os.WriteFile(kubeconfig, []byte(b.String()), 0o600))
	return kubeconfig, asked
}

func TestKubeconfig_UserCommandFindsTheClusterLikeKubectl(t *testing.T) {
	named, askedNamed := emptyCluster(t, "here", "there")
	set, askedSet := emptyCluster(t, "default")
	t.Setenv("KUBECONFIG", set)
	ask := func(args ...string) error {
		askedNamed.Store(0)
		askedSet.Store(0)
		_, err := call(t, append([]string{"bench", "--storage-class", "fast"}, args...)...)
		return err
	}
	if err := ask(); askedSet.Load() == 0 || askedNamed.Load() != 0 || err == nil || !strings.Contains(err.Error(), `no storage class "fast"`) {
		t.Errorf("of $KUBECONFIG: asked %d and %d times, %v", askedNamed.Load(), askedSet.Load(), err)
	}
	if err := ask("--kubeconfig", named); askedNamed.Load() == 0 || askedSet.Load() != 0 || err == nil {
		t.Errorf("--kubeconfig: asked %d and %d times, %v", askedNamed.Load(), askedSet.Load(), err)
	}
	if err := ask("--kubeconfig", named, "--context", "there"); askedNamed.Load() == 0 || err == nil {
		t.Errorf("--context: asked %d times, %v", askedNamed.Load(), err)
	}
	if err := ask("--kubeconfig", named, "--context", "elsewhere"); askedNamed.Load() != 0 || err == nil || !strings.Contains(err.Error(), `"elsewhere"`) {
		t.Errorf("--context of an unknown: asked %d times, %v", askedNamed.Load(), err)
	}
	if err := ask("--kubeconfig", "/nowhere/kubeconfig"); askedSet.Load() != 0 || err == nil || !strings.Contains(err.Error(), "/nowhere/kubeconfig") || !strings.Contains(err.Error(), "give --kubeconfig") {
		t.Errorf("--kubeconfig of an unknown: asked %d times, %v", askedSet.Load(), err)
	}
}
