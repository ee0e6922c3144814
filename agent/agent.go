// Package agent reconciles the Volume and Snapshot objects of one host with that host's backend, and reports the state
// of the host.
//
// The disk is the truth: an agent that is killed at any point and restarted finds out what it has done, writes objects
// for entries without one, and never recreates a volume that existed once.
package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"

	client "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/api/convert"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/kube"
)

// Defaults of a Config.
const (
	DefaultWorkers      = 32 // so that the syncs of a burst share commits of the pool's file system
	DefaultSlowAfter    = 15 * time.Second
	DefaultLease        = 40 * time.Second
	DefaultSurveyEvery  = time.Minute
	DefaultPublishEvery = time.Second
	DefaultRetryFirst   = 50 * time.Millisecond
	DefaultRetryLast    = 30 * time.Second
)

// fieldManager is the name under which an agent writes.
const fieldManager = "holdfast-agent"

// Pool has what is reported about a pool beside its numbers.
type Pool struct {
	Name   string
	Path   string
	Engine string
}

// Storage is what the storage of every node and site can do.
type Storage interface {
	backend.Storage
	backend.Trasher
}

// Config is what an Agent needs. A duration or count that is 0 has its default.
type Config struct {
	Node    string // the name of the Node object, or NAMESPACE.NAME.nfs.holdfast.dev of an NFS server
	Address string // of the NFS server, for clients; empty on a node
	Version string
	Backend Storage
	// Delete deletes a volume of the backend; nil: as the backend does.
	Delete     func(context.Context, backend.ID) error
	Pools      []Pool // of the backend; the first is the default, and there may be none
	Client     client.Interface
	Kubernetes kubernetes.Interface
	Namespace  string               // of the Lease
	Events     record.EventRecorder // nil writes no events
	Log        *slog.Logger         // nil discards
	// Requests says whether the API server makes sure that only the controller requests deletions; nil trusts all requests.
	Requests interface{ Refusal() error }
	// Addresses are those of the host; nil reports none.
	Addresses func() ([]string, error)
	// SharedVolumes says why shared volumes cannot be mounted on the host, with the reason for the condition; nil
	// reports nothing about them.
	SharedVolumes func() (reason string, err error)
	// CephVolumes say in the same way, by condition, why volumes of Ceph pools with an engine cannot be used on the host.
	CephVolumes map[string]func() (reason string, err error)
	// CephHost knows the clients of Ceph clusters that the kernel of the host has; nil where volumes of them are not used.
	CephHost CephHost
	// PublicKey is what the agents of Ceph pools encrypt the key of this node's user to; "" where it has none.
	PublicKey string
	// NodeUsers makes the users of nodes in the cluster of a Ceph pool; nil where nodes share one.
	NodeUsers backend.NodeUsers
	// Foreign says which volumes on disk get no object: inline volumes, which are deleted with their pod. Nil means none.
	Foreign func(*backend.Volume) bool
	// ForeignAllowed says whether inline volumes can be created here.
	ForeignAllowed bool

	Workers      int           // volumes and snapshots reconciled concurrently, beside those that take long
	SlowAfter    time.Duration // when a reconcile takes long: a copy, a disk that hangs
	Lease        time.Duration // how long after its last renewal the node counts as down, in whole seconds
	SurveyEvery  time.Duration // how often usage, health, SharedVolumes and CephVolumes are checked
	PublishEvery time.Duration // the StorageNode is written at most this often
	RetryFirst   time.Duration // after a temporary failure; doubled each time
	RetryLast    time.Duration // the upper bound
}

// Agent is the agent of one host.
type Agent struct {
	Config
	log       *slog.Logger
	completer backend.Completer
	watched   backend.Watched // nil where the clients of volumes are not seen
	grouper   backend.GroupSnapshotter
	pools     backend.PoolMemory // nil where pools have no identity
	warner    backend.Warner     // nil where no pool is usable for now only
	fencer    backend.Fencer     // nil where clients cannot be shut out

	poolsChanged chan struct{} // holds a token when a pool has come or gone

	watches   watches
	loop      *kube.Loop[key]
	work      work
	volumes   kube.Writer[*v1beta1.Volume, v1beta1.VolumeStatus]
	snapshots kube.Writer[*v1beta1.Snapshot, v1beta1.SnapshotStatus]
	node      publisher
	ceph      cephClients
	users     nodeUsers
	inline    atomic.Int32 // volumes that are Foreign; negative until they were counted

	abilities []*ability

	unreadable kube.UnreadableReporter
}

// New checks the configuration.
func New(c Config) (*Agent, error) {
	switch {
	case c.Backend == nil || c.Client == nil || c.Kubernetes == nil:
		return nil, errors.New("an agent needs a backend and clients of both APIs")
	case len(validation.IsDNS1123Subdomain(c.Node)) > 0 || len(v1beta1.LeasePrefix+c.Node) > validation.DNS1123SubdomainMaxLength:
		return nil, fmt.Errorf("node %s: it must be the name of a Node object, at most %d bytes", backend.Quote(c.Node), validation.DNS1123SubdomainMaxLength-len(v1beta1.LeasePrefix))
	}
	c.Namespace, c.Events = cmp.Or(c.Namespace, v1beta1.DefaultNamespace), cmp.Or(c.Events, kube.NoEvents)
	c.Workers, c.SlowAfter = cmp.Or(c.Workers, DefaultWorkers), cmp.Or(c.SlowAfter, DefaultSlowAfter)
	c.Lease = max(time.Second, cmp.Or(c.Lease, DefaultLease).Truncate(time.Second))
	c.SurveyEvery, c.PublishEvery = cmp.Or(c.SurveyEvery, DefaultSurveyEvery), cmp.Or(c.PublishEvery, DefaultPublishEvery)
	c.RetryFirst, c.RetryLast = cmp.Or(c.RetryFirst, DefaultRetryFirst), cmp.Or(c.RetryLast, DefaultRetryLast)
	if c.Delete == nil {
		c.Delete = c.Backend.Delete
	}
	a := &Agent{Config: c, log: cmp.Or(c.Log, slog.New(slog.DiscardHandler))}
	a.inline.Store(-1)
	a.completer, _ = c.Backend.(backend.Completer)
	a.watched, _ = c.Backend.(backend.Watched)
	a.grouper, _ = c.Backend.(backend.GroupSnapshotter)
	a.pools, _ = c.Backend.(backend.PoolMemory)
	a.warner, _ = c.Backend.(backend.Warner)
	if c.SharedVolumes != nil {
		a.abilities = append(a.abilities, &ability{condition: v1beta1.SharedVolumesCondition, check: c.SharedVolumes})
	}
	for condition, check := range c.CephVolumes {
		a.abilities = append(a.abilities, &ability{condition: condition, check: check})
	}
	a.fencer, _ = c.Backend.(backend.Fencer)
	a.ceph.dirty = make(chan struct{}, 1)
	a.poolsChanged = make(chan struct{}, 1)
	a.node.dirty = make(chan struct{}, 1)
	objects := c.Client.HoldfastV1beta1()
	a.volumes = kube.Writer[*v1beta1.Volume, v1beta1.VolumeStatus]{
		Client: func(string) kube.Client[*v1beta1.Volume] { return objects.Volumes() },
		Status: func(o *v1beta1.Volume) *v1beta1.VolumeStatus { return &o.Status }, Manager: fieldManager,
	}
	a.snapshots = kube.Writer[*v1beta1.Snapshot, v1beta1.SnapshotStatus]{
		Client: func(string) kube.Client[*v1beta1.Snapshot] { return objects.Snapshots() },
		Status: func(o *v1beta1.Snapshot) *v1beta1.SnapshotStatus { return &o.Status }, Manager: fieldManager,
	}
	var err error
	a.loop, err = kube.NewLoop(kube.LoopConfig[key]{
		Name: "agent", Reconcile: a.reconcile, Workers: c.Workers, SlowAfter: c.SlowAfter, Log: a.log,
		RetryFirst: c.RetryFirst, RetryLast: c.RetryLast,
	})
	if err != nil {
		return nil, err
	}
	return a, a.watches.prepare(a)
}

// Run works until ctx ends. Running operations of the backend then continue; closing the backend waits for them. An
// Agent runs once.
func (a *Agent) Run(ctx context.Context) error {
	var parts sync.WaitGroup
	defer parts.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	parts.Go(func() { a.showLife(ctx) })
	if err := a.watches.start(ctx); err != nil {
		a.loop.Drop()
		return fmt.Errorf("the objects of node %s could not be listed: %w", a.Node, err)
	}
	a.recall()
	a.followPools(ctx)
	parts.Go(func() { a.publishRegularly(ctx) })
	parts.Go(func() { a.surveyRegularly(ctx) })
	for _, b := range a.abilities {
		check := func(context.Context) { a.checkAbility(b) }
		go wait.NonSlidingUntilWithContext(ctx, check, a.SurveyEvery) // not waited for: loading the kernel module may block
	}
	if a.fencer != nil {
		parts.Go(func() { a.keepBlocklist(ctx) })
	}
	if a.CephHost != nil {
		parts.Go(func() { a.keepCephClients(ctx) })
	}
	return a.loop.Run(ctx)
}

// Made reports that another part of this process created a volume or snapshot on this host, so that its object is
// written at once. It does not wait for that.
func (a *Agent) Made(kind backend.SourceKind, id backend.ID) {
	data := convert.FromSource(&backend.Source{Kind: kind, ID: id})
	k := key{data.Kind, data.Name}
	a.work.made.Store(k, true)
	a.loop.Retry(k)
}

// Released reports that a volume is no longer in use on this host, so that a deletion that was refused for that reason
// is retried at once.
func (a *Agent) Released(id backend.ID) {
	a.loop.Retry(key{v1beta1.SourceVolume, string(id)})
	a.lookAtCephClients()
}
