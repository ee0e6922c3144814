// Package nodepools chooses which pools of the StorageCluster are for one node.
package nodepools

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
)

// readConfig reads the file that is the same on all nodes.
func readConfig(path string) (c v1.NodeConfig, err error) {
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	if err != nil {
		return c, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// poolsOf returns those that are for a node; without nil, those that are for every one. A pool whose terms cannot be
// read is among them, so that it is kept where it is and its problem told.
func poolsOf(node *core.Node, all []v1.PoolSpec) (chosen []v1.PoolSpec) {
	for _, p := range all {
		if matched, err := matches(p.NodeSelectorTerms, node); matched || err != nil {
			chosen = append(chosen, p)
		}
	}
	return chosen
}

// matches reads terms as the scheduler does. None match every node.
func matches(terms []core.NodeSelectorTerm, node *core.Node) (bool, error) {
	if len(terms) == 0 || node == nil {
		return len(terms) == 0, nil
	}
	return nodeaffinity.NewLazyErrorNodeSelector(&core.NodeSelector{NodeSelectorTerms: terms}).Match(node)
}

// Config is what Choose needs.
type Config struct {
	File       string // of the v1.NodeConfig
	Node       string
	Kubernetes kubernetes.Interface
	Log        *slog.Logger
}

// chooser knows which pools are for this node. What the file says later is for the next start: the operator replaces
// the pods one by one.
type chooser struct {
	Config
	pools  []v1.PoolSpec             // of all nodes
	cached cache.SharedIndexInformer // of the Node object alone
	change chan struct{}             // holds a token when something may have changed
}

// ErrOthers is why a process ends whose pools are not those of its node any more.
var ErrOthers = errors.New("the pools of this node have changed; this process ends, to be started again with them")

// Choose returns the pools for this node, and what ends with ErrOthers when those are others.
func Choose(ctx context.Context, config Config) (chosen []v1.PoolSpec, watch func(context.Context) error, err error) {
	file, err := readConfig(config.File)
	if err != nil {
		return nil, nil, err
	}
	only := informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, config.Node).String()
	})
	factory := informers.NewSharedInformerFactoryWithOptions(config.Kubernetes, 0, only)
	c := &chooser{Config: config, pools: file.Pools, cached: factory.Core().V1().Nodes().Informer(), change: make(chan struct{}, 1)}
	if _, err := c.cached.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { c.changed() },
		UpdateFunc: func(_, _ any) { c.changed() },
	}); err != nil {
		return nil, nil, err
	}
	factory.StartWithContext(ctx)
	chosen, err = c.first(ctx)
	return chosen, func(ctx context.Context) error { return c.watch(ctx, chosen) }, err
}

func (c *chooser) dependsOnNode() bool {
	return slices.ContainsFunc(c.pools, func(p v1.PoolSpec) bool { return len(p.NodeSelectorTerms) > 0 })
}

func (c *chooser) changed() {
	select {
	case c.change <- struct{}{}:
	default:
	}
}

// first waits for the Node object if a pool depends on it.
func (c *chooser) first(ctx context.Context) ([]v1.PoolSpec, error) {
	for told := false; ; told = true {
		chosen, err := c.now()
		if !errors.Is(err, errNoNode) {
			return chosen, err
		}
		if !told {
			c.Log.Info("waiting for the Node object, whose labels choose the pools", "node", c.Node)
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-c.change:
		}
	}
}

var errNoNode = errors.New("the Node object is not known")

func (c *chooser) now() ([]v1.PoolSpec, error) {
	found, _, _ := c.cached.GetIndexer().GetByKey(c.Node) // this index has no errors
	node, _ := found.(*core.Node)
	if node == nil && c.dependsOnNode() {
		return nil, errNoNode
	}
	return poolsOf(node, c.pools), nil
}

// watch ends with ErrOthers when other pools are for this node than were. As long as that is not known, it goes on.
func (c *chooser) watch(ctx context.Context, were []v1.PoolSpec) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.change:
		}
		if are, err := c.now(); err == nil && !samePools(were, are) {
			return fmt.Errorf("%w: they were %s, and are %s", ErrOthers, poolNames(were), poolNames(are))
		}
	}
}

// samePools leaves out by which terms they were chosen.
func samePools(x, y []v1.PoolSpec) bool {
	return equality.Semantic.DeepEqual(withoutTerms(x), withoutTerms(y))
}

func withoutTerms(pools []v1.PoolSpec) []v1.PoolSpec {
	all := make([]v1.PoolSpec, len(pools))
	for i, p := range pools {
		p.NodeSelectorTerms = nil
		all[i] = p
	}
	return all
}

func poolNames(pools []v1.PoolSpec) string {
	var names []string
	for _, p := range pools {
		names = append(names, p.Name)
	}
	return cmp.Or(strings.Join(names, ", "), "none")
}
