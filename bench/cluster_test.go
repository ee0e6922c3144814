package bench_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/bench"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/standalone"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// live is a real cluster with Holdfast, for one test, and the program.
type live struct {
	*site
	t *testing.T
}

// site is shared by the tests: no other package may run tests in the cluster at the same time.
type site struct {
	*kube.Cluster
	program string
}

const clusterVariable = "HOLDFAST_CLUSTER"

var (
	scratch string // of all tests
	found   *site
	find    = sync.OnceValue(func() (err error) {
		found, err = newSite(context.Background(), os.Getenv(clusterVariable))
		return err
	})
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	var err error
	if scratch, err = os.MkdirTemp("", "holdfast-bench-test-"); err == nil {
		code = m.Run()
		err = os.RemoveAll(scratch)
	}
	if found != nil {
		err = errors.Join(err, found.Close())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func newSite(ctx context.Context, cluster string) (*site, error) {
	program, err := standalone.Binary(ctx, scratch)
	if err != nil {
		return nil, err
	}
	s := &site{program: program}
	if s.Cluster, err = kube.Connect(ctx, cluster, "../test/tool/cluster"); err != nil {
		return nil, err
	}
	return s, nil
}

// realCluster skips a test if the environment names no cluster.
func realCluster(t *testing.T) *live {
	t.Helper()
	if os.Getenv(clusterVariable) == "" {
		hostfs.Skip(t, "cluster", "needs a cluster with Holdfast in it, named in "+clusterVariable+": run make e2e")
	}
	if err := find(); err != nil {
		t.Fatal(err)
	}
	return &live{found, t}
}

// node returns a ready node: others are slow.
func (l *live) node() string {
	l.t.Helper()
	nodes := l.Nodes(l.t)
	if len(nodes) == 0 {
		l.t.Fatal("no node is ready")
	}
	return nodes[0]
}

// bench returns the command that measures.
func (l *live) bench(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(l.t.Context(), l.program, append([]string{"bench", "--node", l.node(), "--output", "json"}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+l.Kubeconfig())
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // so that it cleans up
	cmd.WaitDelay = time.Minute
	return cmd
}

// measure runs the command and checks that nothing is left.
func (l *live) measure(args ...string) (result bench.Result, said string, err error) {
	l.t.Helper()
	var errs strings.Builder
	cmd := l.bench(args...)
	cmd.Stderr = &errs
	out, err := cmd.Output()
	said = errs.String()
	if bad := json.Unmarshal(out, &result); bad != nil {
		l.t.Fatalf("%v, and no JSON: %v\n%s%s", err, bad, out, said)
	}
	l.nothingLeft(namespaceIn(l.t, said))
	return result, said, err
}

var made = regexp.MustCompile(`namespace=(holdfast-bench-\w+)`)

func namespaceIn(t *testing.T, said string) string {
	t.Helper()
	found := made.FindStringSubmatch(said)
	if found == nil {
		t.Fatalf("no namespace is named in:\n%s", said)
	}
	return found[1]
}

func (l *live) nothingLeft(namespace string) {
	l.t.Helper()
	ctx := context.WithoutCancel(l.t.Context())
	if _, err := l.Client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		l.t.Errorf("namespace %s is left: %v", namespace, err)
	}
	volumes, err := l.Client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		l.t.Fatal(err)
	}
	for _, v := range volumes.Items {
		if v.Spec.ClaimRef != nil && v.Spec.ClaimRef.Namespace == namespace {
			l.t.Errorf("volume %s of claim %s is left, %s", v.Name, v.Spec.ClaimRef.Name, v.Status.Phase)
		}
	}
}

// class makes one like Holdfast's own, for the one node, which is there until the test ends.
func (l *live) class(change func(*storage.StorageClass)) string {
	l.t.Helper()
	classes := l.Client.StorageV1().StorageClasses()
	own, err := classes.Get(l.t.Context(), "holdfast", metav1.GetOptions{})
	if err != nil {
		l.t.Fatal(err)
	}
	class := &storage.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{GenerateName: "bench-test-"},
		Provisioner: own.Provisioner, Parameters: own.Parameters, ReclaimPolicy: own.ReclaimPolicy, VolumeBindingMode: own.VolumeBindingMode,
		AllowedTopologies: []core.TopologySelectorTerm{{MatchLabelExpressions: []core.TopologySelectorLabelRequirement{
			{Key: "topology.holdfast.dev/node", Values: []string{l.node()}},
		}}},
	}
	change(class)
	class, err = classes.Create(l.t.Context(), class, metav1.CreateOptions{})
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		if err := classes.Delete(context.WithoutCancel(l.t.Context()), class.Name, metav1.DeleteOptions{}); err != nil {
			l.t.Error(err)
		}
	})
	return class.Name
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

func TestCluster_ClassWithDefaults(t *testing.T) {
	t.Parallel()
	l := realCluster(t)
	result, said, err := l.measure("--storage-class", "holdfast", "--at-once", "1,3", "--repeat", "2")
	if err != nil || !result.Complete || len(result.Failures) > 0 {
		t.Fatalf("%v, complete %v: %+v\n%s", err, result.Complete, result.Failures, said)
	}
	measures := []bench.Measure{bench.PlainPod, bench.NewBound, bench.BoundRunning, bench.NewRunning, bench.BoundPod, bench.VolumeGone}
	expect(t, result, 1, 2, measures...)
	expect(t, result, 3, 3, measures...)
	if result.Class.BindingMode != "WaitForFirstConsumer" || !slices.Equal(result.Cluster.Nodes, []string{l.node()}) || result.Cluster.Version == "" {
		t.Errorf("%+v in %+v", result.Class, result.Cluster)
	}
	t.Logf("%+v, %q", result.Warnings, result.Notes)
}

func TestCluster_ClassThatBindsAtOnceAndRetains(t *testing.T) {
	t.Parallel()
	l := realCluster(t)
	class := l.class(func(c *storage.StorageClass) {
		c.VolumeBindingMode, c.ReclaimPolicy = new(storage.VolumeBindingImmediate), new(core.PersistentVolumeReclaimRetain)
	})
	result, said, err := l.measure("--storage-class", class, "--at-once", "3")
	if err != nil || !result.Complete {
		t.Fatalf("%v: %+v\n%s", err, result.Failures, said)
	}
	expect(t, result, 3, 3, bench.PlainPod, bench.ClaimBound, bench.BoundPod, bench.VolumeGone)
}

func TestCluster_ClassWhoseDriverRefusesFailsWithTheMessageOfTheDriver(t *testing.T) {
	hostfs.Long(t)
	t.Parallel()
	l := realCluster(t)
	class := l.class(func(c *storage.StorageClass) {
		c.VolumeBindingMode, c.Parameters = new(storage.VolumeBindingImmediate), map[string]string{"pool": "no-such-pool"}
	})
	result, said, err := l.measure("--storage-class", class, "--at-once", "2", "--timeout", "30s")
	if err == nil || result.Complete {
		t.Fatalf("it has succeeded: %+v\n%s", result, said)
	}
	if len(result.Failures) == 0 || !strings.Contains(result.Failures[0].Reason, "no-such-pool") || !strings.Contains(said, result.Failures[0].Name) {
		t.Errorf("failed: %+v\n%s", result.Failures, said)
	}
	if !slices.ContainsFunc(result.Warnings, func(w bench.Warning) bool {
		return w.Reason == "ProvisioningFailed" && strings.Contains(w.Message, "no-such-pool") && w.Count > 0
	}) {
		t.Errorf("the warnings are %+v", result.Warnings)
	}
}

func TestCluster_InterruptLeavesNothing(t *testing.T) {
	t.Parallel()
	l := realCluster(t)
	cmd := l.bench("--storage-class", "holdfast", "--at-once", "5")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	lines := bufio.NewReader(stderr)
	for !made.MatchString(said.String()) {
		line, err := lines.ReadString('\n')
		said.WriteString(line)
		if err != nil {
			t.Fatalf("%v after:\n%s", err, said.String())
		}
	}
	namespace := namespaceIn(t, said.String())
	l.awaitVolume(namespace)
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Error(err)
	}
	rest, err := io.ReadAll(lines)
	if err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(string(rest), "ended early: interrupt") {
		t.Errorf("%v:\n%s", err, rest)
	}
	l.nothingLeft(namespace)
}

// awaitVolume waits for the first volume of a namespace.
func (l *live) awaitVolume(namespace string) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), 2*time.Minute)
	defer cancel()
	for ctx.Err() == nil { // the API server may end a watch at any time
		watching, err := l.Client.CoreV1().PersistentVolumes().Watch(ctx, metav1.ListOptions{ResourceVersion: "0"}) // with the existing ones
		if err != nil {
			l.t.Fatal(err)
		}
		for e := range watching.ResultChan() {
			v, ok := e.Object.(*core.PersistentVolume)
			if ok && v.Spec.ClaimRef != nil && v.Spec.ClaimRef.Namespace == namespace {
				watching.Stop()
				return
			}
			if !ok {
				l.t.Logf("the watch of volumes: %v", e.Object)
			}
		}
	}
	l.t.Error("no volume was made")
}
