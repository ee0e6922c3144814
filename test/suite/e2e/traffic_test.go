package e2e

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// mostWrites bounds what one claim, made, bound and deleted, costs the API server in writes of all clients: the
// user, Kubernetes' own controllers, the sidecars, the controller and the agent. It is about 21, and some are sent again
// where everything is busy. docs/bench.md has the tables.
const mostWrites = 26

func TestTraffic_RequestsOfAClaimAreBounded(t *testing.T) {
	hostfs.OnlyFigures(t)
	s := begin(t) // not in parallel: no other test is to be counted
	immediate := class(t, s, atOnce)
	const claims = 30
	live(t, s, immediate, 1) // so that nothing happens for the first time

	began := time.Now()
	busy := count(t, s, func() { live(t, s, immediate, claims) })
	idle := count(t, s, wait(t, time.Since(began)))
	for request, n := range idle {
		// The namespace controller requests the deletion of all that may be in a namespace, and nodes report what they have.
		expected := request.Verb == "DELETE" && request.Resource == "nfsservers.holdfast.dev" || strings.HasSuffix(request.Resource, "storagenodes.holdfast.dev/status")
		if ours := request.Verb == "APPLY" || request.Write() && strings.Contains(request.Resource, "holdfast.dev"); ours && !expected && n > 0 {
			t.Errorf("an idle cluster writes: %.0f times %s %s", n, request.Verb, request.Resource)
		}
	}
	costs := costsOf(busy, idle, claims)
	t.Logf("for each of %d claims, less what an idle cluster asks in the same time:\n%s", claims, table(costs))

	writes := 0.0
	for _, c := range costs {
		if c.Write() {
			writes += c.each
		}
	}
	if writes > mostWrites || writes < 1 {
		t.Errorf("%.2f writes for a claim, and from 1 to %d are allowed", writes, mostWrites)
	}
	// The object of the volume: created, its status written, deleted, its finalizer removed.
	for request, most := range map[kube.Request]float64{
		{Verb: "POST", Resource: "volumes.holdfast.dev"}: 1, {Verb: "PUT", Resource: "volumes.holdfast.dev/status"}: 1,
		{Verb: "DELETE", Resource: "volumes.holdfast.dev"}: 1, {Verb: "PUT", Resource: "volumes.holdfast.dev"}: 1,
	} {
		for _, c := range costs {
			if c.Request == request && (c.each < most || c.each > 1.2*most) {
				t.Errorf("%s %s: %.2f for a claim, want %v", request.Verb, request.Resource, c.each, most)
			}
		}
	}
}

// live makes so many claims, and deletes them when all are bound, and returns when nothing of them is left.
func live(t *testing.T, s *kube.Space, class string, count int) {
	t.Helper()
	for i := range count {
		s.Claim(fmt.Sprint("c", i), "16Mi", kube.OfClass(class))
	}
	claims := s.Client.CoreV1().PersistentVolumeClaims(s.Namespace)
	kube.Await(s, claims, metav1.ListOptions{}, "all claims to be bound", func(all []*corev1.PersistentVolumeClaim) (bool, error) {
		return !slices.ContainsFunc(all, func(c *corev1.PersistentVolumeClaim) bool { return c.Status.Phase != corev1.ClaimBound }), nil
	})
	for i := range count {
		check.OK(t, claims.Delete(t.Context(), fmt.Sprint("c", i), metav1.DeleteOptions{}))
	}
	kube.Await(s, s.Client.CoreV1().PersistentVolumes(), metav1.ListOptions{}, "the end of the persistent volumes", func(all []*corev1.PersistentVolume) (bool, error) {
		return !slices.ContainsFunc(all, func(v *corev1.PersistentVolume) bool { return v.Spec.StorageClassName == class }), nil
	})
	noVolumes(s)
}

// count returns the requests that the API server answers while something runs.
func count(t *testing.T, s *kube.Space, run func()) map[kube.Request]float64 {
	t.Helper()
	before := check.Got(s.Requests(t.Context()))(t)
	run()
	after := check.Got(s.Requests(t.Context()))(t)
	for request := range after {
		after[request] -= before[request]
	}
	return after
}

func wait(t *testing.T, long time.Duration) func() {
	return func() {
		select {
		case <-time.After(long):
		case <-t.Context().Done():
		}
	}
}

// cost is how many requests of a kind one claim causes.
type cost struct {
	kube.Request
	each float64
}

// costsOf leaves out what is no more than chance: watches that end, and what comes once in a while.
func costsOf(busy, idle map[kube.Request]float64, claims int) (costs []cost) {
	const chance = 0.05
	for request, n := range busy {
		if each := (n - idle[request]) / float64(claims); each >= chance && request.Verb != "WATCH" {
			costs = append(costs, cost{request, each})
		}
	}
	slices.SortFunc(costs, func(a, b cost) int {
		return cmp.Or(strings.Compare(a.Resource, b.Resource), strings.Compare(a.Verb, b.Verb))
	})
	return costs
}

func table(costs []cost) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "RESOURCE\tVERB\tPER CLAIM")
	reads, writes := 0.0, 0.0
	for _, c := range costs {
		fmt.Fprintf(w, "%s\t%s\t%.2f\n", c.Resource, c.Verb, c.each)
		if c.Write() {
			writes += c.each
		} else {
			reads += c.each
		}
	}
	fmt.Fprintf(w, "all\treads\t%.2f\nall\twrites\t%.2f\n", reads, writes)
	w.Flush() // to memory
	return text.String()
}
