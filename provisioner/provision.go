package provisioner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
)

// Provision creates the volume of a claim and returns its PersistentVolume, which the library writes.
func (p *Provisioner) Provision(ctx context.Context, o controller.ProvisionOptions) (pv *core.PersistentVolume, state controller.ProvisioningState, err error) {
	inTerm, done, open := p.gate.enter(ctx)
	if !open {
		return nil, controller.ProvisioningFinished, ignored(errResting)
	}
	defer done()
	err = p.guard("provisioning", func() error {
		pv, err = p.provision(inTerm, o)
		return err
	})
	switch {
	case inTerm.Err() != nil && ctx.Err() == nil:
		return nil, controller.ProvisioningFinished, ignored(errResting) // the journal has what was begun
	case err != nil:
		if errors.Is(err, backend.ErrExhausted) {
			p.waiting.Add(o.PVC.UID, nil)
		}
		p.log.Warn("a claim has no volume yet", "claim", o.PVC.Namespace+"/"+o.PVC.Name, "volume", o.PVName, "error", err)
		return nil, stateOf(err), err
	}
	return pv, controller.ProvisioningFinished, nil
}

func (p *Provisioner) provision(ctx context.Context, o controller.ProvisionOptions) (*core.PersistentVolume, error) {
	if err := p.Servers.Refusal(); err != nil {
		return nil, err
	}
	spec, err := p.specFor(o.PVName, o.PVC, o.StorageClass)
	if err != nil {
		return nil, err
	}
	id, err := backend.IDFor(spec.Name)
	if err != nil {
		return nil, err
	}
	if p.Address == "" {
		return nil, fmt.Errorf("%w: the Service of NFS server %s has no address yet", backend.ErrUnavailable, p.Identity)
	}
	if err := p.journal.begin(id, entry{Name: spec.Name, Namespace: o.PVC.Namespace, Claim: o.PVC.Name, UID: string(o.PVC.UID)}); err != nil {
		return nil, err
	}
	v, err := p.Backend.Create(ctx, spec)
	if err == nil && !maps.Equal(ours(v.Labels), ours(spec.Labels)) {
		err = fmt.Errorf("%w: volume %s was started for this claim with other parameters", backend.ErrExists, id)
	}
	if errors.Is(err, backend.ErrExists) {
		err = p.beginAgain(ctx, id, o, err)
	}
	if err != nil {
		p.begun.Enqueue(id) // its claim may be gone by now
		return nil, err
	}
	p.Made(backend.SourceVolume, id)
	return p.persistent(o, v), nil
}

// stateOf reports to the library whether an error is final, or the volume may still be created.
func stateOf(err error) controller.ProvisioningState {
	code := backend.CodeOf(err)
	switch {
	case code == backend.CodeBusy, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return controller.ProvisioningInBackground
	case code.Permanent():
		// Another node would not help a server that is full, so this is not a reason to reschedule.
		return controller.ProvisioningFinished
	}
	return controller.ProvisioningNoChange
}

// ours returns the labels that this package puts on volumes.
func ours(labels map[string]string) map[string]string {
	found := map[string]string{}
	for _, key := range []string{v1beta1.NFSServerLabel, v1beta1.OnDeleteLabel, ClaimUIDLabel, SquashLabel, v1beta1.GIDLabel, ModeLabel, v1beta1.PersistentVolumeLabel} {
		if value := labels[key]; value != "" {
			found[key] = value
		}
	}
	return found
}

// beginAgain removes a volume that was begun for the same claim before its class was changed, so that the next try
// creates it as it is specified now. A volume that has a PersistentVolume, or belongs to another claim, stays.
func (p *Provisioner) beginAgain(ctx context.Context, id backend.ID, o controller.ProvisionOptions, cause error) error {
	v, err := p.Backend.Get(ctx, id)
	if err != nil {
		return err
	}
	if v.Labels[v1beta1.NFSServerLabel] != p.Identity || v.Labels[ClaimUIDLabel] != string(o.PVC.UID) {
		return cause
	}
	_, err = p.findPersistent(ctx, o.PVName)
	switch {
	case err == nil:
		return cause
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("%w; whether it is in use cannot be found out: %w", backend.ErrUnavailable, err)
	}
	if err := p.remove(ctx, id); err != nil {
		return err
	}
	return fmt.Errorf("%w: %w; it was not used yet and is recreated", backend.ErrBusy, cause)
}

// guard turns a panic into an error, so that it does not end the process, which serves files too.
func (p *Provisioner) guard(what string, f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			p.log.Error("this is a bug in the program; please report it", "what", what, "panic", r, "stack", string(debug.Stack()))
			err = fmt.Errorf("%w: %s failed because of a bug in the program; see the log of the server", backend.ErrUnavailable, what)
		}
	}()
	return f()
}

func ignored(reason error) error { return &controller.IgnoredError{Reason: reason.Error()} }
