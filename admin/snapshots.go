package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

var (
	contents        = schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshotcontents"}
	volumeSnapshots = schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshots"}
)

// DeleteSnapshot removes a snapshot with its data, unless a VolumeSnapshot uses it. A member of a group is removed with
// the whole group.
func (a *Admin) DeleteSnapshot(ctx context.Context, name string, d Deletion) error {
	r, err := a.toDelete(ctx, snapshots, name, d)
	if err != nil {
		return err
	}
	members, err := a.members(ctx, r)
	if err != nil {
		return err
	}
	if err := a.refuseBound(ctx, members); err != nil {
		return err
	}
	var lines []string
	if len(members) > 1 {
		lines = append(lines, fmt.Sprintf("they were taken at one instant and are deleted together: %d snapshots", len(members)))
	}
	lines = append(lines, "a snapshot is removed for good: there is no trash for it")
	if err := a.confirm(ctx, members, lines, d); err != nil {
		return err
	}
	if err := a.refuseBound(ctx, members); err != nil { // one may have been imported while the user was asked
		return err
	}
	if err := a.delete(ctx, snapshots, members, d); err != nil {
		return err
	}
	if err := a.staysGone(ctx, snapshots, members...); err != nil {
		return err
	}
	for _, m := range members {
		a.sayDeleted(m)
	}
	return a.unsaid
}

// members returns all snapshots of the group, the given one first.
func (a *Admin) members(ctx context.Context, r *record) ([]*record, error) {
	all := []*record{r}
	if r.group == nil {
		return all, nil
	}
	list, err := a.Holdfast.HoldfastV1beta1().Snapshots().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("the other snapshots of its group could not be listed: %w", err)
	}
	for i := range list.Items {
		other := recordOf(&list.Items[i])
		if other.uid != r.uid && other.Node == r.Node && other.group != nil && other.group.Name == r.group.Name && slices.Equal(other.group.Volumes, r.group.Volumes) {
			if other.request != nil && !other.requested {
				return nil, fmt.Errorf("%s, of the same group, has a request to delete another object; holdfast snapshots delete %s says what to do", other, other.Name)
			}
			all = append(all, other)
		}
	}
	return all, nil
}

// refuseBound fails for snapshots that a VolumeSnapshot uses.
func (a *Admin) refuseBound(ctx context.Context, members []*record) error {
	if err := a.refuseNamed(ctx, members); err != nil {
		return err
	}
	return a.refuseTaken(ctx, members)
}

// users lists objects that say whether a snapshot is in use. A cluster may not have these kinds.
func (a *Admin) users(ctx context.Context, kind schema.GroupVersionResource, plural string) ([]unstructured.Unstructured, error) {
	list, err := a.Dynamic.Resource(kind).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the %s could not be listed, which say whether the snapshot is in use: %w", plural, err)
	}
	return list.Items, nil
}

// refuseNamed fails for snapshots that the VolumeSnapshotContent of a VolumeSnapshot names.
func (a *Admin) refuseNamed(ctx context.Context, members []*record) error {
	all, err := a.users(ctx, contents, "VolumeSnapshotContents")
	if err != nil {
		return err
	}
	for i := range all {
		o := &all[i]
		named := slices.IndexFunc(members, func(m *record) bool {
			return m.Name == text(o, "status", "snapshotHandle") || m.Name == text(o, "spec", "source", "snapshotHandle")
		})
		if named < 0 || text(o, "spec", "driver") != v1beta1.DriverName {
			continue
		}
		namespace, name, err := a.volumeSnapshot(ctx, o)
		if errors.Is(err, errAwaited) {
			return fmt.Errorf("snapshot %s is that of VolumeSnapshotContent %s, which waits for its VolumeSnapshot: delete that first (kubectl delete volumesnapshotcontent %s)",
				members[named].Name, o.GetName(), o.GetName())
		}
		if err != nil {
			return err
		}
		if name != "" {
			return fmt.Errorf("snapshot %s is that of VolumeSnapshot %s/%s: delete that instead (kubectl delete volumesnapshot -n %s %s)",
				members[named].Name, namespace, name, namespace, name)
		}
	}
	return nil
}

// takenFor is what csi-snapshotter begins the name of a snapshot with, before the UID of its VolumeSnapshot.
const takenFor = "snapshot-"

// refuseTaken fails for snapshots that were taken for an existing VolumeSnapshot. If its content is gone, another one is
// made: with this snapshot, or, without it, with another of what the volume has then.
func (a *Admin) refuseTaken(ctx context.Context, members []*record) error {
	all, err := a.users(ctx, volumeSnapshots, "VolumeSnapshots")
	if err != nil {
		return err
	}
	for i := range all {
		o := &all[i]
		taken := slices.IndexFunc(members, func(m *record) bool { return m.CSIName == takenFor+string(o.GetUID()) })
		if taken >= 0 {
			return fmt.Errorf("snapshot %s was taken for VolumeSnapshot %s/%s, whose VolumeSnapshotContent is gone or incomplete: the snapshot controller makes it again. "+
				"If the snapshot is not needed, delete the VolumeSnapshot first (kubectl delete volumesnapshot -n %s %s)",
				members[taken].Name, o.GetNamespace(), o.GetName(), o.GetNamespace(), o.GetName())
		}
	}
	return nil
}

// errAwaited means that the VolumeSnapshot of a content is to be created yet.
var errAwaited = errors.New("waits for its VolumeSnapshot")

// volumeSnapshot returns the VolumeSnapshot of a content; an empty name if it does not exist any more, or has another
// UID. A content without a UID was never bound.
func (a *Admin) volumeSnapshot(ctx context.Context, content *unstructured.Unstructured) (namespace, name string, err error) {
	namespace, name = text(content, "spec", "volumeSnapshotRef", "namespace"), text(content, "spec", "volumeSnapshotRef", "name")
	uid := text(content, "spec", "volumeSnapshotRef", "uid")
	o, err := a.Dynamic.Resource(volumeSnapshots).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && uid == "":
		return "", "", errAwaited
	case apierrors.IsNotFound(err):
		return "", "", nil
	case err != nil:
		return "", "", fmt.Errorf("VolumeSnapshot %s/%s could not be read: %w", namespace, name, err)
	case uid != "" && uid != string(o.GetUID()):
		return "", "", nil
	}
	return namespace, name, nil
}

func text(o *unstructured.Unstructured, path ...string) string {
	value, _, _ := unstructured.NestedString(o.Object, path...)
	return value
}
