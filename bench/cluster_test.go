package bench_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/bench"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

var made = regexp.MustCompile(`namespace=(holdfast-bench-\w+)`)

// What the other tests show of a cluster that is imitated, a real one does.
func TestCluster_ClassWithDefaults(t *testing.T) {
	name := os.Getenv(kube.ClusterVariable)
	if name == "" {
		hostfs.Skip(t, "cluster", "needs a cluster with Holdfast in it, named in "+kube.ClusterVariable+": run make e2e")
	}
	c := check.Got(kube.Connect(t.Context(), name, "../test/cluster"))(t)
	t.Cleanup(func() { check.Report(t, c.Close()) })
	node := c.Nodes(t)[0] // others are slow
	var said strings.Builder
	flags := "--output json --storage-class holdfast --at-once 1,3 --repeat 2 --node " + node
	cmd := c.Command(t.Context(), c.HoldfastProgram(t), append([]string{"bench"}, strings.Fields(flags)...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // so that it cleans up
	cmd.WaitDelay = time.Minute
	cmd.Stderr = &said
	out, err := cmd.Output()
	var result bench.Result
	if bad := json.Unmarshal(out, &result); err != nil || bad != nil || !result.Complete || len(result.Failures) > 0 {
		t.Fatalf("%v, %v, complete %v: %+v\n%s", err, bad, result.Complete, result.Failures, &said)
	}
	named := made.FindStringSubmatch(said.String())
	if named == nil {
		t.Fatalf("no namespace is named in:\n%s", &said)
	}
	if _, err := c.Client.CoreV1().Namespaces().Get(t.Context(), named[1], metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("namespace %s is left: %v", named[1], err)
	}
	for _, v := range check.Got(c.Client.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{}))(t).Items {
		if v.Spec.ClaimRef != nil && v.Spec.ClaimRef.Namespace == named[1] {
			t.Errorf("volume %s of claim %s is left, %s", v.Name, v.Spec.ClaimRef.Name, v.Status.Phase)
		}
	}
	got := map[int][]bench.Measure{}
	for _, m := range result.Measurements {
		got[m.AtOnce] = append(got[m.AtOnce], m.Measure)
		samples := max(m.AtOnce, 2)
		// On a busy host the events of two watches may arrive at the same time: then the measured time is 0.
		if m.Samples != samples || len(m.Values) != samples || m.Min < 0 || m.Max <= 0 || m.P50 < m.Min || m.Max < m.P50 || m.P99 != nil || m.Ratio == nil {
			t.Errorf("of %d at once: %+v", m.AtOnce, m)
		}
	}
	want := []bench.Measure{bench.PlainPod, bench.NewBound, bench.BoundRunning, bench.NewRunning, bench.BoundPod, bench.VolumeGone}
	if len(got) != 2 || !slices.Equal(got[1], want) || !slices.Equal(got[3], want) {
		t.Errorf("measured are %v, want %v of 1 and of 3", got, want)
	}
	if result.Class.BindingMode != "WaitForFirstConsumer" || !slices.Equal(result.Cluster.Nodes, []string{node}) || result.Cluster.Version == "" {
		t.Errorf("%+v in %+v", result.Class, result.Cluster)
	}
	t.Logf("%+v, %q", result.Warnings, result.Notes)
}
