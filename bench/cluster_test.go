package bench_test

import (
	"encoding/json"
	"os"
	"os/exec"
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
	"github.com/holdfast-storage/holdfast/test/rig/standalone"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

const clusterVariable = "HOLDFAST_CLUSTER"

// realCluster skips a test if the environment names no cluster with Holdfast.
func realCluster(t *testing.T) *kube.Cluster {
	t.Helper()
	name := os.Getenv(clusterVariable)
	if name == "" {
		hostfs.Skip(t, "cluster", "needs a cluster with Holdfast in it, named in "+clusterVariable+": run make e2e")
	}
	c := check.Got(kube.Connect(t.Context(), name, "../test/cluster"))(t)
	t.Cleanup(func() {
		check.Report(t, c.Close())
	})
	return c
}

var made = regexp.MustCompile(`namespace=(holdfast-bench-\w+)`)

// nothingLeft looks for what a run that said this has left.
func nothingLeft(t *testing.T, c *kube.Cluster, said string) {
	t.Helper()
	named := made.FindStringSubmatch(said)
	if named == nil {
		t.Fatalf("no namespace is named in:\n%s", said)
	}
	if _, err := c.Client.CoreV1().Namespaces().Get(t.Context(), named[1], metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("namespace %s is left: %v", named[1], err)
	}
	volumes := check.Got(c.Client.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{}))(t)
	for _, v := range volumes.Items {
		if v.Spec.ClaimRef != nil && v.Spec.ClaimRef.Namespace == named[1] {
			t.Errorf("volume %s of claim %s is left, %s", v.Name, v.Spec.ClaimRef.Name, v.Status.Phase)
		}
	}
}

// expect checks which measurements exist, and that each is plausible.
func expect(t *testing.T, result bench.Result, atOnce, samples int, measures ...bench.Measure) {
	t.Helper()
	var got []bench.Measure
	for _, m := range result.Measurements {
		if m.AtOnce != atOnce {
			continue
		}
		got = append(got, m.Measure)
		// On a busy host the events of two watches may arrive at the same time: then the measured time is 0.
		if m.Samples != samples || len(m.Values) != samples || m.Min < 0 || m.Max <= 0 || m.P50 < m.Min || m.Max < m.P50 || m.P99 != nil || m.Ratio == nil {
			t.Errorf("of %d at once: %+v", atOnce, m)
		}
	}
	if !slices.Equal(got, measures) {
		t.Errorf("of %d at once: %v, want %v", atOnce, got, measures)
	}
}

// What the other tests show of a cluster that is imitated, a real one does.
func TestCluster_ClassWithDefaults(t *testing.T) {
	c := realCluster(t)
	program, err := standalone.Binary(t.Context(), t.TempDir())
	check.OK(t, err)
	node := c.Nodes(t)[0] // others are slow
	var errs strings.Builder
	cmd := exec.CommandContext(t.Context(), program, "bench", "--node", node, "--output", "json", "--storage-class", "holdfast", "--at-once", "1,3", "--repeat", "2")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig())
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // so that it cleans up
	cmd.WaitDelay = time.Minute
	cmd.Stderr = &errs
	out, err := cmd.Output()
	var result bench.Result
	if bad := json.Unmarshal(out, &result); err != nil || bad != nil || !result.Complete || len(result.Failures) > 0 {
		t.Fatalf("%v, %v, complete %v: %+v\n%s", err, bad, result.Complete, result.Failures, &errs)
	}
	nothingLeft(t, c, errs.String())
	measures := []bench.Measure{bench.PlainPod, bench.NewBound, bench.BoundRunning, bench.NewRunning, bench.BoundPod, bench.VolumeGone}
	expect(t, result, 1, 2, measures...)
	expect(t, result, 3, 3, measures...)
	if result.Class.BindingMode != "WaitForFirstConsumer" || !slices.Equal(result.Cluster.Nodes, []string{node}) || result.Cluster.Version == "" {
		t.Errorf("%+v in %+v", result.Class, result.Cluster)
	}
	t.Logf("%+v, %q", result.Warnings, result.Notes)
}
