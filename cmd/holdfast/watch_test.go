package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/report/status"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/miniapi"
	"github.com/holdfast-storage/holdfast/test/rig/pty"
	"github.com/holdfast-storage/holdfast/test/rig/standalone"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

const (
	anotherScreen = "\x1b[?1049h"
	screenBefore  = "\x1b[?1049l"
)

// become gives the StorageCluster of an API another phase.
func become(t *testing.T, api *miniapi.Server, phase v1beta1.ClusterPhase) {
	t.Helper()
	clusters := holdfast.NewForConfigOrDie(api.Config()).HoldfastV1beta1().StorageClusters()
	check.Got(clusters.Patch(t.Context(), "mine", types.MergePatchType, []byte(`{"status":{"phase":"`+string(phase)+`"}}`), metav1.PatchOptions{}, "status"))(t)
}

func TestStatus_WatchOnATerminalEndsAtControlCWithTheCodeOfWhatWasSeenLast(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the program; run without -short")
	}
	binary := check.Got(standalone.Binary(t.Context(), t.TempDir()))(t)
	api := running(t, v1beta1.ClusterRunning)
	screen := pty.New(t, 100, 30)
	cmd := exec.Command(binary, "status", "--watch", "--interval", "100ms", "--kubeconfig", reachable(t, api.URL()), "--context", "here")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = screen.Program, screen.Program, screen.Program
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Pdeathsig: syscall.SIGKILL}
	check.OK(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	end := screen.Await(0, anotherScreen)
	end = screen.Await(end, "All is well.")
	become(t, api, v1beta1.ClusterDegraded)
	end = screen.Await(end, "Not well: StorageCluster mine is Degraded")
	screen.Type("\x03")
	end = screen.Await(end, screenBefore)
	screen.Await(end, "Not well: StorageCluster mine is Degraded") // it stays readable
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("it ended with %v", err)
	}
	if all := screen.Written(); strings.Count(all, anotherScreen) != strings.Count(all, screenBefore) || !strings.Contains(all, "\x1b[?25h") || strings.LastIndex(all, "\x1b[?25l") > strings.LastIndex(all, "\x1b[?25h") {
		t.Errorf("the terminal is not as it was:\n%q", all)
	}
}

// buffer may be read while it is written.
type buffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func TestStatus_WatchInAPipePrintsABlockForEachChange(t *testing.T) {
	api := running(t, v1beta1.ClusterDegraded)
	ctx, cancel := context.WithCancel(t.Context())
	var out buffer
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, []string{"status", "-w", "--interval", "100ms", "--kubeconfig", reachable(t, api.URL()), "--context", "here"}, &out)
	}()
	wait.Until(t, "the first block", func() bool { return strings.Contains(out.String(), "Not well: ") })
	api.Requests()
	wait.Until(t, "more looks", func() bool { return api.Requests()["list storageclusters"] > 0 })
	become(t, api, v1beta1.ClusterRunning)
	wait.Until(t, "the second block", func() bool { return strings.Contains(out.String(), "All is well.") })
	cancel()
	if err := <-ended; exitCode(err) != 0 {
		t.Errorf("a cluster that is well in the end: %v", err)
	}
	if text := out.String(); strings.Count(text, "StorageCluster mine: ") != 2 || strings.Contains(text, "\x1b") {
		t.Errorf("%q", text)
	}
}

// hanging is an API server that does not answer requests for the kind that is stored, and counts them.
type hanging struct {
	*httptest.Server
	kind atomic.Value
	held atomic.Int64
}

func newHanging(t *testing.T, api *miniapi.Server) *hanging {
	t.Helper()
	target := check.Got(url.Parse(api.URL()))(t)
	through := httputil.NewSingleHostReverseProxy(target)
	h := &hanging{}
	h.kind.Store("none")
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/"+h.kind.Load().(string)) {
			h.held.Add(1)
			<-r.Context().Done()
			return
		}
		through.ServeHTTP(w, r)
	}))
	t.Cleanup(h.Close)
	return h
}

// unserved adds an NFS server that no controller has looked at.
func unserved(t *testing.T, api *miniapi.Server) {
	t.Helper()
	servers := holdfast.NewForConfigOrDie(api.Config()).HoldfastV1beta1().NFSServers("team")
	check.Got(servers.Create(t.Context(), &v1beta1.NFSServer{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "files"}}, metav1.CreateOptions{}))(t)
}

func TestStatus_InterruptedEndsWithTheCodeOfTheLastWholeLook(t *testing.T) {
	well := running(t, v1beta1.ClusterRunning)
	notWell := running(t, v1beta1.ClusterRunning)
	unserved(t, notWell)
	for name, test := range map[string]struct {
		api    *miniapi.Server
		before string // it hangs; nothing if it does from the beginning
		kind   string
		flags  []string
		want   int
	}{
		"before the first answer":               {well, "", "storageclusters", []string{"-w", "--interval", "100ms"}, 3},
		"between the lists of the first look":   {well, "", "nfsservers", []string{"-w", "--interval", "100ms"}, 3},
		"between the lists of the only look":    {notWell, "", "nfsservers", nil, 3},
		"while it looks again, and all is well": {well, "All is well.", "storageclusters", []string{"-w", "--interval", "100ms"}, 0},
		"while it looks again, and is not well": {notWell, "Not well: ", "storageclusters", []string{"-w", "--interval", "100ms"}, 1},
		"between the lists of another look":     {notWell, "Not well: ", "nfsservers", []string{"-w", "--interval", "100ms"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			server := newHanging(t, test.api)
			if test.before == "" {
				server.kind.Store(test.kind)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var out buffer
			ended := make(chan error, 1)
			go func() {
				ended <- run(ctx, append([]string{"status", "--kubeconfig", reachable(t, server.URL), "--context", "here"}, test.flags...), &out)
			}()
			wait.Until(t, "the first look", func() bool { return strings.Contains(out.String(), test.before) })
			server.kind.Store(test.kind)
			wait.Until(t, "a request without an answer", func() bool { return server.held.Load() > 0 })
			cancel()
			if err := <-ended; exitCode(err) != test.want {
				t.Errorf("%d instead of %d: %v\n%s", exitCode(err), test.want, err, out.String())
			}
		})
	}
}

func TestStatus_WatchOutlivesAnAPIServerThatIsAway(t *testing.T) {
	api := running(t, v1beta1.ClusterRunning)
	gone := miniapi.New(t)
	ctx, cancel := context.WithCancel(t.Context())
	var out buffer
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, []string{"status", "-w", "--interval", "100ms", "--kubeconfig", reachable(t, api.URL()), "--context", "here"}, &out)
	}()
	wait.Until(t, "the first block", func() bool { return strings.Contains(out.String(), "All is well.") })
	api.Close()
	wait.Until(t, "the end of the API server", func() bool { return strings.Contains(out.String(), "could not be asked, and is asked again") })
	cancel()
	if err := <-ended; exitCode(err) != 3 {
		t.Errorf("got %v", err)
	}
	was := gone.URL()
	gone.Close()
	if err := run(t.Context(), []string{"status", "-w", "--kubeconfig", reachable(t, was), "--context", "here"}, &out); exitCode(err) != 3 {
		t.Errorf("one that never answered: %v", err)
	}
	if err := run(t.Context(), []string{"status", "-w", "--interval", "0s", "--kubeconfig", reachable(t, was), "--context", "here"}, &out); exitCode(err) != 2 {
		t.Errorf("without an interval: %v", err)
	}
}

// documents are those that a YAML reader sees in what status prints.
func documents(t *testing.T, text string) (phases []string) {
	t.Helper()
	reader := yaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return phases
		}
		var report status.Report
		if err == nil {
			err = yaml.UnmarshalStrict(document, &report)
		}
		if err != nil || report.Cluster == nil {
			t.Fatalf("%v: %s", err, document)
		}
		phases = append(phases, string(report.Cluster.Phase))
	}
}

func TestStatus_WatchInYAMLIsAStreamOfDocuments(t *testing.T) {
	api := running(t, v1beta1.ClusterDegraded)
	var away atomic.Bool
	target := check.Got(url.Parse(api.URL()))(t)
	through := httputil.NewSingleHostReverseProxy(target)
	var refused atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if away.Load() {
			refused.Add(1)
			http.Error(w, "away", http.StatusForbidden)
			return
		}
		through.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	ctx, cancel := context.WithCancel(t.Context())
	var out buffer
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, []string{"status", "-w", "-o", "yaml", "--interval", "100ms", "--kubeconfig", reachable(t, server.URL), "--context", "here"}, &out)
	}()
	wait.Until(t, "the first document", func() bool { return strings.Contains(out.String(), "phase: Degraded") })
	away.Store(true) // of which nothing is printed, also no document without content
	wait.Until(t, "refused looks", func() bool { return refused.Load() > 40 })
	become(t, api, v1beta1.ClusterRunning)
	away.Store(false)
	wait.Until(t, "the second document", func() bool { return strings.Contains(out.String(), "phase: Running") })
	cancel()
	check.Report(t, <-ended)
	if got := slices.Compact(documents(t, out.String())); !slices.Equal(got, []string{"Degraded", "Running"}) {
		t.Errorf("the documents are of %q:\n%s", got, out.String())
	}
}

func TestStatus_OnATerminalIsDrawnForIt(t *testing.T) {
	api := running(t, v1beta1.ClusterRunning)
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG", "NO_COLOR"} {
		t.Setenv(name, "")
	}
	args := []string{"status", "--kubeconfig", reachable(t, api.URL()), "--context", "here"}
	screen := pty.New(t, 40, 30)
	check.OK(t, run(t.Context(), args, screen.Program))
	end := screen.Await(0, "\x1b[32mAll is well.\x1b[0m\n")
	if line, _, _ := strings.Cut(screen.Written(), "\n"); !strings.HasSuffix(line, "...") {
		t.Errorf("%q is not cut", line)
	}
	t.Setenv("NO_COLOR", "1")
	check.OK(t, run(t.Context(), args, screen.Program))
	screen.Await(end, "\nAll is well.\n")
}

func TestTop_WatchShowsSampleAfterSample(t *testing.T) {
	screen := pty.New(t, 120, 10)
	flags := proxied(t, used(t), serving(map[string]int{"pvc-1": 100}))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, append([]string{"top", "-w", "--node", "a"}, flags...), screen.Program) }()
	end := screen.Await(0, anotherScreen)
	for range 3 {
		end = screen.Await(end, "shop/orders")
	}
	cancel()
	check.Report(t, <-ended)
	screen.Await(end, screenBefore)
	var out buffer
	ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() { ended <- run(ctx, append([]string{"top", "-w", "--node", "a", "-o", "json"}, flags...), &out) }()
	wait.Until(t, "three samples in a pipe", func() bool { return strings.Count(out.String(), `"seconds"`) >= 3 })
	cancel()
	check.Report(t, <-ended)
	var documents buffer
	ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() {
		ended <- run(ctx, append([]string{"top", "-w", "--node", "a", "-o", "yaml"}, flags...), &documents)
	}()
	wait.Until(t, "two samples in YAML", func() bool { return strings.Count(documents.String(), "\nseconds:") >= 2 })
	cancel()
	if err := <-ended; err != nil || strings.Count(documents.String(), "\n---\n") != strings.Count(documents.String(), "\nseconds:")-1 {
		t.Errorf("%v:\n%s", err, documents.String())
	}
}
