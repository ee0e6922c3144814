package kube

import (
	"maps"
	"testing"
)

func TestRequests_AreCountedByVerbAndResource(t *testing.T) {
	const metrics = `# HELP apiserver_request_total Counter of apiserver requests
# TYPE apiserver_request_total counter
apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="",scope="",subresource="/readyz",verb="GET",version=""} 5
apiserver_request_total{code="201",component="apiserver",dry_run="",group="holdfast.dev",resource="volumes",scope="resource",subresource="",verb="POST",version="v1"} 3
apiserver_request_total{code="409",component="apiserver",dry_run="",group="holdfast.dev",resource="volumes",scope="resource",subresource="",verb="POST",version="v1"} 1
apiserver_request_total{code="200",component="apiserver",dry_run="",group="holdfast.dev",resource="volumes",scope="resource",subresource="status",verb="PUT",version="v1"} 7
apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="events",scope="namespace",subresource="",verb="LIST",version="v1"} 1.2e+03
apiserver_request_duration_seconds_count{group="",resource="events",verb="LIST"} 9
`
	got, err := parseRequests([]byte(metrics))
	want := map[Request]float64{
		{"POST", "volumes.holdfast.dev"}: 4, {"PUT", "volumes.holdfast.dev/status"}: 7, {"LIST", "events"}: 1200,
	}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	writes := 0.0
	for r, n := range got {
		if r.Write() {
			writes += n
		}
	}
	if writes != 11 {
		t.Errorf("%v of them are writes", writes)
	}
	if _, err := parseRequests([]byte(`apiserver_request_total{resource="pods",verb="GET"} many`)); err == nil {
		t.Error("what is no number was counted")
	}
}
