package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/deploy"
	"github.com/holdfast-storage/holdfast/report/top"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/miniapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// writeOutputs is how test/tool/generate/run writes what documents show of commands.
var writeOutputs = flag.String("outputs", "", "`directory`, a copy of docs, in which to write what commands print")

const docs = "../../docs"

// shownOutput is what a document shows of a command: the cluster, the command, and what it printed.
var shownOutput = regexp.MustCompile(`(?s)(<!-- The command was run in the cluster "([a-z-]+)" of cmd/holdfast/outputs_test\.go, by make generate\. -->\n\n    \$ holdfast ([^\n]*)\n)(.*?)(\n<!-- End of what it printed\. -->)`)

// shownClusters are those in which the commands of documents are run.
var shownClusters = map[string]func(*shown){
	"shop": (*shown).shop, "deleted": (*shown).deleted, "unmounted": (*shown).unmounted, "new": (*shown).renewed,
}

// shown is a cluster whose objects are given.
type shown struct {
	*testing.T
	api *miniapi.Server
}

func (s *shown) node(name string, pools []v1beta1.Pool, trash ...v1beta1.TrashedVolume) {
	s.Helper()
	n := &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1beta1.StorageNodeStatus{
		Version: "v0.1.0", Pools: pools, Trash: trash,
		Conditions: []metav1.Condition{{Type: v1beta1.ReadyCondition, Status: metav1.ConditionTrue}},
	}}
	for _, p := range pools {
		n.Status.Columns.Volumes += p.Volumes
	}
	wait.Put(s.T, n, kindsOf(s.api).StorageNodes())
}

func pool(name string, engine v1beta1.Engine, capacity, used, promised, available string, volumes int32) v1beta1.Pool {
	q := resource.MustParse
	return v1beta1.Pool{Name: name, Engine: engine, Capacity: q(capacity), Used: q(used), Promised: q(promised), Available: q(available), Volumes: volumes}
}

func (s *shown) volume(name, claim, node, pool, size, used string, phase v1beta1.Phase, why ...string) {
	s.Helper()
	v := aVolume(name, claim, node, pool, size, used, phase)
	if len(why) > 0 {
		v.Status.Conditions = []metav1.Condition{{Type: v1beta1.ReadyCondition, Status: metav1.ConditionFalse, Reason: why[0], Message: why[1]}}
	}
	wait.Put(s.T, v, kindsOf(s.api).Volumes())
}

func (s *shown) shop() {
	wait.Put(s.T, &v1beta1.StorageCluster{ObjectMeta: metav1.ObjectMeta{Name: "holdfast"}, Status: v1beta1.StorageClusterStatus{
		Phase: v1beta1.ClusterRunning, ObservedGeneration: 1, ReadyNodes: 3, DesiredNodes: 3, Version: "v0.1.0",
		Nodes: []v1beta1.NodeHealth{{Name: "n1", Ready: true, Version: "v0.1.0"}, {Name: "n2", Ready: true, Version: "v0.1.0"}, {Name: "n3", Ready: true, Version: "v0.1.0"}},
	}}, kindsOf(s.api).StorageClusters())
	s.node("n1", []v1beta1.Pool{pool("fast", v1beta1.EngineImage, "200Gi", "57Gi", "120Gi", "70Gi", 2)})
	s.node("n2", []v1beta1.Pool{pool("fast", v1beta1.EngineImage, "200Gi", "170Gi", "180Gi", "10Gi", 1)})
	s.node("n3", []v1beta1.Pool{pool("fast", v1beta1.EngineImage, "200Gi", "12Gi", "20Gi", "170Gi", 1), pool("plain", v1beta1.EngineDirectory, "1Ti", "88Gi", "100Gi", "850Gi", 1)})
	s.volume("pvc-0c4e", "shop/data-orders-0", "n1", "fast", "80Gi", "41Gi", v1beta1.PhaseReady)
	s.volume("pvc-2b19", "shop/images", "n1", "fast", "40Gi", "16Gi", v1beta1.PhaseReady)
	s.volume("pvc-77aa", "shop/data-orders-1", "n2", "fast", "180Gi", "169Gi", v1beta1.PhaseReady)
	s.volume("pvc-91d0", "bank/ledger", "n3", "fast", "20Gi", "11Gi", v1beta1.PhaseUnreachable, "NotMounted", "pool fast of node n3 is not mounted")
	s.volume("pvc-e5f3", "bank/archive", "n3", "plain", "100Gi", "87Gi", v1beta1.PhaseReady)
	for i, node := range []string{"n1", "n2", "n3"} {
		putPod(s.T, s.api, deploy.Namespace, fmt.Sprintf("holdfast-node-%d", i), node, ofNode)
	}
	putPod(s.T, s.api, "shop", "orders-0", "n1", nil, "data-orders-0")
	putPod(s.T, s.api, "shop", "orders-1", "n2", nil, "data-orders-1")
	putPod(s.T, s.api, "shop", "web-5c8d", "n1", nil, "images")
	putPod(s.T, s.api, "bank", "archive-0", "n3", nil, "archive")
	check.Got(coreOf(s.api).Events("default").Create(s.Context(), &core.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: "default"}, Type: core.EventTypeWarning, Reason: "NotMounted", Message: "pool fast of node n3 is not mounted", Count: 4,
		InvolvedObject: core.ObjectReference{Kind: "StorageNode", Name: "n3", APIVersion: v1beta1.SchemeGroupVersion.String()}, Source: core.EventSource{Component: "holdfast-node"},
		LastTimestamp: metav1.NewTime(time.Now().Add(-10*time.Minute - 30*time.Second)),
	}, metav1.CreateOptions{}))(s)
}

// deleted has a volume in the trash.
func (s *shown) deleted() {
	s.node("n1", []v1beta1.Pool{{Name: "fast"}}, v1beta1.TrashedVolume{
		Name: "pvc-0c4e", Pool: "fast", ClaimRef: v1beta1.ReferenceTo("shop/data-orders-0"), Size: resource.MustParse("20Gi"),
		DeletionTime: metav1.NewTime(noon), ExpirationTime: metav1.NewTime(noon.Add(24 * time.Hour)),
	})
}

// unmounted has a pool that is not there.
func (s *shown) unmounted() {
	s.volume("pvc-0c4e", "shop/data-orders-0", "n1", "fast", "20Gi", "11Gi", v1beta1.PhaseUnreachable, "NotMounted", "pool fast of node n1 is not mounted")
}

// renewed has the volumes of a cluster that is gone.
func (s *shown) renewed() {
	s.volume("pvc-0c4e", "shop/data-orders-0", "n1", "fast", "20Gi", "11Gi", v1beta1.PhaseReady)
	s.volume("pvc-77aa", "shop/data-orders-1", "n2", "fast", "20Gi", "9Gi", v1beta1.PhaseReady)
}

// clocked has samples that are two seconds apart, however long they took.
type clocked struct {
	top.Source
	samples int
}

func (c *clocked) Sample(ctx context.Context) (*top.Sample, error) {
	s, err := c.Source.Sample(ctx)
	if err != nil {
		return nil, err
	}
	c.samples++
	for node := range s.At {
		s.At[node] = noon.Add(time.Duration(2*c.samples) * time.Second)
	}
	return s, nil
}

// run is what a command prints.
func (s *shown) run(command string) string {
	s.Helper()
	const home = deploy.Namespace
	flags := proxied(s.T, s.api, map[string]http.HandlerFunc{
		home + "/holdfast-node-0": counts(map[string]int{"pvc-0c4e": 900, "pvc-2b19": 7}),
		home + "/holdfast-node-1": counts(map[string]int{"pvc-77aa": 2600}),
		home + "/holdfast-node-2": counts(nil),
	})
	var out strings.Builder
	var err error
	if command == "top" {
		t := &topper{
			installation: &installation{flags[1], flags[3], home}, output: &output{&choice{value: "table"}},
			by: top.ByVolume, interval: shortest,
		}
		var c *top.Cluster
		if c, err = t.cluster(s.Context()); err == nil {
			err = t.show(s.Context(), &out, &clocked{Source: c})
		}
	} else {
		err = run(s.Context(), append(strings.Fields(command), flags[:4]...), &out)
	}
	if code := exitCode(err); code > 1 {
		s.Fatalf("%s: %v", command, err)
	}
	return out.String()
}

func TestDocs_OutputsAreWhatTheCommandsPrint(t *testing.T) {
	t.Setenv("LC_ALL", "C.UTF-8")
	t.Setenv("TERM", "xterm")
	pages := check.Got(filepath.Glob(docs + "/*.md"))(t)
	found := map[string]bool{}
	for _, page := range pages {
		text := check.Got(os.ReadFile(page))(t)
		want := shownOutput.ReplaceAllStringFunc(string(text), func(block string) string {
			parts := shownOutput.FindStringSubmatch(block)
			fill, known := shownClusters[parts[2]]
			if !known {
				t.Fatalf("%s: there is no cluster %q here", page, parts[2])
			}
			found[parts[2]] = true
			s := &shown{t, miniapi.New(t)}
			fill(s)
			lines := strings.Split(strings.TrimSuffix(s.run(parts[3]), "\n"), "\n")
			for i, line := range lines {
				if line != "" {
					lines[i] = "    " + line
				}
			}
			return parts[1] + strings.Join(lines, "\n") + "\n" + parts[5]
		})
		switch {
		case *writeOutputs != "":
			if err := os.WriteFile(filepath.Join(*writeOutputs, filepath.Base(page)), []byte(want), 0o644); err != nil { //nolint:gosec // as the others
				t.Error(err)
			}
		case want != string(text):
			t.Errorf("%s does not show what the commands print: run make generate. It would be\n%s", page, want)
		}
	}
	for name := range shownClusters {
		if !found[name] {
			t.Errorf("no document shows the cluster %s", name)
		}
	}
}
