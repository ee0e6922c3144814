package bench

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Bench measures a StorageClass in a namespace of its own.
type Bench struct {
	Config
	class     Class
	kube      string   // version of the API server
	nodes     []string // that pods may run on
	namespace string
	seen      *seen
	watching  sync.WaitGroup
	stop      context.CancelFunc
	lives     int // number of lives started
	begun     time.Time
	times     times
	failures  []Failure
	notes     []string
}

// New validates the configuration. It does not contact the cluster.
func New(config Config) (*Bench, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	return &Bench{Config: config, seen: newSeen(""), stop: func() {}, times: times{}}, nil
}

// Run measures. With an error it returns what was measured before, or nil if it could not start. Close must be called
// after Run in any case.
func (b *Bench) Run(ctx context.Context) (*Result, error) {
	b.begun = time.Now()
	if err := b.readCluster(ctx); err != nil {
		return nil, err
	}
	if err := b.begin(ctx); err != nil {
		return nil, err
	}
	err := b.measure(ctx)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("ended early: %w", context.Cause(ctx))
	}
	return b.result(err == nil), err
}

func (b *Bench) measure(ctx context.Context) error {
	if err := b.warmUp(ctx); err != nil {
		return fmt.Errorf("warming up: %w", err)
	}
	for _, n := range b.AtOnce {
		repeats := 1
		if n == 1 {
			repeats = b.Repeat
		}
		for i := range repeats {
			b.Log.Info("measuring", "atOnce", n, "round", i+1, "of", repeats)
			if err := b.life(ctx, n, b.times); err != nil {
				return fmt.Errorf("%d at once: %w", n, err)
			}
		}
	}
	return nil
}

// warmUp makes all nodes pull the image, and runs what is slow only the first time.
func (b *Bench) warmUp(ctx context.Context) error {
	b.Log.Info("warming up, which is not measured", "nodes", len(b.nodes))
	var pods []plan
	for i, node := range b.nodes {
		pods = append(pods, plan{pod: fmt.Sprintf("warm-%d", i+1), node: node})
	}
	if _, err := b.run(ctx, "a pod on each node", pods); err != nil {
		return err
	}
	return b.life(ctx, 1, times{})
}

func (b *Bench) begin(ctx context.Context) error {
	// A canceled request could leave a namespace with an unknown name.
	making, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.Timeout)
	defer cancel()
	made, err := b.Client.CoreV1().Namespaces().Create(making, namespace(), metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("creating a namespace: %w", err)
	}
	b.namespace = made.Name
	b.Log.Info("created a namespace, which is removed at the end", "namespace", b.namespace)
	b.seen = newSeen(b.namespace)
	b.watch(ctx)
	// A watch that opens after the removal would not report it.
	opened := func() (bool, error) { return len(b.seen.opening) == 0, nil }
	if err := b.within(context.WithoutCancel(ctx), "opening watches", opened); err != nil {
		return err
	}
	return b.within(ctx, "the default service account, which pods need", func() (bool, error) { return b.seen.account, nil })
}

// watch starts watches that end with stop, not with ctx: they also observe the removal.
func (b *Bench) watch(ctx context.Context) {
	ctx, b.stop = context.WithCancel(context.WithoutCancel(ctx))
	core := b.Client.CoreV1()
	follow(ctx, b, "pods", "", core.Pods(b.namespace), b.seen.podEvent)
	follow(ctx, b, "claims", "", core.PersistentVolumeClaims(b.namespace), b.seen.claimEvent)
	follow(ctx, b, "volumes", "", core.PersistentVolumes(), b.seen.volumeEvent)
	follow(ctx, b, "events", "", core.Events(b.namespace), b.seen.warningEvent)
	follow(ctx, b, "service accounts", "default", core.ServiceAccounts(b.namespace), b.seen.accountEvent)
	follow(ctx, b, "namespaces", b.namespace, core.Namespaces(), b.seen.namespaceEvent)
}

// within waits until done returns true, for at most the timeout of a step.
func (b *Bench) within(ctx context.Context, what string, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, b.Timeout, fmt.Errorf("not seen within the timeout of %s", b.Timeout))
	defer cancel()
	if err := b.seen.await(ctx, done); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
