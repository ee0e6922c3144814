package agent

import (
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// meter counts what a client asks, and what it is sent.
type meter struct {
	next              http.RoundTripper
	requests, answers atomic.Int64
}

func (m *meter) RoundTrip(q *http.Request) (*http.Response, error) {
	m.requests.Add(1)
	a, err := m.next.RoundTrip(q)
	if err == nil {
		a.Body = &metered{a.Body, m}
	}
	return a, err
}

type metered struct {
	io.ReadCloser
	meter *meter
}

func (b *metered) Read(p []byte) (n int, err error) {
	n, err = b.ReadCloser.Read(p)
	b.meter.answers.Add(int64(n))
	return n, err
}

// An agent watches what is of its node alone: each change of a volume would be sent to each node of the cluster.
func TestIdle_AMinuteCostsAnAgentTheSameWithTenNodesAndWithAThousand(t *testing.T) {
	idle := func(nodes int) (requests, answers int64) {
		synctest.Test(t, func(t *testing.T) {
			r, m := newRig(t), &meter{}
			r.config.Wrap(func(next http.RoundTripper) http.RoundTripper { m.next = next; return m })
			r.change = func(c *Config) { c.RetryFirst, c.RetryLast, c.SurveyEvery, c.PublishEvery = 0, 0, 0, 0 }
			others := make([]*v1beta1.Volume, nodes-1)
			for i := range others {
				name := fmt.Sprintf("other-%03d", i)
				check.Got(r.nodes.Create(t.Context(), &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))(t)
				check.Got(r.leases.CoreV1().Nodes().Create(t.Context(), &core.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))(t)
				others[i] = r.ask(name, func(v *v1beta1.Volume) { v.Spec.Node = name })
			}
			r.begin().withVolumes("a")
			<-time.After(10 * time.Minute) // what follows a change
			beforeRequests, beforeAnswers := m.requests.Load(), m.answers.Load()
			for _, v := range others {
				v.Status.Phase = v1beta1.PhaseReady
				check.Got(r.volumes.UpdateStatus(t.Context(), v, metav1.UpdateOptions{}))(t)
			}
			<-time.After(time.Minute)
			requests, answers = m.requests.Load()-beforeRequests, m.answers.Load()-beforeAnswers
		})
		return requests, answers
	}
	requests, answers := idle(10)
	t.Logf("in a cluster of 10 nodes it makes %d requests and reads %d bytes", requests, answers)
	if most := int64(10); requests == 0 || requests > most {
		t.Errorf("a minute costs %d requests, and renewing a Lease costs at most %d", requests, most)
	}
	if r, a := idle(1000); r != requests || a > answers+answers/10 {
		t.Errorf("a minute costs %d requests and %d bytes in a cluster of 10 nodes, and %d and %d in one of 1,000", requests, answers, r, a)
	}
}
