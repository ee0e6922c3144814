package kube

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

const snapshotClass = "holdfast"

var groupSnapshots = schema.GroupVersionResource{Group: "groupsnapshot.storage.k8s.io", Version: "v1", Resource: "volumegroupsnapshots"}

// Snapshot makes a snapshot of a claim's volume and waits until it can be used.
func (s *Space) Snapshot(name, claim string) {
	s.t.Helper()
	s.take(snapshots, NewSnapshot(name, claim))
}

// SnapshotGroup makes a snapshot at one instant of all claims with a label, and returns the snapshot of each claim.
func (s *Space) SnapshotGroup(name, key, value string) map[string]string {
	s.t.Helper()
	s.t.Cleanup(func() { s.removeGroup(name) })
	s.take(groupSnapshots, newSnapshot(groupSnapshots, name, map[string]any{
		"volumeGroupSnapshotClassName": snapshotClass,
		"source":                       map[string]any{"selector": map[string]any{"matchLabels": map[string]any{key: value}}},
	}))
	all := check.Got(s.Snapshots().List(s.t.Context(), metav1.ListOptions{}))(s.t)
	members := map[string]string{}
	for _, member := range all.Items {
		claim, _, _ := unstructured.NestedString(member.Object, "spec", "source", "persistentVolumeClaimName")
		if slices.ContainsFunc(member.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return o.Name == name }) {
			members[claim] = member.GetName()
		}
	}
	return members
}

// NewSnapshot is a snapshot of a claim's volume that is to be made.
func NewSnapshot(name, claim string) *unstructured.Unstructured {
	return newSnapshot(snapshots, name, map[string]any{
		"volumeSnapshotClassName": snapshotClass, "source": map[string]any{"persistentVolumeClaimName": claim},
	})
}

func newSnapshot(kind schema.GroupVersionResource, name string, spec map[string]any) *unstructured.Unstructured {
	names := map[schema.GroupVersionResource]string{snapshots: "VolumeSnapshot", groupSnapshots: "VolumeGroupSnapshot"}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": kind.GroupVersion().String(), "kind": names[kind], "metadata": map[string]any{"name": name}, "spec": spec,
	}}
}

// IsUsable says whether a snapshot can be restored.
func IsUsable(snapshot *unstructured.Unstructured) (bool, error) {
	ready, _, err := unstructured.NestedBool(snapshot.Object, "status", "readyToUse")
	return ready, err
}

// Snapshots is a client of the snapshots in the test's namespace.
func (s *Space) Snapshots() dynamic.ResourceInterface {
	return s.Dynamic.Resource(snapshots).Namespace(s.Namespace)
}

// SnapshotContents is a client of what the snapshots of all namespaces are bound to.
func (c *Cluster) SnapshotContents() dynamic.ResourceInterface {
	return c.Dynamic.Resource(snapshotContents)
}

func (s *Space) take(kind schema.GroupVersionResource, object *unstructured.Unstructured) {
	s.t.Helper()
	source, name := s.Dynamic.Resource(kind).Namespace(s.Namespace), object.GetName()
	check.Got(source.Create(s.t.Context(), object, metav1.CreateOptions{}))(s.t)
	AwaitOne(s, source, name, "to be usable", IsUsable)
}

// removeGroup deletes a group snapshot, whose members cannot be deleted before it, and waits for its end.
func (s *Space) removeGroup(name string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.t.Context()), Patience)
	defer cancel()
	groups := s.Dynamic.Resource(groupSnapshots).Namespace(s.Namespace)
	err := groups.Delete(ctx, name, metav1.DeleteOptions{})
	if err == nil {
		err = ended(ctx, s.Cluster, groups, Named(name), every)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		s.t.Errorf("group snapshot %s: %v", name, err)
	}
}

// From makes a claim begin with the content of a VolumeSnapshot or of another claim.
func From(kind, name string) ClaimOption {
	source := &corev1.TypedLocalObjectReference{Kind: kind, Name: name}
	if kind == "VolumeSnapshot" {
		source.APIGroup = &snapshots.Group
	}
	return func(c *corev1.PersistentVolumeClaim) { c.Spec.DataSource = source }
}

// Labelled gives a claim a label.
func Labelled(key, value string) ClaimOption {
	return func(c *corev1.PersistentVolumeClaim) { metav1.SetMetaDataLabel(&c.ObjectMeta, key, value) }
}

// AccessMode asks for another access mode than ReadWriteOnce.
func AccessMode(mode corev1.PersistentVolumeAccessMode) ClaimOption {
	return func(c *corev1.PersistentVolumeClaim) {
		c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{mode}
	}
}

// Grow requests more and waits until the claim has it.
func (s *Space) Grow(claim, size string) {
	s.t.Helper()
	s.Request(claim, size)
	s.Grown(claim, size)
}

// Request requests more for a claim.
func (s *Space) Request(claim, size string) {
	s.t.Helper()
	patch := `{"spec":{"resources":{"requests":{"storage":"` + size + `"}}}}`
	claims := s.Client.CoreV1().PersistentVolumeClaims(s.Namespace)
	check.Got(claims.Patch(s.t.Context(), claim, types.MergePatchType, []byte(patch), metav1.PatchOptions{}))(s.t)
}

// Grown waits until a claim has what was requested for it. Where its volume is in no use, a pod has to use it first.
func (s *Space) Grown(claim, size string) {
	s.t.Helper()
	want := resource.MustParse(size)
	AwaitOne(s, s.Client.CoreV1().PersistentVolumeClaims(s.Namespace), claim, "to have "+size, func(c *corev1.PersistentVolumeClaim) (bool, error) {
		return c.Status.Capacity.Storage().Cmp(want) >= 0, nil
	})
}
