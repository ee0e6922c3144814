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
	for line, want := range map[string][]string{
		"":                                       {"storage class is missing"},
		"--storage-class fast --output xml":      {`"xml"`, "table, wide, json or yaml"},
		"--storage-class fast --at-once 1,many":  {`"many"`, "--at-once", "1,20,100"},
		"--storage-class fast --at-once=":        {"--at-once", "1,20,100"},
		"--storage-class fast --at-once 1,10000": {"10000", "1 to 1000"},
		"--storage-class fast --size big":        {"size", `"big"`},
	} {
		_, err := call(t, append([]string{"bench"}, strings.Fields(line)...)...)
		for _, word := range want {
			if !errors.Is(err, errUsage) || !strings.Contains(err.Error(), word) {
				t.Errorf("%s: got %v, want an error of usage that names %s", line, err, word)
			}
		}
	}
}

func TestBench_LastNumbersAtOnceCountAndMayHaveSpaces(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nowhere/kubeconfig")
	_, err := call(t, "bench", "--storage-class", "fast", "--repeat", "0", "--at-once", "5", "--at-once", "1, 5")
	if !errors.Is(err, errUsage) || !strings.Contains(err.Error(), "0 repetitions") || strings.Contains(err.Error(), "at once") {
		t.Errorf("got %v, want an error about the repetitions alone", err)
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
	for _, test := range []struct {
		flags                string
		ofTheFlag, ofTheFile bool // which cluster is asked
		want                 string
	}{
		{"", false, true, `no storage class "fast"`},
		{"--kubeconfig " + named, true, false, `no storage class "fast"`},
		{"--context there --kubeconfig " + named, true, false, `no storage class "fast"`},
		{"--context elsewhere --kubeconfig " + named, false, false, `"elsewhere"`},
		{"--kubeconfig /nowhere/kubeconfig", false, false, "/nowhere/kubeconfig"},
		{"--kubeconfig /nowhere/kubeconfig", false, false, "give --kubeconfig"},
	} {
		askedNamed.Store(0)
		askedSet.Store(0)
		_, err := call(t, append([]string{"bench", "--storage-class", "fast"}, strings.Fields(test.flags)...)...)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", test.flags, err, test.want)
		}
		if ofTheFlag, ofTheFile := askedNamed.Load() > 0, askedSet.Load() > 0; ofTheFlag != test.ofTheFlag || ofTheFile != test.ofTheFile {
			t.Errorf("%s: it asked the cluster of the flag: %v, of $KUBECONFIG: %v", test.flags, ofTheFlag, ofTheFile)
		}
	}
}
