package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"

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
	patch := []byte(`{"status":{"phase":"` + string(phase) + `"}}`)
	check.Got(kindsOf(api).StorageClusters().Patch(t.Context(), "mine", types.MergePatchType, patch, metav1.PatchOptions{}, "status"))(t)
}

// watching runs a line with flags beside the test, and returns what interrupts it and waits for its result.
func watching(t *testing.T, out io.Writer, line string, flags ...string) (end func() error) {
	t.Helper()
	return begin(t, func(ctx context.Context) error { return run(ctx, append(strings.Fields(line), flags...), out) })
}

func TestStatus_WatchOnATerminalEndsAtControlCWithTheCodeOfWhatWasSeenLast(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the program; run without -short")
	}
	binary := check.Got(standalone.Binary(t.Context(), t.TempDir()))(t)
	api := running(t, v1beta1.ClusterRunning)
	screen := pty.New(t, 100, 30)
	cmd := exec.Command(binary, append([]string{"status", "--watch", "--interval", "100ms"}, at(t, api.URL())...)...)
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
	var out buffer
	end := watching(t, &out, "status -w --interval 100ms", at(t, api.URL())...)
	wait.Until(t, "the first block", func() bool { return strings.Contains(out.String(), "Not well: ") })
	api.Requests()
	wait.Until(t, "more looks", func() bool { return api.Requests()["list storageclusters"] > 0 })
	become(t, api, v1beta1.ClusterRunning)
	wait.Until(t, "the second block", func() bool { return strings.Contains(out.String(), "All is well.") })
	if err := end(); exitCode(err) != 0 {
		t.Errorf("a cluster that is well in the end: %v", err)
	}
	if text := out.String(); strings.Count(text, "StorageCluster mine: ") != 2 || strings.Contains(text, "\x1b") {
		t.Errorf("%q", text)
	}
}

// hanging does not answer requests for the kind that is stored, and counts them.
type hanging struct {
	kind atomic.Value
	held atomic.Int64
}

func (h *hanging) answered(_ http.ResponseWriter, r *http.Request) bool {
	if !strings.HasSuffix(r.URL.Path, "/"+h.kind.Load().(string)) {
		return false
	}
	h.held.Add(1)
	<-r.Context().Done()
	return true
}

func TestStatus_InterruptedEndsWithTheCodeOfTheLastWholeLook(t *testing.T) {
	well := running(t, v1beta1.ClusterRunning)
	notWell := running(t, v1beta1.ClusterRunning)
	unserved := &v1beta1.NFSServer{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "files"}} // no controller has looked at it
	check.Got(kindsOf(notWell).NFSServers("team").Create(t.Context(), unserved, metav1.CreateOptions{}))(t)
	const again = " -w --interval 100ms"
	for name, test := range map[string]struct {
		api    *miniapi.Server
		before string // it hangs; nothing if it does from the beginning
		kind   string
		flags  string
		want   int
	}{
		"before the first answer":               {well, "", "storageclusters", again, 3},
		"between the lists of the first look":   {well, "", "nfsservers", again, 3},
		"between the lists of the only look":    {notWell, "", "nfsservers", "", 3},
		"while it looks again, and all is well": {well, "All is well.", "storageclusters", again, 0},
		"while it looks again, and is not well": {notWell, "Not well: ", "storageclusters", again, 1},
		"between the lists of another look":     {notWell, "Not well: ", "nfsservers", again, 1},
	} {
		t.Run(name, func(t *testing.T) {
			h := &hanging{}
			h.kind.Store("none")
			if test.before == "" {
				h.kind.Store(test.kind)
			}
			var out buffer
			end := watching(t, &out, "status"+test.flags, at(t, inFront(t, test.api, h.answered))...)
			wait.Until(t, "the first look", func() bool { return strings.Contains(out.String(), test.before) })
			h.kind.Store(test.kind)
			wait.Until(t, "a request without an answer", func() bool { return h.held.Load() > 0 })
			if err := end(); exitCode(err) != test.want {
				t.Errorf("%d instead of %d: %v\n%s", exitCode(err), test.want, err, out.String())
			}
		})
	}
}

func TestStatus_WatchOutlivesAnAPIServerThatIsAway(t *testing.T) {
	api := running(t, v1beta1.ClusterRunning)
	var out buffer
	end := watching(t, &out, "status -w --interval 100ms", at(t, api.URL())...)
	wait.Until(t, "the first block", func() bool { return strings.Contains(out.String(), "All is well.") })
	api.Close()
	wait.Until(t, "the end of the API server", func() bool { return strings.Contains(out.String(), "could not be asked, and is asked again") })
	if err := end(); exitCode(err) != 3 {
		t.Errorf("got %v", err)
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
	var refused atomic.Int64
	server := inFront(t, api, func(w http.ResponseWriter, _ *http.Request) bool {
		if !away.Load() {
			return false
		}
		refused.Add(1)
		http.Error(w, "away", http.StatusForbidden)
		return true
	})
	var out buffer
	end := watching(t, &out, "status -w -o yaml --interval 100ms", at(t, server)...)
	wait.Until(t, "the first document", func() bool { return strings.Contains(out.String(), "phase: Degraded") })
	away.Store(true) // of which nothing is printed, also no document without content
	wait.Until(t, "refused looks", func() bool { return refused.Load() > 40 })
	become(t, api, v1beta1.ClusterRunning)
	away.Store(false)
	wait.Until(t, "the second document", func() bool { return strings.Contains(out.String(), "phase: Running") })
	check.Report(t, end())
	if got := slices.Compact(documents(t, out.String())); !slices.Equal(got, []string{"Degraded", "Running"}) {
		t.Errorf("the documents are of %q:\n%s", got, out.String())
	}
}

func TestStatus_OnATerminalIsDrawnForIt(t *testing.T) {
	api := running(t, v1beta1.ClusterRunning)
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG", "NO_COLOR"} {
		t.Setenv(name, "")
	}
	args := append([]string{"status"}, at(t, api.URL())...)
	screen := pty.New(t, 40, 30)
	check.OK(t, run(t.Context(), args, screen.Program))
	screen.Await(0, "\x1b[32mAll is well.\x1b[0m\n")
	if line, _, _ := strings.Cut(screen.Written(), "\n"); !strings.HasSuffix(line, "...") {
		t.Errorf("%q is not cut", line)
	}
}

func TestTop_WatchShowsSampleAfterSample(t *testing.T) {
	screen := pty.New(t, 120, 10)
	flags := proxied(t, used(t), serving(map[string]int{"pvc-1": 100}))
	finish := watching(t, screen.Program, "top -w --node a", flags...)
	end := screen.Await(0, anotherScreen)
	for range 3 {
		end = screen.Await(end, "shop/orders")
	}
	check.Report(t, finish())
	screen.Await(end, screenBefore)
	var out, documents buffer
	finish = watching(t, &out, "top -w --node a -o json", flags...)
	wait.Until(t, "three samples in a pipe", func() bool { return strings.Count(out.String(), `"seconds"`) >= 3 })
	check.Report(t, finish())
	finish = watching(t, &documents, "top -w --node a -o yaml", flags...)
	wait.Until(t, "two samples in YAML", func() bool { return strings.Count(documents.String(), "\nseconds:") >= 2 })
	if err := finish(); err != nil || strings.Count(documents.String(), "\n---\n") != strings.Count(documents.String(), "\nseconds:")-1 {
		t.Errorf("%v:\n%s", err, documents.String())
	}
}
