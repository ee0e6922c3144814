package operator

import (
	"bufio"
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// flow makes the API server count apart what the pods of a ServiceAccount ask it, and returns the name of the count.
func (a *admin) flow(account string) string {
	a.t.Helper()
	name := "e2e-" + account + "-" + rand.String(5) // a count of its own
	schemas := a.Client.FlowcontrolV1().FlowSchemas()
	_, err := schemas.Create(a.t.Context(), &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "workload-high"}, MatchingPrecedence: 10,
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects: []flowcontrolv1.Subject{{Kind: "ServiceAccount", ServiceAccount: &flowcontrolv1.ServiceAccountSubject{Namespace: kube.System, Name: account}}},
				ResourceRules: []flowcontrolv1.ResourcePolicyRule{{
					Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}, ClusterScope: true, Namespaces: []string{"*"},
				}},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() {
		if err := schemas.Delete(context.WithoutCancel(a.t.Context()), name, metav1.DeleteOptions{}); err != nil {
			a.t.Error(err)
		}
	})
	return name
}

var dispatched = regexp.MustCompile(`^apiserver_flowcontrol_dispatched_requests_total\{.*flow_schema="([^"]*)".*\} (\S+)$`)

// dispatched is how many requests the API server has let in, by the name of the count.
func (a *admin) dispatched() map[string]float64 {
	a.t.Helper()
	metrics, err := a.Client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(a.t.Context())
	if err != nil {
		a.t.Fatal(err)
	}
	all := map[string]float64{}
	lines := bufio.NewScanner(strings.NewReader(string(metrics)))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if found := dispatched.FindStringSubmatch(lines.Text()); found != nil {
			count, err := strconv.ParseFloat(found[2], 64)
			if err != nil {
				a.t.Fatal(err)
			}
			all[found[1]] += count
		}
	}
	return all
}

// What an idle cluster may ask the API server in a minute. The Lease of the replica that leads is renewed every 5 s, and
// looked at as often by each other replica; watches last 5 to 10 minutes, of which each process and sidecar has some.
const (
	perController = 12 + 12
	perNode       = 12
)

func TestIdle_ClusterSendsLittleMoreThanLeaseRequests(t *testing.T) {
	hostfs.OnlyFigures(t)
	a := administer(t)
	a.awaitReconciled()
	controller, node := a.flow("holdfast-controller"), a.flow("holdfast-node")
	a.eventually("the counts to begin", func(context.Context) error {
		if now := a.dispatched(); now[controller] == 0 || now[node] == 0 {
			return fmt.Errorf("controller %v, node %v", now[controller], now[node])
		}
		return nil
	})
	for _, lease := range []string{"holdfast-controller", "snapshot-controller-leader"} {
		a.Leader(lease) // who has just begun to lead, after the test before, first reads everything
	}
	before, requests := a.dispatched(), a.requests()
	const minutes = 2
	select {
	case <-t.Context().Done():
	case <-time.After(minutes * time.Minute):
	}
	after := a.dispatched()
	controllers, nodes := len(a.pods("controller")), len(a.pods("node"))
	byControllers, byNodes := (after[controller]-before[controller])/minutes, (after[node]-before[node])/minutes
	t.Logf("requests a minute: %.1f of %d controllers with their sidecars, %.1f of %d nodes", byControllers, controllers, byNodes, nodes)
	if most := float64(perController * controllers); byControllers > most {
		t.Errorf("the controllers ask %.1f times a minute, and %.0f are allowed", byControllers, most)
	}
	if most := float64(perNode * nodes); byNodes > most {
		t.Errorf("the nodes ask %.1f times a minute, and %.0f are allowed", byNodes, most)
	}
	for request, count := range a.requests() {
		more := (count - requests[request]) / minutes
		if more == 0 {
			continue
		}
		t.Logf("%6.1f %s %s of all clients", more, request.Verb, request.Resource)
		if request.Verb == "DELETE" && request.Resource == "nfsservers.holdfast.dev" {
			continue // the namespace controller requests the deletion of all that may be in a namespace
		}
		heartbeat := strings.HasSuffix(request.Resource, "storagenodes.holdfast.dev/status") && more <= 2*float64(nodes)
		if ours := request.Verb == "APPLY" || request.Write() && strings.Contains(request.Resource, "holdfast.dev"); ours && !heartbeat {
			t.Errorf("an idle cluster writes: %.1f times a minute %s %s", more, request.Verb, request.Resource)
		}
	}
}

func (a *admin) requests() map[kube.Request]float64 {
	a.t.Helper()
	all, err := a.Requests(a.t.Context())
	if err != nil {
		a.t.Fatal(err)
	}
	return all
}
