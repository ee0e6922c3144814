package volume

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend/cluster"
	"github.com/holdfast-storage/holdfast/kube"
)

// A claim keeps its volume until it ends. So the claim of a volume that is given up is deleted and, when its last pod
// is gone, recreated as it was: it then gets a new, empty volume where its next pod can run.
//
// Until then the volume's object keeps the claim in an annotation, and a finalizer of its own keeps the object: the
// claim is recreated even after a crash in between, and whether or not the node returns.
const (
	renewalAnnotation = "holdfast.dev/renew-claim"
	renewalFinalizer  = "holdfast.dev/renew-claim"
)

// bindingAnnotations are what a claim got with its volume.
var bindingAnnotations = []string{
	"pv.kubernetes.io/bind-completed", "pv.kubernetes.io/bound-by-controller",
	"volume.kubernetes.io/selected-node", "volume.kubernetes.io/storage-resizer",
	"volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner",
}

// renewals are the claims whose end is waited for.
type renewals struct {
	mu    sync.Mutex
	nodes map[string]string // of their volumes, by namespace/name
}

func (r *renewals) await(claim, node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.nodes == nil {
		r.nodes = map[string]string{}
	}
	r.nodes[claim] = node
}

// awaited are the nodes of all claims whose end is waited for.
func (r *renewals) awaited() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.nodes))
}

// ended returns the node of a claim's volume, if the claim's end was waited for.
func (r *renewals) ended(claim string) (node string, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	node, ok = r.nodes[claim]
	delete(r.nodes, claim)
	return node, ok
}

// keepClaim writes on a volume the claim that is to be made again, and returns the volume as it is then. It is
// unchanged where there is no such claim.
func (l *leader) keepClaim(ctx context.Context, v *v1beta1.Volume) (*v1beta1.Volume, error) {
	name := v.Spec.Labels[v1beta1.ClaimNameLabel]
	if name == "" || v.Annotations[renewalAnnotation] != "" {
		return v, nil
	}
	claim, err := l.Kubernetes.CoreV1().PersistentVolumeClaims(v.Spec.Labels[v1beta1.ClaimNamespaceLabel]).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return v, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the claim of volume %s: %w", v.Name, err)
	}
	if !renewable(claim, v) {
		return v, nil
	}
	data, err := json.Marshal(again(claim))
	if err != nil {
		return nil, err
	}
	return l.PatchVolume(ctx, v, map[string]any{"metadata": map[string]any{
		"annotations": map[string]any{renewalAnnotation: string(data)},
		"finalizers":  append(slices.Clone(v.Finalizers), renewalFinalizer),
	}})
}

// renewable leaves alone a claim that has another volume, that its user has deleted, or that ends with its pod.
func renewable(claim *core.PersistentVolumeClaim, v *v1beta1.Volume) bool {
	owner := metav1.GetControllerOf(claim)
	return claim.DeletionTimestamp == nil && claim.Spec.VolumeName != "" && claim.Spec.VolumeName == v.Spec.Labels[v1beta1.PersistentVolumeLabel] &&
		(owner == nil || owner.Kind != "Pod")
}

// again is a claim without its volume and content. Its UID is still that of the old one.
func again(claim *core.PersistentVolumeClaim) *core.PersistentVolumeClaim {
	next := &core.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: claim.Name, Namespace: claim.Namespace, UID: claim.UID, Labels: claim.Labels,
			Annotations: maps.Clone(claim.Annotations), OwnerReferences: claim.OwnerReferences,
		},
		Spec: *claim.Spec.DeepCopy(),
	}
	for _, key := range bindingAnnotations {
		delete(next.Annotations, key)
	}
	next.Spec.VolumeName, next.Spec.DataSource, next.Spec.DataSourceRef = "", nil, nil
	return next
}

// renewClaims goes on with the claims of the volumes of one node, also when the node is back.
func (l *leader) renewClaims(ctx context.Context, node string) error {
	var errs []error
	for _, v := range l.VolumesOn(node) {
		switch {
		case v.Annotations[renewalAnnotation] == "":
		case v.DeletionTimestamp != nil && v.DeletionRequested():
			errs = append(errs, l.renewClaim(ctx, v))
		case v.DeletionTimestamp != nil, l.WhyDown(node) == "": // it was not given up, or came back just before
			errs = append(errs, l.renewed(ctx, v))
		}
	}
	return errors.Join(errs...)
}

// renewClaim deletes the old claim, or makes the new one where the old one has ended. In between, its end wakes the
// leader.
func (l *leader) renewClaim(ctx context.Context, v *v1beta1.Volume) error {
	var next core.PersistentVolumeClaim
	if err := json.Unmarshal([]byte(v.Annotations[renewalAnnotation]), &next); err != nil {
		return fmt.Errorf("volume %s: annotation %s must hold a claim; remove it and the finalizer %s: %w", v.Name, renewalAnnotation, renewalFinalizer, err)
	}
	claims := l.Kubernetes.CoreV1().PersistentVolumeClaims(next.Namespace)
	l.renewals.await(next.Namespace+"/"+next.Name, v.Spec.Node)
	now, err := claims.Get(ctx, next.Name, metav1.GetOptions{})
	if err == nil && now.UID == next.UID && now.DeletionTimestamp == nil {
		err = claims.Delete(ctx, next.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &next.UID}})
		if err == nil {
			now, err = claims.Get(ctx, next.Name, metav1.GetOptions{})
		}
	}
	switch {
	case apierrors.IsNotFound(err):
		err = l.makeClaim(ctx, v, &next)
	case err == nil && now.UID == next.UID:
		return nil // its pods are still there
	}
	if err != nil {
		return fmt.Errorf("the claim %s/%s of volume %s, which was given up: %w", next.Namespace, next.Name, v.Name, err)
	}
	l.renewals.ended(next.Namespace + "/" + next.Name)
	return l.renewed(ctx, v)
}

// makeClaim creates the new claim, unless another controller has, such as its StatefulSet, or its namespace is being
// deleted.
func (l *leader) makeClaim(ctx context.Context, v *v1beta1.Volume, next *core.PersistentVolumeClaim) error {
	next.UID = ""
	made, err := l.Kubernetes.CoreV1().PersistentVolumeClaims(next.Namespace).Create(ctx, next, metav1.CreateOptions{FieldManager: cluster.FieldManager})
	switch {
	case apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err), apierrors.HasStatusCause(err, core.NamespaceTerminatingCause):
		return nil
	case err != nil:
		return err
	}
	l.Log.Warn("recreated a claim whose volume was given up", "claim", v.Spec.ClaimRef.String(), "volume", v.Name, "node", v.Spec.Node)
	l.warnf(made, "VolumeReplaced", "volume %s was given up because its node %s is gone and onNodeLoss is Delete; this claim was recreated and gets a new, empty volume",
		v.Name, v.Spec.Node)
	return nil
}

// renewed takes from a volume what kept it for its claim.
func (l *leader) renewed(ctx context.Context, v *v1beta1.Volume) error {
	_, err := l.PatchVolume(ctx, v, map[string]any{"metadata": map[string]any{
		"annotations": map[string]any{renewalAnnotation: nil},
		"finalizers":  slices.DeleteFunc(slices.Clone(v.Finalizers), func(f string) bool { return f == renewalFinalizer }),
	}})
	return kube.IgnoreNotFound(err)
}
