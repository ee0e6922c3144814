package admin

import (
	"context"
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
	return a.delete(ctx, snapshots, members, lines, d)
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
		if other.UID != r.UID && other.node == r.node && other.group != nil && other.group.Name == r.group.Name && slices.Equal(other.group.Volumes, r.group.Volumes) {
			if other.request != nil && !other.requested {
				return nil, fmt.Errorf("%s, of the same group, has a request to delete another object; holdfast snapshots delete %s says what to do", other, other.Name)
			}
			all = append(all, other)
		}
	}
	return all, nil
}

// refuseBound fails for snapshots that a VolumeSnapshot uses. A cluster may not have these kinds.
func (a *Admin) refuseBound(ctx context.Context, members []*record) error {
	list, err := a.Dynamic.Resource(contents).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("the VolumeSnapshotContents could not be listed, which say whether the snapshot is in use: %w", err)
	}
	for i := range list.Items {
		o := &list.Items[i]
		named := slices.IndexFunc(members, func(m *record) bool {
			return m.Name == text(o, "status", "snapshotHandle") || m.Name == text(o, "spec", "source", "snapshotHandle")
		})
		if named < 0 || text(o, "spec", "driver") != v1beta1.DriverName {
			continue
		}
		namespace, name, err := a.volumeSnapshot(ctx, o)
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

// volumeSnapshot returns the VolumeSnapshot of a content; an empty name if it does not exist, or has another UID.
func (a *Admin) volumeSnapshot(ctx context.Context, content *unstructured.Unstructured) (namespace, name string, err error) {
	namespace, name = text(content, "spec", "volumeSnapshotRef", "namespace"), text(content, "spec", "volumeSnapshotRef", "name")
	o, err := a.Dynamic.Resource(volumeSnapshots).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", "", nil
	}
	if err != nil {
		return "", "", fmt.Errorf("VolumeSnapshot %s/%s could not be read: %w", namespace, name, err)
	}
	if uid := text(content, "spec", "volumeSnapshotRef", "uid"); uid != "" && uid != string(o.GetUID()) {
		return "", "", nil
	}
	return namespace, name, nil
}

func text(o *unstructured.Unstructured, path ...string) string {
	value, _, _ := unstructured.NestedString(o.Object, path...)
	return value
}
