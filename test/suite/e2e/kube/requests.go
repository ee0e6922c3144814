package kube

import (
	"bytes"
	"context"
	"strings"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Request is a kind of request to the API server.
type Request struct {
	Verb     string // as the API server counts them, such as POST or APPLY
	Resource string // such as volumes.holdfast.dev/status
}

// Write says whether such a request changes what is stored.
func (r Request) Write() bool {
	switch r.Verb {
	case "GET", "LIST", "WATCH", "WATCHLIST", "CONNECT":
		return false
	}
	return true
}

// Requests returns how many requests the API server has answered since it started, by its own metrics.
func (c *Cluster) Requests(ctx context.Context) (map[Request]float64, error) {
	metrics, err := c.Client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(metrics))
	if err != nil {
		return nil, err
	}
	all := map[Request]float64{}
	for _, m := range families["apiserver_request_total"].GetMetric() {
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		if labels["resource"] != "" { // else it is of the server itself, such as /healthz
			all[Request{labels["verb"], resourceOf(labels)}] += m.GetCounter().GetValue()
		}
	}
	return all, nil
}

// resourceOf names a resource as kubectl does, and its subresource.
func resourceOf(labels map[string]string) string {
	name := strings.TrimSuffix(labels["resource"]+"."+labels["group"], ".")
	return strings.TrimSuffix(name+"/"+labels["subresource"], "/")
}
