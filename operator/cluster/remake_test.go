package cluster

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// withoutDeployment takes the controller's Deployment away.
func (r *rig) withoutDeployment() {
	r.Helper()
	check.OK(r, r.theirs.AppsV1().Deployments(namespace).Delete(r.Context(), v1beta1.ControllerName, metav1.DeleteOptions{}))
}

func (r *rig) hasDeployment() bool {
	d, err := r.theirs.AppsV1().Deployments(namespace).Get(context.Background(), v1beta1.ControllerName, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		r.Error(err)
	}
	return err == nil && d.DeletionTimestamp == nil
}

// As helm uninstall and kubectl delete -f do.
func TestRemake_AWorkloadThatIsDeletedWithItsAccountStaysAway(t *testing.T) {
	r := newRig(t).start()
	r.create("holdfast", nil)
	wait.Until(r, "the Deployment", r.hasDeployment)
	r.withoutDeployment()
	wait.Until(r, "the Deployment being made again", r.hasDeployment)

	accounts := r.theirs.CoreV1().ServiceAccounts(namespace)
	account := check.Got(accounts.Get(t.Context(), v1beta1.ControllerName, metav1.GetOptions{}))(t)
	check.OK(t, accounts.Delete(t.Context(), v1beta1.ControllerName, metav1.DeleteOptions{}))
	r.withoutDeployment()
	wait.Until(r, "the end of the Deployment", func() bool { return !r.hasDeployment() })
	wait.Never(r, "a Deployment without its account", 2*time.Second, r.hasDeployment)

	account.ResourceVersion, account.UID = "", ""
	check.Got(accounts.Create(t.Context(), account, metav1.CreateOptions{}))(t)
	wait.Until(r, "the Deployment with its account", r.hasDeployment)
}

func TestRemake_AWorkloadThatIsDeletedIsMadeAgainByTheProcessThatEndsWithIt(t *testing.T) {
	hostfs.NotInGate(t, "must see a state that lasts seconds")
	r := newRig(t)
	r.remakeAfter = 5 * time.Second
	r.start()
	r.create("holdfast", nil)
	wait.Until(r, "the operator knowing of the Deployment", func() bool { return r.hasDeployment() && r.set.Get(controllerRefs(namespace)[0]) != nil })
	r.withoutDeployment()
	wait.Until(r, "the operator knowing of its end", func() bool { return r.set.Get(controllerRefs(namespace)[0]) == nil })
	wait.Never(r, "a Deployment before the time is over", 2*time.Second, r.hasDeployment)
	r.stop()
	if !r.hasDeployment() {
		t.Error("the process ended without making it again: no other process does")
	}
}

func TestRemake_AProcessThatEndsMakesNothingOfAClusterThatIsGone(t *testing.T) {
	r := newRig(t)
	r.remakeAfter = 5 * time.Second
	r.start()
	c := r.create("holdfast", nil)
	wait.Until(r, "the operator knowing of the Deployment", func() bool { return r.hasDeployment() && r.set.Get(controllerRefs(namespace)[0]) != nil })
	check.OK(t, r.ours.HoldfastV1beta1().StorageClusters().Delete(t.Context(), c.Name, metav1.DeleteOptions{}))
	wait.Until(r, "the end of the StorageCluster", func() bool {
		_, err := r.ours.HoldfastV1beta1().StorageClusters().Get(context.Background(), c.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	wait.Until(r, "the end of the Deployment", func() bool { return !r.hasDeployment() })
	r.stop()
	if r.hasDeployment() {
		t.Error("it made its Deployment again")
	}
}
