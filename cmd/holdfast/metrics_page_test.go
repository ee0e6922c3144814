package main

import (
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/holdfast-storage/holdfast/backend/backendtest"
	"github.com/holdfast-storage/holdfast/provisioner"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// writePage is how test/tool/generate/run writes the table.
var writePage = flag.String("metrics-page", "", "`file`, a copy of docs/metrics.md, in which to write the table")

const page = "../../docs/metrics.md"

// metric is a row of the table.
type metric struct {
	name, kind, help string
	labels           []string
	processes        []string
}

var descPattern = regexp.MustCompile(`^Desc\{fqName: ("(?:[^"\\]|\\.)*"), help: ("(?:[^"\\]|\\.)*"), .*constLabels: \{(.*?)\}, variableLabels: \{(.*)\}\}$`)

// described reads what the library shows of a description only as a string.
func described(t *testing.T, d *prometheus.Desc) metric {
	t.Helper()
	parts := descPattern.FindStringSubmatch(d.String())
	if parts == nil {
		t.Fatalf("%s cannot be read", d)
	}
	name := check.Got(strconv.Unquote(parts[1]))(t)
	help := check.Got(strconv.Unquote(parts[2]))(t)
	m := metric{name: name, help: help, kind: kindOf(name)}
	for _, label := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(parts[3], -1) { // constant ones
		m.labels = append(m.labels, label[1])
	}
	if parts[4] != "" {
		m.labels = append(m.labels, strings.Split(parts[4], ",")...)
	}
	return m
}

// kindOf is the type of a metric by the convention for names. What is served shows whether it follows that.
func kindOf(name string) string {
	switch {
	case strings.HasSuffix(name, "_total"):
		return "counter"
	case strings.HasSuffix(name, "_duration_seconds"):
		return "histogram"
	}
	return "gauge"
}

// described are the metrics of a running process, without those of every program in Go, whether or not they have
// samples.
func (p *process) described() map[string]metric {
	p.Helper()
	all := map[string]metric{}
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		p.registry.Describe(descs)
	}()
	for d := range descs {
		if m := described(p.T, d); !strings.HasPrefix(m.name, "go_") && !strings.HasPrefix(m.name, "process_") {
			all[m.name] = m
		}
	}
	return all
}

// survey runs each process, one after the other, and returns all metrics and what each process serves.
func survey(t *testing.T) (all map[string]*metric, served map[string]string) {
	t.Helper()
	all, served = map[string]*metric{}, map[string]string{}
	for name, run := range lonely {
		p := startProcess(t, run.process, noServer, run.args...)
		p.awaitReady(run.ready)
		if live := p.passed("/livez"); live != run.live {
			t.Errorf("/livez of the %s: %s", name, live)
		}
		add(t, all, p, run.process)
		status, body := fetch(t, p.address, "/metrics")
		if status != http.StatusOK {
			t.Errorf("%s: /metrics: %d", name, status)
		}
		served[name] = body
		p.stop()
	}
	ceph := newCeph(t, "--pool=memory") // what runs it is built only with Ceph's libraries
	check.OK(t, ceph.measure(backendtest.NewMemory()))
	add(t, all, &process{T: t, monitoring: ceph.monitoring}, "ceph")
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(ceph.registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	served["ceph"] = answer.Body.String()
	return all, served
}

// add adds the metrics of a process to all.
func add(t *testing.T, all map[string]*metric, p *process, name string) {
	t.Helper()
	for _, m := range p.described() {
		if all[m.name] == nil {
			all[m.name] = &m
		}
		known := all[m.name]
		if known.help != m.help || !slices.Equal(known.labels, m.labels) {
			t.Errorf("%s of the %s has other labels or another help than elsewhere", m.name, name)
		}
		if !slices.Contains(known.processes, name) {
			known.processes = append(known.processes, name)
		}
	}
}

func TestMetrics_OfAllProcessesThatLiveWithoutAnAPIServerFollowTheConventionsAndAreInTheTable(t *testing.T) {
	all, served := survey(t)
	for name, m := range all {
		if !strings.HasPrefix(name, "holdfast_") {
			t.Errorf("%s does not begin with holdfast_", name)
		}
		sample := name + " 0\n"
		if m.kind == "histogram" {
			sample = fmt.Sprintf("%s_bucket{le=\"+Inf\"} 0\n%s_sum 0\n%s_count 0\n", name, name, name)
		}
		lint(t, "described", fmt.Sprintf("# HELP %s %s\n# TYPE %s %s\n%s", name, m.help, name, m.kind, sample))
	}
	for process, body := range served {
		lint(t, process, body)
		for _, is := range regexp.MustCompile(`(?m)^# TYPE (holdfast_\w+) (\w+)$`).FindAllStringSubmatch(body, -1) {
			if m := all[is[1]]; m == nil || m.kind != is[2] {
				t.Errorf("%s serves the %s %s, which is described as %+v", process, is[2], is[1], m)
			}
		}
	}
	compare(t, all)
}

// lint is what promtool check metrics does.
func lint(t *testing.T, what, text string) {
	t.Helper()
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s: %s", what, p.Metric, p.Text)
	}
}

// compare compares the table of the page, or writes it.
func compare(t *testing.T, all map[string]*metric) {
	t.Helper()
	text := check.Got(os.ReadFile(page))(t)
	const begin, end = "<!-- The table is written by make generate. -->\n", "<!-- End of the table. -->"
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		t.Fatalf("%s has no lines %q and %q, between which the table is", page, begin, end)
	}
	var table strings.Builder
	table.WriteString("| metric | type | labels | `holdfast` | meaning |\n| --- | --- | --- | --- | --- |\n")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		m := all[name]
		slices.Sort(m.processes)
		var labels []string
		for _, label := range m.labels {
			labels = append(labels, "`"+label+"`")
			if !regexp.MustCompile("(?m)^\\|[^|]*`" + label + "`[^|]*\\|").MatchString(before) {
				t.Errorf("%s does not explain the label %s of %s", page, label, name)
			}
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s | %s |\n", name, m.kind, strings.Join(labels, ", "), strings.Join(m.processes, ", "), m.help)
	}
	want := before + begin + table.String() + end + after
	switch {
	case *writePage != "":
		check.Report(t, os.WriteFile(*writePage, []byte(want), 0o600))
	case want != string(text):
		t.Errorf("%s is not what the code says: run make generate", page)
	}
}

func TestMetrics_OfTheProvisionerHaveTheTypeOfTheirNames(t *testing.T) {
	for _, c := range provisioner.NewMetrics().Collectors() {
		descs := make(chan *prometheus.Desc, 1)
		c.Describe(descs)
		m := described(t, <-descs)
		_, histogram := c.(*prometheus.HistogramVec)
		_, counter := c.(*prometheus.CounterVec)
		if histogram != (m.kind == "histogram") || counter != (m.kind == "counter") {
			t.Errorf("%s is no %s", m.name, m.kind)
		}
	}
}
