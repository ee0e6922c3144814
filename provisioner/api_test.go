package provisioner

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// patience of a test, which is long since the machine may be busy.
const patience = 2 * time.Minute

// api is an API server with what binds claims to volumes, as its users see it.
type api struct {
	t         *testing.T
	client    kubernetes.Interface
	config    *rest.Config // nil of one in memory
	namespace string
}

// eachAPI runs a test on an API server in memory, and on a real one if there is one.
func eachAPI(t *testing.T, test func(t *testing.T, a *api)) {
	t.Run("in memory", func(t *testing.T) { test(t, inMemory(t)) })
	t.Run("real", func(t *testing.T) { test(t, realServer(t)) })
}

func realServer(t *testing.T) *api {
	t.Helper()
	config := realapi.Config(t)
	a := &api{t: t, config: config, client: kubernetes.NewForConfigOrDie(config), namespace: "prov-" + rand.String(5)}
	check.Got(a.client.CoreV1().Namespaces().Create(t.Context(), &core.Namespace{ObjectMeta: metav1.ObjectMeta{Name: a.namespace}}, metav1.CreateOptions{}))(t)
	t.Cleanup(func() {
		check.Report(t, a.client.CoreV1().Namespaces().Delete(context.Background(), a.namespace, metav1.DeleteOptions{}))
	})
	return a
}

func (a *api) class(provisioner string, parameters map[string]string, change ...func(*storage.StorageClass)) string {
	a.t.Helper()
	c := &storage.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "class-" + rand.String(8)}, Provisioner: provisioner, Parameters: parameters}
	for _, f := range change {
		f(c)
	}
	check.Got(a.client.StorageV1().StorageClasses().Create(a.t.Context(), c, metav1.CreateOptions{}))(a.t)
	a.t.Cleanup(func() { a.cleanUp(provisioner, c.Name) })
	return c.Name
}

// cleanUp leaves nothing, whatever the test did.
func (a *api) cleanUp(provisioner, class string) {
	ctx := context.Background()
	if err := a.client.StorageV1().StorageClasses().Delete(ctx, class, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		a.t.Error(err)
	}
	check.Report(a.t, a.client.CoreV1().PersistentVolumeClaims(a.namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	volumes := a.client.CoreV1().PersistentVolumes()
	all, err := volumes.List(ctx, metav1.ListOptions{})
	if err != nil {
		a.t.Error(err)
		return
	}
	for _, v := range all.Items {
		if v.Annotations[v1beta1.ProvisionedByAnnotation] != provisioner {
			continue
		}
		_, err := volumes.Patch(ctx, v.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		if err == nil {
			err = volumes.Delete(ctx, v.Name, metav1.DeleteOptions{})
		}
		if err != nil && !apierrors.IsNotFound(err) {
			a.t.Error(err)
		}
	}
}

// claim asks for a volume. On a real server, what its controllers do first is done by them.
func (a *api) claim(name, class, provisioner string) *core.PersistentVolumeClaim {
	a.t.Helper()
	c := &core.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: name},
		Spec: core.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []core.PersistentVolumeAccessMode{core.ReadWriteMany},
			Resources: core.VolumeResourceRequirements{Requests: core.ResourceList{core.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	if a.config == nil {
		c.UID, c.Annotations = uuid.NewUUID(), map[string]string{wantedOf: provisioner}
	}
	c = check.Got(a.client.CoreV1().PersistentVolumeClaims(a.namespace).Create(a.t.Context(), c, metav1.CreateOptions{}))(a.t)
	return c
}

func (a *api) deleteClaim(name string) {
	a.t.Helper()
	check.OK(a.t, a.client.CoreV1().PersistentVolumeClaims(a.namespace).Delete(a.t.Context(), name, metav1.DeleteOptions{}))
}

func (a *api) isBound(name string) bool {
	c, err := a.client.CoreV1().PersistentVolumeClaims(a.namespace).Get(a.t.Context(), name, metav1.GetOptions{})
	return err == nil && c.Spec.VolumeName != "" && c.Status.Phase == core.ClaimBound
}

// bound waits for the PersistentVolume of a claim.
func (a *api) bound(name string) *core.PersistentVolume {
	a.t.Helper()
	wait.Until(a.t, "claim "+name+" is bound", func() bool { return a.isBound(name) })
	c := check.Got(a.client.CoreV1().PersistentVolumeClaims(a.namespace).Get(a.t.Context(), name, metav1.GetOptions{}))(a.t)
	pv := check.Got(a.client.CoreV1().PersistentVolumes().Get(a.t.Context(), c.Spec.VolumeName, metav1.GetOptions{}))(a.t)
	return pv
}

func (a *api) persistentVolumes(provisioner string) (found []core.PersistentVolume) {
	all, err := a.client.CoreV1().PersistentVolumes().List(a.t.Context(), metav1.ListOptions{})
	if err != nil {
		return []core.PersistentVolume{{}} // not known to be none
	}
	for _, v := range all.Items {
		if v.Annotations[v1beta1.ProvisionedByAnnotation] == provisioner {
			found = append(found, v)
		}
	}
	return found
}

// nothingLeft waits until there is no PersistentVolume, no volume and nothing that was begun.
func (a *api) nothingLeft(s *server) {
	a.t.Helper()
	wait.Until(a.t, "nothing is left", func() bool {
		return len(a.persistentVolumes(s.config.Name)) == 0 && len(s.disk.volumes()) == 0 && len(s.running.journal.all()) == 0
	})
}

// inMemory has a binder that does what Kubernetes does: a volume made for a claim is bound to it, and released when
// the claim goes or has another.
func inMemory(t *testing.T) *api {
	client := fake.NewClientset()
	a := &api{t: t, client: client, namespace: "default"}
	claims := check.Got(client.CoreV1().PersistentVolumeClaims("").Watch(t.Context(), metav1.ListOptions{}))(t)
	volumes := check.Got(client.CoreV1().PersistentVolumes().Watch(t.Context(), metav1.ListOptions{}))(t)
	var binding sync.WaitGroup
	t.Cleanup(func() { claims.Stop(); volumes.Stop(); binding.Wait() })
	binding.Go(func() {
		for e := range volumes.ResultChan() {
			if v, ok := e.Object.(*core.PersistentVolume); ok && e.Type == watch.Added {
				a.bind(v)
			}
		}
	})
	binding.Go(func() {
		for e := range claims.ResultChan() {
			if c, ok := e.Object.(*core.PersistentVolumeClaim); ok && e.Type == watch.Deleted && c.Spec.VolumeName != "" {
				a.phase(c.Spec.VolumeName, core.VolumeReleased)
			}
		}
	})
	return a
}

func (a *api) bind(v *core.PersistentVolume) {
	ctx, claims := context.Background(), a.client.CoreV1().PersistentVolumeClaims(v.Spec.ClaimRef.Namespace)
	c, err := claims.Get(ctx, v.Spec.ClaimRef.Name, metav1.GetOptions{})
	if err != nil || c.UID != v.Spec.ClaimRef.UID || c.Spec.VolumeName != "" && c.Spec.VolumeName != v.Name {
		a.phase(v.Name, core.VolumeReleased)
		return
	}
	// The volume first: a claim that is bound may be deleted, and then its volume is released.
	a.phase(v.Name, core.VolumeBound)
	c = c.DeepCopy()
	c.Spec.VolumeName, c.Status.Phase = v.Name, core.ClaimBound
	if _, err := claims.Update(ctx, c, metav1.UpdateOptions{}); err != nil {
		a.phase(v.Name, core.VolumeReleased)
	}
}

func (a *api) phase(name string, phase core.PersistentVolumePhase) {
	patch := fmt.Appendf(nil, `{"status":{"phase":%q}}`, phase)
	_, err := a.client.CoreV1().PersistentVolumes().Patch(context.Background(), name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		a.t.Error(err)
	}
}
