// Package volumecopy is the controller of the leading replica that brings the content of a source into a volume of another
// pool. A pod copies it, to which Kubernetes gives both volumes as it does to every pod.
//
// Each pass over a Volume with spec.populatedBy takes the next step, which it finds out from the objects alone, so that any
// process can go on at any point. The names of all that is made follow from the UID of the Volume:
//
//  1. The temporary source: a Volume beside the source, restored from the snapshot or cloned from the volume. It is the first
//     that is made and the last that goes: what it is there for is in its labels, and leads to the rest. It alone has a name
//     that does not follow.
//  2. A PersistentVolume and a claim of the temporary source, and of the Volume, in the namespace of Holdfast.
//  3. The pod. What its log says goes into status.copy. One that fails is followed by another, which goes on where it ended.
//  4. The pod has verified that both are the same: status.copy is Complete, with the checksum.
//  5. Pod, claims and PersistentVolumes go, then what is attached.
//  6. The agent records on the disk that the Volume is complete, and the condition Populated becomes True. Only then CreateVolume
//     returns (backend/cluster/objects.go), so no PersistentVolume of a user refers to a volume that is not complete.
//  7. The temporary source goes. The volume is used while its node is down.
//
// When it fails for good, status.copy says so instead, steps 5 and 7 follow, and CreateVolume returns the error and removes
// the Volume. When the Volume is deleted, steps 5 and 7 follow.
package volumecopy

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"

	listers "github.com/holdfast-storage/holdfast/api/client/listers/api/v1beta1"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend/cluster"
	"github.com/holdfast-storage/holdfast/kube"
)

// Config is what a Controller needs.
type Config struct {
	Storage *cluster.Backend // started before Run; its clients, watches, namespace and log are used
	// Image is that of the pods, with the secrets to pull it.
	Image  func(context.Context) (v1beta1.Image, []core.LocalObjectReference, error)
	Events record.EventRecorder // nil writes none
}

// Controller copies volumes, in one process at a time.
type Controller struct {
	Config
	loop    *kube.Loop[string] // of the names of Volumes that are populated
	volumes listers.VolumeLister
	pods    corelisters.PodLister
	slots   slots
	key     []byte // of the names of temporary sources
}

const (
	fieldManager = "holdfast-volumecopy"
	workers      = 4

	// atOnce is how many copies run at the same time. One that waits for something else does not count.
	atOnce = 4
	// atMost is the same with one each of namespaces that have none: those of one that was alone may take hours.
	atMost = 8
	// lookAgain is how often a copy is looked at that waits for what is not watched.
	lookAgain = 10 * time.Second
	// progressEvery is how often the log of a pod is read.
	progressEvery = 5 * time.Second
	// soon is for what has just been written.
	soon = 50 * time.Millisecond
)

// New checks the configuration.
func New(c Config) (*Controller, error) {
	if c.Storage == nil || c.Image == nil {
		return nil, errors.New("the copying of volumes needs a cluster's backend, and the image of its pods")
	}
	c.Events = cmp.Or(c.Events, kube.NoEvents)
	r := &Controller{
		Config: c, volumes: c.Storage.Watches.Holdfast.Holdfast().V1beta1().Volumes().Lister(), pods: c.Storage.Watches.Cluster.Core().V1().Pods().Lister(),
		slots: slots{held: map[types.UID]bool{}, tried: map[types.UID]try{}}, key: []byte(rand.Text()),
	}
	var err error
	r.loop, err = kube.NewLoop(kube.LoopConfig[string]{Name: "volumecopy", Reconcile: r.reconcile, Workers: workers, Log: c.Storage.Log})
	return r, err
}

// Run works until ctx ends.
func (r *Controller) Run(ctx context.Context) error {
	if err := r.watch(); err != nil {
		return err
	}
	r.Storage.Watches.Start()
	return r.loop.Run(ctx)
}

func (r *Controller) reconcile(ctx context.Context, name string) (time.Duration, error) {
	o, err := r.observe(ctx, name)
	if err != nil {
		return 0, err
	}
	again, err := r.apply(ctx, o, newPlan(o))
	if apierrors.IsConflict(err) { // the agent has written in between
		return soon, nil
	}
	return again, err
}
