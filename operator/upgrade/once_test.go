package upgrade

import (
	"testing"
	"testing/synctest"

	apps "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/operator/render"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func TestUpgrade_ReplacesTheControllerOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.live()
		deployment := func() *apps.Deployment {
			t.Helper()
			return check.Got(r.kubernetes.AppsV1().Deployments(ours).Get(t.Context(), v1beta1.ControllerName, metav1.GetOptions{}))(t)
		}
		before := deployment().Generation
		r.controller(r.api.Config())
		r.upgrade("up", v1beta1.StorageUpgradeSpec{Image: newImage})
		wait.Until(r, "the end of the upgrade", func() bool { return r.over("up") })
		cluster, err := r.client.HoldfastV1beta1().StorageClusters().Get(t.Context(), "holdfast", metav1.GetOptions{})
		if err != nil || cluster.Spec.Images.Holdfast != newImage {
			t.Fatalf("%+v, %v", cluster.Spec, err)
		}
		r.install(cluster) // as the cluster's own loop goes on
		if d := deployment(); d.Generation != before+1 || render.ImageOf(&d.Spec.Template.Spec) != newImage {
			t.Errorf("it went from generation %d to %d, and runs %s", before, d.Generation, render.ImageOf(&d.Spec.Template.Spec))
		}
	})
}
