package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/standalone"
)

// refusing is an API server that answers all requests with a code and a reason.
func refusing(t *testing.T, code int, reason string) string {
	t.Helper()
	server := httptest.NewServer(refuse(code, reason))
	t.Cleanup(server.Close)
	return server.URL
}

func refuse(code int, reason string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "refused", "reason": %q, "code": %d}`, reason, code)
	}
}

// lacking is an API server that does not know the kinds below a path.
func lacking(t *testing.T, path string) string {
	t.Helper()
	return inFront(t, running(t, v1beta1.ClusterRunning), func(w http.ResponseWriter, r *http.Request) bool {
		lacks := strings.HasPrefix(r.URL.Path, path)
		if lacks {
			refuse(http.StatusNotFound, "NotFound")(w, r)
		}
		return lacks
	})
}

func TestExitCode_SeparatesNotHealthyFromNotAsked(t *testing.T) {
	healthy := reachable(t, running(t, v1beta1.ClusterRunning).URL())
	degraded := reachable(t, running(t, v1beta1.ClusterDegraded).URL())
	forbidden := reachable(t, refusing(t, http.StatusForbidden, "Forbidden"))
	withoutHoldfast := reachable(t, refusing(t, http.StatusNotFound, "NotFound"))
	empty := reachable(t, lacking(t, "/apis/holdfast.dev/"))
	partly := reachable(t, lacking(t, "/apis/holdfast.dev/v1beta1/snapshots"))
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
		{withoutHoldfast, "here", "doctor", 3},
		{empty, "here", "doctor", 3},
		{partly, "here", "doctor", 1}, // a definition is missing, which is a problem
		// Refused before the cluster is asked.
		{healthy, "nowhere", "volumes adopt PVC_1 --claim shop/orders", 2},
		{healthy, "nowhere", "volumes adopt pvc-1 --claim shop/orders --reclaim-policy Keep", 2},
		{healthy, "nowhere", "volumes adopt pvc-1 --claim shop/orders --access-mode RWX", 2},
		{healthy, "nowhere", "volumes restore PVC_1", 2},
		{healthy, "nowhere", "volumes delete PVC_1 --yes", 2},
		{healthy, "nowhere", "snapshots delete S_1 --yes", 2},
	} {
		out, err := callLine(t, test.line, "--kubeconfig", test.kubeconfig, "--context", test.context)
		if got := exitCode(err); got != test.want {
			t.Errorf("%s in %s: %d instead of %d: %v\n%s", test.line, test.context, got, test.want, err, out)
		}
	}
}

// withContent is a kubeconfig with fields of a cluster and a user.
func withContent(t *testing.T, cluster, user string) string {
	t.Helper()
	return file(t, fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1', %s}}]
contexts: [{name: here, context: {cluster: c, user: u}}]
users: [{name: u, user: {%s}}]
current-context: here
`, cluster, user))
}

// pair is a certificate and a private key, as the data of a kubeconfig.
func pair(t *testing.T) (certificate, private string) {
	t.Helper()
	key := check.Got(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	signed := check.Got(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))(t)
	encoded := check.Got(x509.MarshalPKCS8PrivateKey(key))(t)
	data := func(kind string, content []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}))
	}
	return data("CERTIFICATE", signed), data("PRIVATE KEY", encoded)
}

func TestExitCode_OfAKubeconfigWithUnusableContentIsThatOfNotAsked(t *testing.T) {
	certificate, _ := pair(t)
	_, ofAnother := pair(t)
	for what, kubeconfig := range map[string]string{
		"an authority that is no PEM":               withContent(t, "certificate-authority-data: "+base64.StdEncoding.EncodeToString([]byte("none")), ""),
		"a certificate with the key of another one": withContent(t, "insecure-skip-tls-verify: true", "client-certificate-data: "+certificate+", client-key-data: "+ofAnother),
	} {
		for _, line := range []string{
			"status", "status --watch", "doctor", "top", "volumes list", "volumes trash", "snapshots list", "volumes restore pvc-1", "snapshots delete s-1 --yes", "bench --storage-class fast",
			"controller",
		} {
			out, err := callLine(t, line, "--kubeconfig", kubeconfig)
			if exitCode(err) != 3 || !strings.Contains(err.Error(), "the configuration for the API server cannot be used") {
				t.Errorf("%s with %s: %d, %v\n%s", line, what, exitCode(err), err, out)
			}
		}
	}
}

func TestExitCode_IsThatOfTheProcessAndErrorsAreOnStderr(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the program; run without -short")
	}
	binary := check.Got(standalone.Binary(t.Context(), t.TempDir()))(t)
	kubeconfig := reachable(t, running(t, v1beta1.ClusterDegraded).URL())
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
		_, err := callLine(t, line, "--kubeconfig", kubeconfig, "--context", "her")
		if err == nil || !strings.Contains(err.Error(), `no context "her"`) || !strings.Contains(err.Error(), "here, nowhere") {
			t.Errorf("%s: %v", line, err)
		}
	}
	none := file(t, "{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}], contexts: [{name: a, context: {cluster: c}}, {name: b, context: {cluster: c}}]}")
	if _, err := call(t, "status", "--kubeconfig", none); err == nil || !strings.Contains(err.Error(), "no current context") || !strings.Contains(err.Error(), "a, b") {
		t.Errorf("without a current one: %v", err)
	}
}
