package render

import (
	"cmp"

	apps "k8s.io/api/apps/v1"

	"github.com/holdfast-storage/holdfast/deploy"
)

const (
	snapshotControllerName      = "holdfast-snapshot-controller"
	snapshotControllerComponent = "snapshot-controller"
)

// snapshotController returns the workload of the snapshot controller, which exits if its kinds are missing.
func (p *plan) snapshotController() []object {
	image := p.images.SnapshotController
	if p.Snapshots {
		image = cmp.Or(image, p.Release.defaults(p.spec.ImageRegistry).SnapshotController)
	}
	if image == "" || !p.withCSI() || !p.Has(snapshotClassKind) || !p.Has(groupSnapshotClassKind) {
		return nil
	}
	deployment := Manifest[apps.Deployment](deploy.SnapshotController, snapshotControllerName)
	if p.spec.Controller.Replicas != nil {
		deployment.Spec.Replicas = p.spec.Controller.Replicas
	}
	pod := &deployment.Spec.Template.Spec
	container(pod, snapshotControllerComponent).Image = string(image)
	p.applyPodSettings(pod)
	return append(p.accountAndRights(deploy.SnapshotController), deployment)
}
