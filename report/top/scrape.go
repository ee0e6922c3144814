package top

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

const (
	// patience is how long one pod may take to answer.
	patience = 5 * time.Second
	// most is how much of an answer is read: the metrics of ten thousand volumes are a tenth of it.
	most = 64 << 20
)

// metricsPort is that of every pod of Holdfast.
const metricsPort = "9090"

// pod serves the counters of a node or an NFS server.
type pod struct{ node, namespace, name string }

// scrape reads the metrics of a pod through the API server, which asks for the right to do so: no port is opened, and
// nothing but the API server is reached from where a user is.
func (c *Cluster) scrape(ctx context.Context, p pod) (map[string]Counters, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	body, err := c.Kubernetes.CoreV1().RESTClient().Get().Namespace(p.namespace).Resource("pods").
		Name("http:"+p.name+":"+metricsPort).SubResource("proxy").Suffix("metrics").SetHeader("Accept", "text/plain").Stream(ctx)
	switch {
	case apierrors.IsForbidden(err):
		return nil, &forbiddenError{p, err}
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, fmt.Errorf("pod %s/%s did not answer in %s", p.namespace, p.name, patience)
	case err != nil:
		return nil, fmt.Errorf("pod %s/%s: %w", p.namespace, p.name, err)
	}
	defer body.Close()
	counted, err := parse(io.LimitReader(body, most))
	if err != nil {
		return nil, fmt.Errorf("the metrics of pod %s/%s cannot be read: %w", p.namespace, p.name, err)
	}
	return counted, nil
}

// forbiddenError is the same for all pods of a namespace.
type forbiddenError struct {
	pod
	error
}

func (e *forbiddenError) Error() string {
	return fmt.Sprintf("the counters of node %s are read from its pod through the API server, and you may not: the right with the verb get on pods/proxy in namespace %s is missing "+
		"(kubectl auth can-i get pods/proxy -n %s): %v", e.node, e.namespace, e.namespace, e.error)
}

func (e *forbiddenError) Unwrap() error { return e.error }

// The metrics that are counters of volumes, and what each is.
var metrics = map[string]func(*Counters) *float64{
	"holdfast_volume_reads_total":         func(c *Counters) *float64 { return &c.Reads },
	"holdfast_volume_read_bytes_total":    func(c *Counters) *float64 { return &c.ReadBytes },
	"holdfast_volume_writes_total":        func(c *Counters) *float64 { return &c.Writes },
	"holdfast_volume_written_bytes_total": func(c *Counters) *float64 { return &c.WrittenBytes },
}

// parse reads the counters by volume from the metrics of a process.
func parse(text io.Reader) (map[string]Counters, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(text)
	if err != nil {
		return nil, err
	}
	if families["holdfast_build_info"] == nil {
		return nil, errors.New("they are not those of Holdfast")
	}
	all := map[string]Counters{}
	for name, field := range metrics {
		for _, m := range families[name].GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "volume" {
					c := all[l.GetValue()]
					*field(&c) = m.GetCounter().GetValue()
					all[l.GetValue()] = c
				}
			}
		}
	}
	return all, nil
}
