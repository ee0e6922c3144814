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

// startPrometheus starts one that scrapes targets, until the test ends. What each serves has its name in the label target.
func startPrometheus(t *testing.T, targets map[string]string) *server {
	t.Helper()
	dir := t.TempDir()
	var static []any
	for name, address := range targets {
		static = append(static, map[string]any{"targets": []string{address}, "labels": map[string]string{"target": name}})
	}
	write(t, filepath.Join(dir, "rules.yaml"), hasty(t))
	write(t, filepath.Join(dir, "prometheus.yaml"), map[string]any{
		"global":     map[string]string{"scrape_interval": "1s", "evaluation_interval": "1s"},
		"rule_files": []string{"rules.yaml"},
		"scrape_configs": []any{map[string]any{
			"job_name": "holdfast", "honor_labels": true, "static_configs": static,
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
	s.await("Prometheus is ready", func() bool { return s.get("/-/ready", nil, nil) == nil })
	return s
}

// await waits until something is so.
func (s *server) await(what string, is func() bool) {
	s.Helper()
	wait.For(s, what, func() error {
		if !is() {
			return fmt.Errorf("firing: %v", s.firing())
		}
		return nil
	})
}

// get decodes what the API answers into data, unless that is nil.
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
	if data == nil {
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", path, answer.Status)
		}
		return nil
	}
	var body struct {
		Status string `json:"status"`
		Error  string `json:"error"`
		Data   any    `json:"data"`
	}
	body.Data = data
	if err := json.NewDecoder(answer.Body).Decode(&body); err != nil {
		return err
	}
	if body.Status != "success" {
		return fmt.Errorf("%s: %s", body.Status, body.Error)
	}
	return nil
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

func (s *server) fires(alert, says string) {
	s.Helper()
	s.await(alert+" fires", func() bool {
		description, ok := s.firing()[alert]
		if ok && !strings.Contains(description, says) {
			s.Fatalf("%s says %q, and not %q", alert, description, says)
		}
		return ok
	})
}

func (s *server) clears(alert string) {
	s.Helper()
	s.await(alert+" clears", func() bool {
		_, ok := s.firing()[alert]
		return !ok
	})
}

// query evaluates an expression, and returns how many series it has.
func (s *server) query(expr string) (int, error) {
	var data struct {
		Result []any `json:"result"`
	}
	err := s.get("/api/v1/query", url.Values{"query": {expr}}, &data)
	return len(data.Result), err
}

// The real program, its pool filled, its calls failing, and killed.
func TestAlerts_FireAndClearInARealPrometheusThatScrapesTheRealProgram(t *testing.T) {
	program(t, "prometheus")
	pool := hostfs.New(t, hostfs.Ext4, 64<<20)
	dir := t.TempDir()
	binary := check.Got(standalone.Binary(t.Context(), dir))(t)
	address := hostfs.FreeAddress(t)
	start := func() *standalone.Process {
		p := check.Got(standalone.Start(t.Context(), standalone.Options{
			Binary: binary, Socket: filepath.Join(dir, "s"), Pools: []string{"name=fast,path=" + pool}, Args: []string{"--metrics-address", address},
		}))(t)
		return p
	}
	p := start()
	t.Cleanup(func() { p.Kill() })
	s := startPrometheus(t, map[string]string{"standalone": address})
	s.await("the process is scraped", func() bool { n, err := s.query(`up == 1`); return err == nil && n == 1 })

	t.Run("a pool that is full", func(t *testing.T) {
		s := &server{t, s.address}
		fill := filepath.Join(pool, "of-others")
		if err := os.WriteFile(fill, make([]byte, 64<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
			t.Fatalf("the pool is not full: %v", err)
		}
		s.fires("HoldfastPoolNearlyFull", "Pool fast at "+address)
		check.OK(t, os.Remove(fill))
		s.clears("HoldfastPoolNearlyFull")
	})
	t.Run("calls that fail", func(t *testing.T) {
		s := &server{t, s.address}
		s.await("HoldfastCSICallsFailing fires", func() bool {
			if _, err := p.CreateVolume(t.Context(), &csi.CreateVolumeRequest{Name: "without capabilities"}); err == nil {
				t.Error("the call succeeds")
			}
			return strings.Contains(s.firing()["HoldfastCSICallsFailing"], "/csi.v1.Controller/CreateVolume")
		})
		s.clears("HoldfastCSICallsFailing")
	})
	t.Run("the dashboard", func(t *testing.T) { checkDashboard(&server{t, s.address}) })
	t.Run("a process that is gone", func(t *testing.T) {
		s := &server{t, s.address}
		p.Kill()
		s.fires("HoldfastTargetDown", address)
		s.fires("HoldfastAbsent", "no target of Holdfast")
		p = start()
		s.clears("HoldfastTargetDown")
		s.clears("HoldfastAbsent")
	})
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
