// Package fencing is the controller of the leading replica that shuts lost nodes out of Ceph clusters, so that their pods
// can be started elsewhere while no two nodes write one volume.
//
// Each pass over a node takes the next step, which it finds out from the objects alone, so that any process can go on at
// any point:
//
//  1. spec.fence of the StorageNode: from now on the agent of the node records no further client, and uses none without.
//  2. spec.blocklist of the pools in the clusters: the addresses of the recorded clients.
//  3. status.blocklist of the pools: the cluster has confirmed all of them. The condition Fenced becomes True.
//  4. VolumeAttachments and pods of the node are deleted.
//  5. The node is back, and its agent has removed these clients from its record: the entries in spec.blocklist go, then
//     spec.fence.
//
// Driver and attacher rely on the condition: a volume is not detached from a lost node before it (backend/cluster/detach.go).
package fencing

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"

	client "github.com/holdfast-storage/holdfast/api/client/clientset"
	listers "github.com/holdfast-storage/holdfast/api/client/listers/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
)

// Liveness knows which agents renew their Leases.
type Liveness interface {
	// WhyDown is empty while the agent of a node is alive.
	WhyDown(node string) string
	// SilentFor returns for how long the agent of a node has been silent while this process could have heard it.
	SilentFor(node string) time.Duration
}

// Config is what a Controller needs.
type Config struct {
	Client     client.Interface
	Kubernetes kubernetes.Interface
	Watches    *kube.Watches
	Liveness   Liveness
	Driver     string               // the name of the driver
	Events     record.EventRecorder // nil writes none
	Log        *slog.Logger
}

// Controller shuts out lost nodes, in one process at a time.
type Controller struct {
	Config
	loop         *kube.Loop[string] // of the names of nodes
	clusters     listers.StorageClusterLister
	storageNodes listers.StorageNodeLister
	volumes      listers.VolumeLister
	nodes        corelisters.NodeLister
}

// lookAgain is how often a node is looked at whose fencing waits for what is not watched.
const lookAgain = 10 * time.Second

// New checks the configuration.
func New(c Config) (*Controller, error) {
	if c.Client == nil || c.Kubernetes == nil || c.Watches == nil || c.Liveness == nil {
		return nil, errors.New("the fencing of nodes needs clients of both APIs, watches, and what knows which agents are alive")
	}
	c.Events = cmp.Or(c.Events, kube.NoEvents)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	kinds := c.Watches.Holdfast.Holdfast().V1beta1()
	r := &Controller{
		Config: c, clusters: kinds.StorageClusters().Lister(), storageNodes: kinds.StorageNodes().Lister(), volumes: kinds.Volumes().Lister(),
		nodes: c.Watches.Cluster.Core().V1().Nodes().Lister(),
	}
	var err error
	r.loop, err = kube.NewLoop(kube.LoopConfig[string]{Name: "fencing", Reconcile: r.reconcile, Log: c.Log})
	return r, err
}

// Run works until ctx ends.
func (r *Controller) Run(ctx context.Context) error {
	if err := r.watch(); err != nil {
		return err
	}
	r.Watches.Start()
	return r.loop.Run(ctx)
}

func (r *Controller) reconcile(ctx context.Context, node string) (time.Duration, error) {
	o, err := r.observe(ctx, node)
	if err != nil {
		return 0, err
	}
	p := planNode(o)
	return p.again, r.apply(ctx, o, p)
}
