// Package provisioner is the external provisioner nfs.holdfast.dev: it creates and deletes PersistentVolumes of type
// nfs for claims, so that the volumes of an NFS server can be used without a CSI driver on the nodes.
//
// It runs in the server's pod beside the NFS service, which must not end with it: while the API server is out of reach
// or the Lease is lost, provisioning pauses.
package provisioner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/lru"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller/metrics"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/parameters"
)

// Storage creates and exports volumes, and archives them as snapshots.
type Storage interface {
	backend.Backend
	backend.Snapshotter
}

// Config is what a Provisioner needs.
type Config struct {
	// Name of the provisioner in StorageClasses; empty means v1beta1.ProvisionerName.
	Name string
	// Identity is the NAMESPACE/NAME of the NFSServer.
	Identity string
	// Servers says which claims are for this server; in a cluster a *Servers.
	Servers interface {
		IsDefault() bool
		IsNamed(name string) bool
		Known(server string) bool
		Refusal() error
	}
	// Address is where clients reach the server: an IP address, since nodes do not ask the cluster's DNS. Empty: it has none yet.
	Address string
	// Path is what clients mount for a volume.
	Path func(backend.ID) string
	// MountOptions are for classes that have none, beside those of v1beta1.NFSMountOptions that they do not contradict.
	MountOptions []string

	Backend Storage
	// Forget deletes the objects of a volume that is removed. It is called before and after the removal, and
	// need not wait until they are gone.
	Forget func(context.Context, backend.ID) error
	// Made is called with each created volume and archive, so that its object can be written. It must not
	// block.
	Made func(backend.SourceKind, backend.ID)
	// StateDir is a directory on the server's own volume for this package alone. It is created if it is missing.
	StateDir string

	Metrics   *Metrics
	Client    kubernetes.Interface
	Namespace string               // of the Lease
	Holder    string               // identity for the Lease, unique for each process; empty means a random one
	Events    record.EventRecorder // may be nil
	Log       *slog.Logger         // may be nil

	Workers int           // claims, and volumes, that are handled concurrently
	Lease   time.Duration // duration of the Lease without a renewal
	Timeout time.Duration // after which a call continues in the background, and is retried later
	Resync  time.Duration // after which all objects are reconciled again

	RetryFirst, RetryLast time.Duration // bounds of the back-off

	// Patience is how long a PersistentVolume of another server may wait for its deletion before it gets an event.
	Patience time.Duration
}

// Provisioner serves the claims and PersistentVolumes of one NFS server.
type Provisioner struct {
	Config
	log      *slog.Logger
	started  time.Time
	gate     gate
	journal  *journal
	begun    *kube.Loop[backend.ID] // volumes without a PersistentVolume
	library  *controller.ProvisionController
	reported *lru.Cache // the events that were written once
	waiting  *lru.Cache // the UIDs of claims that did not fit

	claims, volumes, classes *replay
}

var (
	_ controller.Provisioner   = (*Provisioner)(nil)
	_ controller.Qualifier     = (*Provisioner)(nil)
	_ controller.DeletionGuard = (*Provisioner)(nil)
)

// New checks the configuration and opens the journal.
//
// It must be called before this process uses any client of the API: the library writes, without a lock, to the scheme
// that all clients read.
func New(c Config) (*Provisioner, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	p := &Provisioner{Config: c, log: c.Log, started: time.Now(), reported: lru.New(mostReported), waiting: lru.New(mostWaiting)}
	var err error
	if p.journal, err = openJournal(c.StateDir, c.Log); err != nil {
		return nil, err
	}
	p.makeInformers()
	p.begun, err = kube.NewLoop(kube.LoopConfig[backend.ID]{
		Name: "begun", Reconcile: p.reconcile, Workers: endedAtOnce, Log: c.Log, RetryFirst: c.RetryFirst, RetryLast: c.RetryLast,
	})
	if err == nil {
		err = p.begun.Watch(p.claims, p.begunFor)
	}
	if err != nil {
		return nil, errors.Join(err, p.journal.close())
	}
	p.library = controller.NewProvisionController(logr.FromSlogHandler(c.Log.Handler()), saving{c.Client, p.saved}, c.Name, p, p.options()...)
	return p, nil
}

func (c *Config) complete() error {
	if !strings.Contains(c.Identity, "/") || serverOf(map[string]string{parameters.NFSServer: c.Identity}) == "" {
		return fmt.Errorf("%w identity %s: it must be the NAMESPACE/NAME of the NFS server", backend.ErrInvalid, backend.Quote(c.Identity))
	}
	if c.Backend == nil || c.Client == nil || c.Servers == nil || c.Path == nil || c.StateDir == "" || c.Namespace == "" {
		return errors.New("a provisioner needs a backend, a client, the servers, a path, a directory for its state and the namespace of its Lease")
	}
	host, err := os.Hostname()
	if err != nil {
		return err // the library would end the process
	}
	c.Name, c.Holder = cmp.Or(c.Name, v1beta1.ProvisionerName), cmp.Or(c.Holder, host+"_"+string(uuid.NewUUID()))
	c.MountOptions = v1beta1.NFSMountOptions(c.MountOptions)
	c.Log, c.Events = cmp.Or(c.Log, slog.New(slog.DiscardHandler)), cmp.Or(c.Events, kube.NoEvents)
	c.Workers, c.Lease, c.Timeout = cmp.Or(c.Workers, 10), cmp.Or(c.Lease, 15*time.Second), cmp.Or(c.Timeout, 30*time.Second)
	c.RetryFirst, c.RetryLast = cmp.Or(c.RetryFirst, time.Second), cmp.Or(c.RetryLast, 2*time.Minute)
	c.Resync, c.Patience = cmp.Or(c.Resync, 5*time.Minute), cmp.Or(c.Patience, 5*time.Minute)
	if c.Lease < time.Second {
		return fmt.Errorf("%w lease %s: it must be at least a second", backend.ErrInvalid, c.Lease)
	}
	return nil
}

// options returns the options of the library. Its leader election would end the process when the Lease is lost, and its
// thresholds would give up forever; both are off.
func (p *Provisioner) options() []func(*controller.ProvisionController) error {
	backOff := func() workqueue.TypedRateLimiter[any] {
		return workqueue.NewTypedItemExponentialFailureRateLimiter[any](p.RetryFirst, p.RetryLast)
	}
	return []func(*controller.ProvisionController) error{
		controller.LeaderElection(false),
		controller.FailedProvisionThreshold(0),
		controller.FailedDeleteThreshold(0),
		controller.AddFinalizer(true),
		controller.RateLimiter(backOff()),
		controller.CreateProvisionedPVLimiter(backOff()), // other modes delete a volume whose PersistentVolume may exist
		controller.Threadiness(p.Workers),
		controller.ProvisionTimeout(p.Timeout),
		controller.DeletionTimeout(p.Timeout),
		controller.ResyncPeriod(p.Resync),
		controller.MetricsInstance(metrics.Metrics(*p.Metrics)),
		controller.ClaimsInformer(p.claims),
		controller.VolumesInformer(p.volumes),
		controller.ClassesInformer(p.classes),
	}
}

// Run provisions until ctx ends, whenever this process holds the Lease. It is called once.
func (p *Provisioner) Run(ctx context.Context) error {
	ctx = logr.NewContext(ctx, logr.FromSlogHandler(p.log.Handler()))
	below, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	defer func() {
		stop()
		running.Wait()
		if err := p.journal.close(); err != nil {
			p.log.Warn("the journal could not be closed", "error", err)
		}
	}()
	for _, i := range []*replay{p.claims, p.volumes, p.classes} {
		running.Go(func() { i.RunWithContext(below) })
	}
	if !cache.WaitForCacheSync(ctx.Done(), p.claims.HasSynced, p.volumes.HasSynced, p.classes.HasSynced) {
		return nil
	}
	running.Go(func() { p.library.Run(below) })
	running.Go(func() { _ = p.begun.Run(below) }) // it has no error
	return p.lead(ctx)
}

// endedAtOnce is how many unfinished volumes are reconciled concurrently.
const endedAtOnce = 2
