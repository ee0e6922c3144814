package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// sample is a result with all fields.
func sample() *Result {
	into := times{
		{PlainPod, 1}:       {durations: []time.Duration{150 * time.Millisecond, 140 * time.Millisecond, 290 * time.Millisecond}},
		{NewBound, 1}:       {durations: []time.Duration{9500 * time.Microsecond}},
		{BoundRunning, 1}:   {durations: []time.Duration{1500 * time.Millisecond}},
		{NewRunning, 1}:     {durations: []time.Duration{1509500 * time.Microsecond}},
		{BoundPod, 1}:       {durations: []time.Duration{450 * time.Millisecond}},
		{VolumeGone, 1}:     {durations: []time.Duration{41 * time.Millisecond}},
		{PlainPod, 100}:     {durations: upTo(100), spread: 85 * time.Millisecond},
		{ClaimBound, 100}:   {durations: upTo(200), spread: 1230 * time.Millisecond},
		{BoundRunning, 100}: {durations: upTo(99), spread: 0},
	}
	r := &Result{
		Program: "holdfast bench v1.2.3", Started: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC), Took: 61.5,
		Class:        Class{"fast", "csi.example.com", "WaitForFirstConsumer", "Retain"},
		Cluster:      Cluster{"v1.36.3", []string{"a", "b"}},
		Volume:       Volume{"64Mi", 64 << 20, "busybox:1"},
		Measurements: into.measurements([]int{1, 100}),
		Notes:        []string{"2 of 100 pods found no room"},
		Warnings:     []Warning{{"PersistentVolumeClaim", "ProvisioningFailed", "no room\x1b\n  for NAME", 3, 12}},
	}
	for i := range 12 {
		r.Failures = append(r.Failures, Failure{"claims", "PersistentVolumeClaim", fmt.Sprintf("claim-9-%d", i), "no room"})
	}
	return r
}

func TestTable_ShowsAllResultsAndMarksMissingOnes(t *testing.T) {
	want := check.Got(os.ReadFile("testdata/table.txt"))(t)
	var got strings.Builder
	check.OK(t, sample().Table(&got))
	if got.String() != string(want) {
		t.Errorf("got:\n%s\nwant:\n%s", got.String(), want)
	}
}

func TestTable_OneNodeIsNamed(t *testing.T) {
	r := sample()
	r.Cluster.Nodes, r.Complete = []string{"the-node"}, true
	var got strings.Builder
	if err := r.Table(&got); err != nil || !strings.Contains(got.String(), "on node the-node;") || strings.Contains(got.String(), "ended early") {
		t.Errorf("got %v\n%s", err, got.String())
	}
}

func TestTable_EveryMeasureHasASentence(t *testing.T) {
	for _, m := range measures {
		if sentences[m] == "" {
			t.Errorf("%s has none", m)
		}
	}
	if len(sentences) != len(measures) {
		t.Errorf("%d sentences for %d measures", len(sentences), len(measures))
	}
}

func TestJSON_ReadsBackAndNamesTheUnitOfEachNumber(t *testing.T) {
	out := check.Got(json.Marshal(sample()))(t)
	var back struct {
		Started time.Time
		Took    float64 `json:"tookSeconds"`
		Volume  struct {
			SizeBytes int64
		}
		StorageClass struct{ Name, VolumeBindingMode string }
		Measurements []map[string]any
		Warnings     []Warning
		Failures     []Failure
	}
	check.OK(t, json.Unmarshal(out, &back))
	if back.Took != 61.5 || back.Volume.SizeBytes != 67108864 || back.StorageClass.Name != "fast" || len(back.Failures) != 12 || back.Warnings[0].Count != 12 {
		t.Errorf("got %+v", back)
	}
	plain, bound := back.Measurements[0], back.Measurements[len(back.Measurements)-2]
	for key, want := range map[string]any{
		"measure": "plainPodRunning", "atOnce": 1., "samples": 3., "p50Seconds": .15, "p99Seconds": nil, "minSeconds": .14, "maxSeconds": .29, "p50RatioToPlainPod": 1., "spreadSeconds": 0.,
	} {
		if got, ok := plain[key]; !ok || got != want {
			t.Errorf("%s is %v, want %v", key, got, want)
		}
	}
	if bound["measure"] != "claimBound" || bound["p99Seconds"] != .198 || bound["spreadSeconds"] != 1.23 || len(bound["valuesSeconds"].([]any)) != 200 {
		t.Errorf("got %v", bound)
	}
}

func TestJSON_EmptyListIsAnEmptyList(t *testing.T) {
	inBubble(t, immediate, "Delete", func(t *testing.T, p *pretend) {
		p.broken["warm-1"] = "StartError"
		result, err := p.run(t.Context(), same)
		if err == nil {
			t.Fatal("it has not failed")
		}
		asJSON, err := json.Marshal(result)
		check.OK(t, err)
		for _, list := range []string{"measurements", "notes", "warnings"} {
			if !strings.Contains(string(asJSON), fmt.Sprintf("%q:[]", list)) {
				t.Errorf("%s is not an empty list in %s", list, asJSON)
			}
		}
		var out strings.Builder
		if err := result.Table(&out); err != nil || !strings.Contains(out.String(), "nothing was measured") {
			t.Errorf("the table, %v:\n%s", err, out.String())
		}
	})
}
