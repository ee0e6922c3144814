package provisioner

import (
	"context"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
)

// saving is a client that reports the result of each write of a PersistentVolume. The library retries forever without
// reporting it.
type saving struct {
	kubernetes.Interface
	saved func(context.Context, *core.PersistentVolume, error)
}

func (s saving) CoreV1() typed.CoreV1Interface { return savingCore{s.Interface.CoreV1(), s.saved} }

type savingCore struct {
	typed.CoreV1Interface
	saved func(context.Context, *core.PersistentVolume, error)
}

func (s savingCore) PersistentVolumes() typed.PersistentVolumeInterface {
	return savingVolumes{s.CoreV1Interface.PersistentVolumes(), s.saved}
}

type savingVolumes struct {
	typed.PersistentVolumeInterface
	saved func(context.Context, *core.PersistentVolume, error)
}

func (s savingVolumes) Create(ctx context.Context, v *core.PersistentVolume, o metav1.CreateOptions) (*core.PersistentVolume, error) {
	written, err := s.PersistentVolumeInterface.Create(ctx, v, o)
	s.saved(ctx, v, err)
	return written, err
}

// saved handles the result of writing a PersistentVolume. If one with that name exists, another server may have been
// faster; reconcile checks that.
func (p *Provisioner) saved(_ context.Context, v *core.PersistentVolume, err error) {
	id := backend.ID(v.Annotations[v1beta1.NFSVolumeAnnotation])
	switch {
	case err == nil:
		p.forget(id)
	case apierrors.IsAlreadyExists(err):
		p.begun.Enqueue(id)
	default:
		p.log.Warn("a volume is created and its PersistentVolume cannot be written; retrying", "volume", id, "error", err)
		if v.Spec.ClaimRef != nil {
			p.warnf(v.Spec.ClaimRef, "NotSaved", "the volume is created, but its PersistentVolume %s cannot be written yet: %v", v.Name, err)
		}
	}
}

// forget removes a volume that has its PersistentVolume from the journal. Failures are retried.
func (p *Provisioner) forget(id backend.ID) {
	if err := p.journal.end(id); err != nil {
		p.log.Warn("a volume that has its PersistentVolume stays in the journal; trying again", "volume", id, "error", err)
		p.begun.EnqueueAfter(id, p.RetryFirst)
	}
}
