// Package nodejob runs the containers of NodeJobs, one on each node that a job selects, and reports the result of each.
//
// newPlan decides only from what is observed; Controller observes and applies. All state is in the objects: a pod's name
// is derived from its job, node and attempt, so pods from before a restart are found again.
//
// Jobs of batch/v1 do not suffice: they have no completion word, so a container that logs it and keeps running never
// completes, and one that fails after it is retried. They would also retry a cleanup without checking whether the pool is
// in use by then.
package nodejob

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	listers "github.com/holdfast-storage/holdfast/api/client/listers/api/v1beta1"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/operator/render"
)

// Config is what a Controller needs.
type Config struct {
	Client     holdfast.Interface
	Kubernetes kubernetes.Interface
	// Watches are of the process, in Namespace; who made them starts them, after New.
	Watches   *kube.Watches
	Namespace string         // of Holdfast, where the pods are
	Release   render.Release // of this program
	Log       *slog.Logger   // nil discards

	// Now is the time; nil means that of the host.
	Now func() time.Time
}

// Controller reconciles all NodeJobs of a cluster.
type Controller struct {
	Config

	loop         *kube.Loop[string]
	jobs         listers.NodeJobLister
	clusters     listers.StorageClusterLister
	storageNodes listers.StorageNodeLister
	nodes        corelisters.NodeLister
	pods         corelisters.PodLister
	logs         *logs
	written      kube.Writer[*v1beta1.NodeJob, v1beta1.NodeJobStatus]
	unreadable   kube.UnreadableReporter
}

const (
	component = "holdfast-nodejob"
	workers   = 4
)

// New checks the configuration and asks the informers for what it needs.
func New(c Config) (*Controller, error) {
	if c.Client == nil || c.Kubernetes == nil || c.Watches == nil || c.Namespace == "" {
		return nil, errors.New("node jobs need clients, informers and a namespace")
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.Now == nil {
		c.Now = time.Now
	}
	kinds := c.Watches.Holdfast.Holdfast().V1beta1()
	r := &Controller{
		Config: c,
		jobs:   kinds.NodeJobs().Lister(), clusters: kinds.StorageClusters().Lister(), storageNodes: kinds.StorageNodes().Lister(),
		nodes: c.Watches.Cluster.Core().V1().Nodes().Lister(), pods: c.Watches.Cluster.Core().V1().Pods().Lister(),
		written: kube.Writer[*v1beta1.NodeJob, v1beta1.NodeJobStatus]{
			Client:  func(string) kube.Client[*v1beta1.NodeJob] { return c.Client.HoldfastV1beta1().NodeJobs() },
			Status:  func(o *v1beta1.NodeJob) *v1beta1.NodeJobStatus { return &o.Status },
			Manager: component,
		},
		logs: &logs{kubernetes: c.Kubernetes, known: map[types.UID]*reading{}},
	}
	var err error
	if r.loop, err = kube.NewLoop(kube.LoopConfig[string]{Name: "nodejob", Reconcile: r.reconcile, Workers: workers, Log: c.Log}); err != nil {
		return nil, err
	}
	r.logs.wake = r.loop.EnqueueAfter
	return r, r.watch()
}

// Run reconciles the jobs until ctx ends.
func (c *Controller) Run(ctx context.Context) error { return c.loop.Run(ctx) }

func (c *Controller) watch() error {
	kinds, pods, nodes := c.Watches.Holdfast.Holdfast().V1beta1(), c.Watches.Cluster.Core().V1().Pods(), c.Watches.Cluster.Core().V1().Nodes()
	return errors.Join(
		c.loop.Watch(kinds.NodeJobs().Informer(), nameOf),
		// Their changes queue no job, but they must be cached when a job is reconciled.
		c.loop.Watch(kinds.StorageClusters().Informer(), func(any) []string { return nil }),
		c.loop.Watch(kinds.StorageNodes().Informer(), func(any) []string { return nil }),
		c.loop.Watch(pods.Informer(), ownerName),
		c.loop.WatchChanges(nodes.Informer(), c.atWork, func(old, now any) bool {
			return unready(old.(*core.Node)) != unready(now.(*core.Node))
		}),
	)
}

func nameOf(object any) []string { return []string{object.(metav1.Object).GetName()} }

// ownerName returns the job of a pod.
func ownerName(object any) []string {
	owner := metav1.GetControllerOf(object.(metav1.Object))
	if owner == nil || owner.Kind != "NodeJob" {
		return nil
	}
	return []string{owner.Name}
}

// atWork returns the running jobs, to which a change of a node may matter.
func (c *Controller) atWork(any) (names []string) {
	for _, j := range kube.Cached(c.jobs.List) {
		if j.Status.Phase == v1beta1.JobRunning {
			names = append(names, j.Name)
		}
	}
	return names
}
