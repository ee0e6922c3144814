package main

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
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
)

// nodeConfig is the file of --config, the same on all nodes.
type nodeConfig struct {
	Pools []v1.PoolSpec `json:"pools"`
}

func readNodeConfig(path string) (c nodeConfig, err error) {
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	if err != nil {
		return c, fmt.Errorf("--config %s: %w", path, err)
	}
	return c, nil
}

// poolsOf returns those that are for a node; without nil, those that are for every one. A pool whose terms cannot be
// read is among them, so that it is kept where it is and its problem told.
func (c nodeConfig) poolsOf(node *core.Node) (chosen []v1.PoolSpec) {
	for _, p := range c.Pools {
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

func (c nodeConfig) dependsOnNode() bool {
	return slices.ContainsFunc(c.Pools, func(p v1.PoolSpec) bool { return len(p.NodeSelectorTerms) > 0 })
}

// chooser knows which pools are for this node. What the file says later is for the next start: the operator replaces
// the pods one by one.
type chooser struct {
	nodeConfig
	node   string
	log    *slog.Logger
	cached cache.SharedIndexInformer // of the Node object alone
	change chan struct{}             // holds a token when something may have changed
}

// errOtherPools ends the process.
var errOtherPools = errors.New("the pools of this node have changed; this process ends, to be started again with them")

// choosePools returns the pools for this node, and lets n.watch end when those are others.
func (n *node) choosePools(ctx context.Context, log *slog.Logger) ([]v1.PoolSpec, error) {
	config, err := readNodeConfig(n.config)
	if err != nil {
		return nil, err
	}
	only := informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, n.driver.NodeID).String()
	})
	factory := informers.NewSharedInformerFactoryWithOptions(n.clients.kubernetes, 0, only)
	c := &chooser{nodeConfig: config, node: n.driver.NodeID, log: log, cached: factory.Core().V1().Nodes().Informer(), change: make(chan struct{}, 1)}
	if _, err := c.cached.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { c.changed() },
		UpdateFunc: func(_, _ any) { c.changed() },
	}); err != nil {
		return nil, err
	}
	factory.StartWithContext(withLog(ctx, log))
	chosen, err := c.first(ctx)
	n.watch = func(ctx context.Context) error { return c.watch(ctx, chosen) }
	return chosen, err
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
			c.log.Info("waiting for the Node object, whose labels choose the pools", "node", c.node)
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
	found, _, _ := c.cached.GetIndexer().GetByKey(c.node) // this index has no errors
	node, _ := found.(*core.Node)
	if node == nil && c.dependsOnNode() {
		return nil, errNoNode
	}
	return c.poolsOf(node), nil
}

// watch ends with errOtherPools when other pools are for this node than were. As long as that is not known, it goes on.
func (c *chooser) watch(ctx context.Context, were []v1.PoolSpec) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.change:
		}
		if are, err := c.now(); err == nil && !samePools(were, are) {
			return fmt.Errorf("%w: they were %s, and are %s", errOtherPools, poolNames(were), poolNames(are))
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
