// Package snapshots installs the CRDs of snapshots, which belong to no driver, in a cluster that has none, and removes
// them again when there is no snapshot.
package snapshots

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/deploy"
	"github.com/holdfast-storage/holdfast/kube"
)

// Annotation is on the kind VolumeSnapshot if Holdfast installed it. Without it the kinds and their controller belong
// to others.
const Annotation = v1beta1.GroupName + "/brought"

const volumeSnapshots = "volumesnapshots.snapshot.storage.k8s.io"

const fieldManager = "holdfast-snapshots"

// Kinds are those of snapshots, alone and in groups.
type Kinds struct {
	client dynamic.Interface
	log    *slog.Logger
	looked atomic.Bool
	ours   atomic.Bool
}

// New sends no requests.
func New(client dynamic.Interface, log *slog.Logger) *Kinds { return &Kinds{client: client, log: log} }

// Looked says whether Bring or Remove has found out who installed the kinds.
func (k *Kinds) Looked() bool { return k.looked.Load() }

// Ours says whether Holdfast installed the kinds, so that it must install their controller as well.
func (k *Kinds) Ours() bool { return k.ours.Load() }

// Bring installs the kinds if none of them exists, and updates those that it installed to this release.
func (k *Kinds) Bring(ctx context.Context) error {
	wanted, ours, missing, err := k.look(ctx)
	if err != nil || !ours && !missing {
		return err
	}
	for _, d := range wanted {
		if d.GetName() == volumeSnapshots {
			annotations := d.GetAnnotations()
			annotations[Annotation] = "true"
			d.SetAnnotations(annotations)
		}
		if _, err := k.client.Resource(kube.Definitions).Apply(ctx, d.GetName(), d, metav1.ApplyOptions{FieldManager: fieldManager, Force: true}); err != nil {
			return fmt.Errorf("installing kind %s: %w", d.GetName(), err)
		}
	}
	if missing {
		k.log.Info("installed the kinds of snapshots; the cluster had none")
	}
	k.ours.Store(true)
	return nil
}

// look returns the definitions of the kinds, and says whether Holdfast installed them, or all are missing.
func (k *Kinds) look(ctx context.Context) (wanted []*unstructured.Unstructured, ours, missing bool, err error) {
	wanted, missing = deploy.SnapshotDefinitions(), true
	for _, d := range wanted {
		is, err := k.client.Resource(kube.Definitions).Get(ctx, d.GetName(), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return nil, false, false, fmt.Errorf("kind %s: %w", d.GetName(), err)
		}
		missing = false
		ours = ours || d.GetName() == volumeSnapshots && is.GetAnnotations()[Annotation] != ""
	}
	k.looked.Store(true)
	k.ours.Store(ours)
	return wanted, ours, missing, nil
}

// Remove removes the installed kinds, unless an object of one exists, which would be deleted with its snapshot. It
// returns the kind of that object.
func (k *Kinds) Remove(ctx context.Context) (kept string, err error) {
	wanted, ours, _, err := k.look(ctx)
	if err != nil || !ours {
		return "", err
	}
	for _, d := range wanted {
		left, err := k.client.Resource(resourceOf(d)).List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil && !apierrors.IsNotFound(err) {
			return "", fmt.Errorf("whether there are objects of kind %s: %w", d.GetName(), err)
		}
		if err == nil && len(left.Items) > 0 {
			return d.GetName(), nil
		}
	}
	for _, d := range wanted {
		if err := k.client.Resource(kube.Definitions).Delete(ctx, d.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return "", fmt.Errorf("removing kind %s: %w", d.GetName(), err)
		}
	}
	k.ours.Store(false)
	return "", nil
}

// resourceOf is what the API server stores of a kind.
func resourceOf(d *unstructured.Unstructured) schema.GroupVersionResource {
	group, _, _ := unstructured.NestedString(d.Object, "spec", "group")
	resource, _, _ := unstructured.NestedString(d.Object, "spec", "names", "plural")
	versions, _, _ := unstructured.NestedSlice(d.Object, "spec", "versions")
	for _, v := range versions {
		if version, _ := v.(map[string]any); version["storage"] == true {
			name, _ := version["name"].(string)
			return schema.GroupVersionResource{Group: group, Version: name, Resource: resource}
		}
	}
	return schema.GroupVersionResource{Group: group, Resource: resource}
}

// Await returns when the kinds exist, regardless of who installed them. Bring creates VolumeSnapshot last.
func Await(ctx context.Context, client dynamic.Interface) error {
	all := client.Resource(kube.Definitions)
	one := fields.OneTermEqualSelector(metav1.ObjectNameField, volumeSnapshots).String()
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = one
			return all.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = one
			return all.Watch(ctx, o)
		},
	}
	_, err := watchtools.UntilWithSync(ctx, cache.ToListWatcherWithWatchListSemantics(source, client), &unstructured.Unstructured{}, nil, func(e watch.Event) (bool, error) {
		return e.Type != watch.Deleted, nil
	})
	return err
}
