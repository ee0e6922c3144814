package definitions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
)

// keptName is the name of the ConfigMap that holds objects while their kind is recreated.
const keptName = "holdfast-returning"

// keep stores an object in the ConfigMap. It is idempotent: an earlier version stays.
func (r *Controller) keep(ctx context.Context, o *unstructured.Unstructured) error {
	key := strings.Trim(resourceOf(plurals[o.GetKind()])+"."+o.GetNamespace(), ".") + "." + o.GetName()
	text, err := json.Marshal(again(o))
	if err != nil {
		return err
	}
	configs := r.Kubernetes.CoreV1().ConfigMaps(r.Namespace)
	kept, err := configs.Get(ctx, keptName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = configs.Create(ctx, &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: keptName}, Data: map[string]string{key: string(text)}},
			metav1.CreateOptions{FieldManager: apply.FieldManager})
	case err == nil && kept.Data[key] == "":
		err = r.patchKept(ctx, map[string]any{key: string(text)})
	}
	if err != nil {
		return fmt.Errorf("recording %s %s, to recreate it: %w", o.GetKind(), o.GetName(), err)
	}
	return nil
}

// again returns an object as it is recreated: the spec without the status, and without the pause of an upgrade, which is
// gone.
func again(o *unstructured.Unstructured) map[string]any {
	made := &unstructured.Unstructured{Object: map[string]any{"apiVersion": o.GetAPIVersion(), "kind": o.GetKind()}}
	made.SetName(o.GetName())
	made.SetNamespace(o.GetNamespace())
	made.SetLabels(o.GetLabels())
	annotations := o.GetAnnotations()
	if spec, has, _ := unstructured.NestedMap(o.Object, "spec"); has {
		if _, paused := annotations[v1beta1.PausedByAnnotation]; paused {
			delete(spec, "paused")
			delete(annotations, v1beta1.PausedByAnnotation)
		}
		made.Object["spec"] = spec
	}
	made.SetAnnotations(annotations)
	return made.Object
}

func (r *Controller) patchKept(ctx context.Context, data map[string]any) error {
	_, err := kube.MergePatch(ctx, r.Kubernetes.CoreV1().ConfigMaps(r.Namespace).Patch, keptName, map[string]any{"data": data}, apply.FieldManager)
	return err
}

// restore recreates the stored objects of a kind.
func (r *Controller) restore(ctx context.Context, name string) error {
	if name != storageClusters && name != nfsServers {
		return nil
	}
	kept, err := r.Kubernetes.CoreV1().ConfigMaps(r.Namespace).Get(ctx, keptName, metav1.GetOptions{})
	if kube.IgnoreGone(err) != nil {
		return err
	}
	if err == nil {
		if err := r.restoreAll(ctx, name, kept.Data); err != nil {
			return err
		}
	}
	if name == storageClusters && r.First != nil {
		return r.First(ctx)
	}
	return nil
}

func (r *Controller) restoreAll(ctx context.Context, name string, data map[string]string) error {
	var failed []error
	for _, key := range slices.Sorted(maps.Keys(data)) {
		if strings.HasPrefix(key, resourceOf(name)+".") {
			failed = append(failed, r.restoreOne(ctx, name, key, data[key]))
		}
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	kept, err := r.Kubernetes.CoreV1().ConfigMaps(r.Namespace).Get(ctx, keptName, metav1.GetOptions{})
	if err != nil || len(kept.Data) > 0 {
		return kube.IgnoreGone(err)
	}
	return kube.IgnoreGone(r.Kubernetes.CoreV1().ConfigMaps(r.Namespace).Delete(ctx, keptName, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &kept.UID, ResourceVersion: &kept.ResourceVersion},
	}))
}

// restoreOne recreates one object unless it exists by now, and then removes it from the ConfigMap. An object of a
// deleted namespace is dropped.
func (r *Controller) restoreOne(ctx context.Context, name, key, text string) error {
	o := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(text), &o.Object); err != nil {
		return fmt.Errorf("%s in ConfigMap %s: %w", key, keptName, err)
	}
	kind := r.Dynamic.Resource(v1beta1.SchemeGroupVersion.WithResource(resourceOf(name)))
	_, err := kind.Namespace(o.GetNamespace()).Create(ctx, o, metav1.CreateOptions{FieldManager: "holdfast-install"})
	switch {
	case err == nil:
		r.Log.Warn("recreated with its kind", "kind", o.GetKind(), "namespace", o.GetNamespace(), "name", o.GetName())
	case apierrors.IsNotFound(err) && r.isGone(ctx, o.GetNamespace()):
		r.Log.Warn("not recreated, since its namespace is gone", "kind", o.GetKind(), "namespace", o.GetNamespace(), "name", o.GetName())
	case !apierrors.IsAlreadyExists(err):
		return fmt.Errorf("recreating %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return r.patchKept(ctx, map[string]any{key: nil})
}

// isGone says whether a namespace certainly does not exist: a create is answered with NotFound also while its kind is not
// served yet.
func (r *Controller) isGone(ctx context.Context, namespace string) bool {
	if namespace == "" { // of a StorageCluster
		return false
	}
	_, err := r.Kubernetes.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	return apierrors.IsNotFound(err)
}

// Restore recreates the objects that another process has stored. It must run before others are created in their place.
func (r *Controller) Restore(ctx context.Context) error {
	kept, err := r.Kubernetes.CoreV1().ConfigMaps(r.Namespace).Get(ctx, keptName, metav1.GetOptions{})
	if err != nil {
		return kube.IgnoreGone(err)
	}
	return r.restoreAll(ctx, storageClusters, kept.Data)
}
