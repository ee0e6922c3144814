package monitoring

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/nodeops/child"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/standalone"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// server is a Prometheus that scrapes one process.
type server struct {
	*testing.T
	address string
}

var rangePattern = regexp.MustCompile(`\[\d+[mh]\]`)

// hasty are the rules without their patience, which promtool tests: an alert fires at the first bad sample.
func hasty(t *testing.T) file {
	t.Helper()
	all := rules(t)
	for _, g := range all.Groups {
		for i := range g.Rules {
			g.Rules[i].For = ""
			g.Rules[i].Expr = rangePattern.ReplaceAllString(g.Rules[i].Expr, "[10s]")
		}
	}
	return all
}

// startPrometheus starts one that scrapes a target, until the test ends.
func startPrometheus(t *testing.T, target string) *server {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "rules.yaml"), hasty(t))
	write(t, filepath.Join(dir, "prometheus.yaml"), map[string]any{
		"global":     map[string]string{"scrape_interval": "1s", "evaluation_interval": "1s"},
		"rule_files": []string{"rules.yaml"},
		"scrape_configs": []any{map[string]any{
			"job_name": "holdfast", "static_configs": []any{map[string]any{"targets": []string{target}}},
		}},
	})
	s := &server{t, hostfs.FreeAddress(t)}
	log := check.Got(os.Create(filepath.Join(dir, "log")))(t)
	cmd := exec.Command(program(t, "prometheus"), "--config.file="+filepath.Join(dir, "prometheus.yaml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+s.address)
	cmd.Stdout, cmd.Stderr = log, log
	ended := check.Got(child.Start(cmd))(t)
	t.Cleanup(func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Errorf("Prometheus ended by itself: %v:\n%s", err, read(t, log.Name()))
		}
		if err := <-ended; err == nil {
			t.Error("Prometheus ended by itself, without an error")
		}
		log.Close()
	})
	wait.For(t, "the process is scraped", func() error {
		if n, err := s.query(`up == 1`); err != nil || n != 1 {
			return fmt.Errorf("%d are up, %v", n, err)
		}
		return nil
	})
	return s
}

// get decodes what the API answers into data.
func (s *server) get(path string, query url.Values, data any) error {
	request, err := http.NewRequestWithContext(s.Context(), http.MethodGet, "http://"+s.address+path+"?"+query.Encode(), http.NoBody)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body := struct {
		Status string `json:"status"`
		Error  string `json:"error"`
		Data   any    `json:"data"`
	}{Data: data}
	if err := json.NewDecoder(answer.Body).Decode(&body); err != nil {
		return err
	}
	if body.Status != "success" {
		return fmt.Errorf("%s: %s", body.Status, body.Error)
	}
	return nil
}

// query evaluates an expression, and returns how many series it has.
func (s *server) query(expr string) (int, error) {
	var data struct {
		Result []any `json:"result"`
	}
	err := s.get("/api/v1/query", url.Values{"query": {expr}}, &data)
	return len(data.Result), err
}

// firing are the descriptions of the alerts that fire, by their names.
func (s *server) firing() map[string]string {
	s.Helper()
	var data struct {
		Alerts []struct {
			Labels      map[string]string `json:"labels"`
			Annotations map[string]string `json:"annotations"`
			State       string            `json:"state"`
		} `json:"alerts"`
	}
	check.Report(s, s.get("/api/v1/alerts", nil, &data))
	all := map[string]string{}
	for _, a := range data.Alerts {
		if a.State == "firing" {
			all[a.Labels["alertname"]] = a.Annotations["description"]
		}
	}
	return all
}

// fires waits until an alert fires; each time that it looks, it does what makes it fire.
func (s *server) fires(alert, says string, provoke func()) {
	s.Helper()
	wait.Until(s, alert+" fires", func() bool {
		provoke()
		description, ok := s.firing()[alert]
		if ok && !strings.Contains(description, says) {
			s.Fatalf("%s says %q, and not %q", alert, description, says)
		}
		return ok
	})
}

func (s *server) clears(alert string) {
	s.Helper()
	wait.Until(s, alert+" clears", func() bool {
		_, ok := s.firing()[alert]
		return !ok
	})
}

// The real program, its pool filled, its calls failing, and killed.
func TestAlerts_FireAndClearInARealPrometheusThatScrapesTheRealProgram(t *testing.T) {
	program(t, "prometheus")
	pool := hostfs.New(t, hostfs.Ext4, 64<<20)
	dir := t.TempDir()
	binary := check.Got(standalone.Binary(t.Context(), dir))(t)
	address := hostfs.FreeAddress(t)
	start := func() *standalone.Process {
		return check.Got(standalone.Start(t.Context(), standalone.Options{
			Binary: binary, Socket: filepath.Join(dir, "s"), Pools: []string{"name=fast,path=" + pool}, Args: []string{"--metrics-address", address},
		}))(t)
	}
	p := start()
	t.Cleanup(func() { p.Kill() })
	s := startPrometheus(t, address)

	fill := filepath.Join(pool, "of-others")
	if err := os.WriteFile(fill, make([]byte, 64<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the pool is not full: %v", err)
	}
	s.fires("HoldfastPoolNearlyFull", "Pool fast at "+address, func() {})
	check.OK(t, os.Remove(fill))
	s.clears("HoldfastPoolNearlyFull")

	s.fires("HoldfastCSICallsFailing", "/csi.v1.Controller/CreateVolume", func() {
		if _, err := p.CreateVolume(t.Context(), &csi.CreateVolumeRequest{Name: "without capabilities"}); err == nil {
			t.Error("the call succeeds")
		}
	})
	s.clears("HoldfastCSICallsFailing")
	checkDashboard(s)

	p.Kill()
	s.fires("HoldfastTargetDown", address, func() {})
	s.fires("HoldfastAbsent", "no target of Holdfast", func() {})
	p = start()
	s.clears("HoldfastTargetDown")
	s.clears("HoldfastAbsent")
}

// ofClusters are metrics that a standalone does not serve, so that queries of them have no result there.
var ofClusters = regexp.MustCompile(`holdfast_(cluster|nfs)_|== 0|unhealthy_volumes > 0|deriv\(`)

// checkDashboard evaluates each query.
func checkDashboard(s *server) {
	s.Helper()
	var dashboard struct {
		Panels []struct {
			Title   string `json:"title"`
			Type    string `json:"type"`
			Targets []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
	}
	check.OK(s, json.Unmarshal([]byte(read(s.T, filepath.Join(dir, "dashboard.json"))), &dashboard))
	var queries int
	for _, p := range dashboard.Panels {
		if len(p.Targets) == 0 && p.Type != "row" {
			s.Errorf("panel %q has no query", p.Title)
		}
		for _, target := range p.Targets {
			queries++
			n, err := s.query(target.Expr)
			if err != nil || n == 0 && !ofClusters.MatchString(target.Expr) {
				s.Errorf("panel %q: %s: %d series, %v", p.Title, target.Expr, n, err)
			}
			checkNames(s.T, p.Title, target.Expr)
		}
	}
	if queries == 0 {
		s.Error("the dashboard has no query")
	}
}
