package nodepools

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/miniapi"
)

func term(key string, operator core.NodeSelectorOperator, values ...string) core.NodeSelectorTerm {
	return core.NodeSelectorTerm{MatchExpressions: []core.NodeSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
}

func pool(name string, terms ...core.NodeSelectorTerm) v1beta1.PoolSpec {
	return v1beta1.PoolSpec{Name: name, NodeSelectorTerms: terms}
}

func TestChoose_PoolIsForTheNodesThatItsTermsMatch(t *testing.T) {
	node := &core.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-a", Labels: map[string]string{"disk": "ssd", "cpus": "8"}},
		Spec:       core.NodeSpec{Unschedulable: true},
	}
	name := core.NodeSelectorTerm{MatchFields: []core.NodeSelectorRequirement{{Key: "metadata.name", Operator: core.NodeSelectorOpIn, Values: []string{"node-a"}}}}
	both := term("disk", core.NodeSelectorOpIn, "ssd")
	both.MatchExpressions = append(both.MatchExpressions, term("cpus", core.NodeSelectorOpGt, "8").MatchExpressions...)
	for what, test := range map[string]struct {
		terms []core.NodeSelectorTerm
		want  bool
	}{
		"no terms":        {nil, true},
		"In":              {[]core.NodeSelectorTerm{term("disk", core.NodeSelectorOpIn, "hdd", "ssd")}, true},
		"In others":       {[]core.NodeSelectorTerm{term("disk", core.NodeSelectorOpIn, "hdd")}, false},
		"NotIn":           {[]core.NodeSelectorTerm{term("disk", core.NodeSelectorOpNotIn, "ssd")}, false},
		"NotIn, no label": {[]core.NodeSelectorTerm{term("zone", core.NodeSelectorOpNotIn, "a")}, true},
		"Exists":          {[]core.NodeSelectorTerm{term("disk", core.NodeSelectorOpExists)}, true},
		"DoesNotExist":    {[]core.NodeSelectorTerm{term("disk", core.NodeSelectorOpDoesNotExist)}, false},
		"Gt":              {[]core.NodeSelectorTerm{term("cpus", core.NodeSelectorOpGt, "4")}, true},
		"Lt":              {[]core.NodeSelectorTerm{term("cpus", core.NodeSelectorOpLt, "4")}, false},
		"its name":        {[]core.NodeSelectorTerm{name}, true},
		"one of two":      {[]core.NodeSelectorTerm{term("disk", core.NodeSelectorOpIn, "hdd"), name}, true},
		"all of a term":   {[]core.NodeSelectorTerm{both}, false},
		"an empty term":   {[]core.NodeSelectorTerm{{}}, false},
		"nonsense":        {[]core.NodeSelectorTerm{term("disk", "Like", "s*")}, true}, // kept, and its problem is reported
	} {
		chosen := poolsOf(node, []v1beta1.PoolSpec{pool("p", test.terms...)})
		if got := len(chosen) == 1; got != test.want {
			t.Errorf("%s: chosen %t", what, got)
		}
	}
}

// rig is a node process as far as it chooses its pools.
type rig struct {
	*testing.T
	Config
	nodes *miniapi.Server
	log   lines
	watch func(context.Context) error
}

// lines are what is logged.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

func newRig(t *testing.T, pools ...v1beta1.PoolSpec) *rig {
	t.Helper()
	api, log := miniapi.New(t), make(lines, 100)
	r := &rig{T: t, nodes: api, log: log, Config: Config{
		File: filepath.Join(t.TempDir(), "node.json"), Node: "node-a", Kubernetes: kubernetes.NewForConfigOrDie(api.Config()),
		Log: slog.New(slog.NewTextHandler(log, nil)),
	}}
	r.write(pools...)
	return r
}

// write replaces the file at once, as the kubelet does.
func (r *rig) write(pools ...v1beta1.PoolSpec) {
	r.Helper()
	r.writeText(string(check.Got(json.Marshal(v1beta1.NodeConfig{Pools: pools}))(r.T)))
}

func (r *rig) writeText(text string) {
	r.Helper()
	check.OK(r.T, os.WriteFile(r.File+".new", []byte(text), 0o600))
	check.OK(r.T, os.Rename(r.File+".new", r.File))
}

func (r *rig) label(labels map[string]string) {
	r.Helper()
	nodes := r.Kubernetes.CoreV1().Nodes()
	n, err := nodes.Get(r.Context(), "node-a", metav1.GetOptions{})
	if err != nil {
		n = &core.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a", Labels: labels}}
		_, err = nodes.Create(r.Context(), n, metav1.CreateOptions{})
	} else {
		n.Labels = labels
		_, err = nodes.Update(r.Context(), n, metav1.UpdateOptions{})
	}
	check.OK(r.T, err)
}

func (r *rig) choose() []v1beta1.PoolSpec {
	r.Helper()
	chosen, watch, err := Choose(r.Context(), r.Config)
	check.OK(r.T, err)
	r.watch = watch
	return chosen
}

// chooses fails unless these pools are chosen.
func (r *rig) chooses(want string) {
	r.Helper()
	if got := poolNames(r.choose()); got != want {
		r.Fatalf("chosen %s, want %s", got, want)
	}
}

// ending is how the watch over the pools ends.
func (r *rig) ending() <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- r.watch(r.Context()) }()
	return ended
}

func (r *rig) expectEnd(ended <-chan error, words ...string) {
	r.Helper()
	select {
	case err := <-ended:
		if !errors.Is(err, ErrOthers) {
			r.Fatalf("it ended with %v", err)
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				r.Errorf("%v: it does not say %q", err, w)
			}
		}
	case <-time.After(20 * time.Second):
		r.Fatal("the process goes on with other pools than it should have")
	}
}

var fast = term("disk", core.NodeSelectorOpIn, "ssd")

func TestChoose_ProcessEndsWhenALabelSelectsOtherPools(t *testing.T) {
	r := newRig(t, pool("slow"), pool("fast", fast)) // the first, which is the default, stays the first
	r.label(nil)
	r.chooses("slow")
	ended := r.ending()
	r.label(map[string]string{"disk": "hdd"}) // changes nothing
	r.label(map[string]string{"disk": "ssd"})
	r.expectEnd(ended, "were slow, and are slow, fast")
	r.chooses("slow, fast")
	ended = r.ending()
	r.label(nil)
	r.expectEnd(ended, "were slow, fast, and are slow")
}

func TestChoose_ProcessContinuesWhenItsPoolsStayTheSame(t *testing.T) {
	r := newRig(t, pool("a"), pool("fast", fast))
	r.label(map[string]string{"disk": "hdd"})
	r.choose()
	ended := r.ending()
	check.OK(t, r.Kubernetes.CoreV1().Nodes().Delete(t.Context(), "node-a", metav1.DeleteOptions{}))
	r.write(pool("b"), pool("fast", fast)) // for the next start
	r.nodes.BreakWatches()
	r.label(map[string]string{"disk": "hdd"})
	select {
	case err := <-ended:
		t.Fatalf("it ended: %v", err)
	default:
	}
	r.label(map[string]string{"disk": "ssd"}) // it still looks, and has not read the file again
	r.expectEnd(ended, "were a, and are a, fast")
	r.chooses("b, fast") // by the next start
}

func TestChoose_NodeObjectIsAwaitedOnlyIfAPoolDependsOnIt(t *testing.T) {
	r := newRig(t, pool("a"))
	r.chooses("a")
	r.write(pool("a"), pool("fast", fast))
	chosen := make(chan []v1beta1.PoolSpec, 1)
	go func() { chosen <- r.choose() }()
	for !strings.Contains(<-r.log, "waiting for the Node object") {
	}
	r.label(map[string]string{"disk": "ssd"})
	if got := poolNames(<-chosen); got != "a, fast" {
		t.Errorf("chosen %s", got)
	}
}

func TestChoose_NodeMayHaveNoPools(t *testing.T) {
	r := newRig(t, pool("fast", fast))
	r.label(nil)
	r.chooses("none")
	ended := r.ending()
	r.label(map[string]string{"disk": "ssd"})
	r.expectEnd(ended, "were none, and are fast")
}

func TestChoose_UnreadableFileEndsTheStart(t *testing.T) {
	r := newRig(t)
	for _, text := range []string{"", "{", `{"pools": "all"}`, "[]"} {
		r.writeText(text)
		if _, _, err := Choose(t.Context(), r.Config); err == nil || !strings.Contains(err.Error(), r.File) {
			t.Errorf("%q: %v", text, err)
		}
	}
	r.writeText(`{}`)
	r.chooses("none")
}
