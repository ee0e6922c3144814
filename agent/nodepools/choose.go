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

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
)

// poolsOf returns the pools that select a node; for nil, those that select every node. A pool whose terms cannot be
// read is among them, so that it is kept where it is and its problem is reported.
func poolsOf(node *core.Node, all []v1beta1.PoolSpec) (chosen []v1beta1.PoolSpec) {
	for _, p := range all {
		if matched, err := matches(p.NodeSelectorTerms, node); matched || err != nil {
			chosen = append(chosen, p)
		}
	}
	return chosen
}

// matches evaluates terms as the scheduler does, except that no terms match every node.
func matches(terms []core.NodeSelectorTerm, node *core.Node) (bool, error) {
	if len(terms) == 0 || node == nil {
		return len(terms) == 0, nil
	}
	return nodeaffinity.NewLazyErrorNodeSelector(&core.NodeSelector{NodeSelectorTerms: terms}).Match(node)
}

// Config is what Choose needs.
type Config struct {
	File       string // of the v1beta1.NodeConfig
	Node       string
	Kubernetes kubernetes.Interface
	Log        *slog.Logger
}

// chooser knows which pools are for this node. Later changes of the file are for the next start: the operator replaces
// the pods one by one.
type chooser struct {
	Config
	pools  []v1beta1.PoolSpec        // of all nodes
	cached cache.SharedIndexInformer // of the Node object alone
	change chan struct{}             // holds a token when something may have changed
}

// ErrOthers ends a process when its node has other pools than at its start.
var ErrOthers = errors.New("the pools of this node have changed; this process exits to be restarted with them")

// Choose returns the pools for this node, and a part that ends with ErrOthers when they change.
func Choose(ctx context.Context, config Config) (chosen []v1beta1.PoolSpec, watch func(context.Context) error, err error) {
	var file v1beta1.NodeConfig // the same on all nodes
	data, err := os.ReadFile(config.File)
	if err == nil {
		err = json.Unmarshal(data, &file)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", config.File, err)
	}
	only := informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, config.Node).String()
	})
	factory := informers.NewSharedInformerFactoryWithOptions(config.Kubernetes, 0, only)
	c := &chooser{Config: config, pools: file.Pools, cached: factory.Core().V1().Nodes().Informer(), change: make(chan struct{}, 1)}
	if _, err := c.cached.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { kube.Notify(c.change) },
		UpdateFunc: func(_, _ any) { kube.Notify(c.change) },
	}); err != nil {
		return nil, nil, err
	}
	factory.StartWithContext(ctx)
	chosen, err = c.first(ctx)
	return chosen, func(ctx context.Context) error { return c.watch(ctx, chosen) }, err
}

// first waits for the Node object if a pool depends on it.
func (c *chooser) first(ctx context.Context) ([]v1beta1.PoolSpec, error) {
	for reported := false; ; reported = true {
		if chosen, known := c.now(); known {
			return chosen, nil
		}
		if !reported {
			c.Log.Info("waiting for the Node object, whose labels choose the pools", "node", c.Node)
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-c.change:
		}
	}
}

// now returns the present pools for this node. They are not known if they depend on the Node object, and that was not read.
func (c *chooser) now() (pools []v1beta1.PoolSpec, known bool) {
	node := kube.InStore[*core.Node](c.cached.GetStore(), c.Node)
	known = node != nil || !slices.ContainsFunc(c.pools, func(p v1beta1.PoolSpec) bool { return len(p.NodeSelectorTerms) > 0 })
	return poolsOf(node, c.pools), known
}

// watch returns ErrOthers when the pools for this node have changed. It keeps running while that is unknown.
func (c *chooser) watch(ctx context.Context, were []v1beta1.PoolSpec) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.change:
		}
		if are, known := c.now(); known && !samePools(were, are) {
			return fmt.Errorf("%w: they were %s, and are %s", ErrOthers, poolNames(were), poolNames(are))
		}
	}
}

// samePools ignores the node selectors.
func samePools(x, y []v1beta1.PoolSpec) bool {
	return slices.EqualFunc(x, y, func(p, q v1beta1.PoolSpec) bool {
		p.NodeSelectorTerms, q.NodeSelectorTerms = nil, nil
		return equality.Semantic.DeepEqual(p, q)
	})
}

func poolNames(pools []v1beta1.PoolSpec) string {
	var names []string
	for _, p := range pools {
		names = append(names, p.Name)
	}
	return cmp.Or(strings.Join(names, ", "), "none")
}
