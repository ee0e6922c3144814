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

func tableOf(t *testing.T, r *Result) string {
	t.Helper()
	var b strings.Builder
	check.OK(t, r.Table(&b))
	return b.String()
}

func TestTable_ShowsAllResultsAndMarksMissingOnes(t *testing.T) {
	r := sample()
	want := check.Got(os.ReadFile("testdata/table.txt"))(t)
	if got := tableOf(t, r); got != string(want) {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	r.Cluster.Nodes, r.Complete = []string{"the-node"}, true
	if got := tableOf(t, r); !strings.Contains(got, "on node the-node;") || strings.Contains(got, "ended early") {
		t.Errorf("got\n%s", got)
	}
}

func TestJSON_NamesTheUnitOfEachNumber(t *testing.T) {
	r := sample()
	r.Measurements, r.Failures = append(r.Measurements[:1], r.Measurements[len(r.Measurements)-2]), r.Failures[:1]
	r.Measurements[1].Values = r.Measurements[1].Values[:1]
	const want = `{"program":"holdfast bench v1.2.3","started":"2030-01-02T03:04:05Z","tookSeconds":61.5,"complete":false,` +
		`"storageClass":{"name":"fast","provisioner":"csi.example.com","volumeBindingMode":"WaitForFirstConsumer","reclaimPolicy":"Retain"},` +
		`"cluster":{"version":"v1.36.3","nodes":["a","b"]},"volume":{"size":"64Mi","sizeBytes":67108864,"image":"busybox:1"},"measurements":[` +
		`{"measure":"plainPodRunning","atOnce":1,"samples":3,"p50Seconds":0.15,"p99Seconds":null,"minSeconds":0.14,"maxSeconds":0.29,` +
		`"p50RatioToPlainPod":1,"spreadSeconds":0,"valuesSeconds":[0.14,0.15,0.29]},` +
		`{"measure":"claimBound","atOnce":100,"samples":200,"p50Seconds":0.1,"p99Seconds":0.198,"minSeconds":0.001,"maxSeconds":0.2,` +
		`"p50RatioToPlainPod":2,"spreadSeconds":1.23,"valuesSeconds":[0.001]}],` +
		`"notes":["2 of 100 pods found no room"],` +
		`"warnings":[{"kind":"PersistentVolumeClaim","reason":"ProvisioningFailed","message":"no room\u001b\n  for NAME","objects":3,"count":12}],` +
		`"failures":[{"step":"claims","kind":"PersistentVolumeClaim","name":"claim-9-0","reason":"no room"}]}`
	if got := string(check.Got(json.Marshal(r))(t)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestResult_OfAFailedWarmUpHasEmptyLists(t *testing.T) {
	inBubble(t, immediate, deletes, func(t *testing.T, p *pretend) {
		p.broken["warm-1"] = "no such command"
		result, err := p.run(t.Context(), same)
		expect(t, err, "warming up", "no such command", ")")
		asJSON := check.Got(json.Marshal(result))(t)
		for _, list := range []string{"measurements", "notes", "warnings"} {
			if !strings.Contains(string(asJSON), fmt.Sprintf("%q:[]", list)) {
				t.Errorf("%s is not an empty list in %s", list, asJSON)
			}
		}
		if got := tableOf(t, result); !strings.Contains(got, "nothing was measured") {
			t.Errorf("the table:\n%s", got)
		}
	})
}
