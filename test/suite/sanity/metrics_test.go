package sanity

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

// fetch gets a page of the metrics server, whose address the process logs.
func (w *world) fetch(path string) string {
	w.Helper()
	address := regexp.MustCompile(`msg="serving metrics" address=(\S+)`)
	var found []string
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for ctx := w.ctx(); len(found) == 0; found = address.FindStringSubmatch(w.Output()) {
		select {
		case <-ctx.Done():
			w.Fatalf("no address in the log:\n%s", w.Output())
		case <-tick.C:
		}
	}
	resp, err := http.Get("http://" + found[1] + path)
	if err != nil {
		w.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		w.Fatalf("%s: %s, %v: %s", path, resp.Status, err, body)
	}
	return string(body)
}

func TestMetrics_ReportCallsPoolsAndHealth(t *testing.T) {
	hostfs.RequireRoot(t)
	w := newWorld(t, imageOnXFS, "", "--metrics-address", "127.0.0.1:0")
	w.create("v", nil)
	for path, want := range map[string]string{"/livez": "ok", "/readyz?verbose": "[+]ping ok\n[+]csi ok\n[+]pools ok\nreadyz check passed\n"} {
		if got := w.fetch(path); got != want {
			t.Errorf("%s says %q", path, got)
		}
	}
	metrics := w.fetch("/metrics")
	for _, want := range []string{
		`holdfast_csi_calls_total{grpc_status_code="OK",method_name="/csi.v1.Controller/CreateVolume"} 1`,
		`holdfast_csi_call_duration_seconds_count{method_name="/csi.v1.Controller/CreateVolume"} 1`,
		`holdfast_csi_panics_total 0`,
		`holdfast_csi_node_operations_in_flight 0`,
		`pool="fast"`,
		`process_open_fds`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %s in:\n%s", want, metrics)
		}
	}
	w.remove("v")
	w.nothingLeft()
}
