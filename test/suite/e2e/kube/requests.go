package kube

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
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
	return parseRequests(metrics)
}

var (
	counter = regexp.MustCompile(`^apiserver_request_total\{(.*)\} (\S+)$`)
	label   = regexp.MustCompile(`(\w+)="([^"]*)"`)
)

func parseRequests(metrics []byte) (map[Request]float64, error) {
	all := map[Request]float64{}
	lines := bufio.NewScanner(bytes.NewReader(metrics))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		found := counter.FindStringSubmatch(lines.Text())
		if found == nil {
			continue
		}
		count, err := strconv.ParseFloat(found[2], 64)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", lines.Text(), err)
		}
		labels := map[string]string{}
		for _, l := range label.FindAllStringSubmatch(found[1], -1) {
			labels[l[1]] = l[2]
		}
		if labels["resource"] == "" {
			continue // of the server itself, such as /healthz
		}
		all[Request{labels["verb"], resourceOf(labels)}] += count
	}
	return all, lines.Err()
}

// resourceOf names a resource as kubectl does, and its subresource.
func resourceOf(labels map[string]string) string {
	name := strings.TrimSuffix(labels["resource"]+"."+labels["group"], ".")
	return strings.TrimSuffix(name+"/"+labels["subresource"], "/")
}
