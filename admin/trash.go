package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// trashShown is the maximum number of entries that a StorageNode lists.
const trashShown = 100

func trashed(n *v1beta1.StorageNode, name string) *v1beta1.TrashedVolume {
	return v1beta1.Find(n.Status.Trash, func(t v1beta1.TrashedVolume) bool { return t.Name == name })
}

func restoring(n *v1beta1.StorageNode, name string) *v1beta1.RestoreRequest {
	return v1beta1.Find(n.Spec.Restore, func(r v1beta1.RestoreRequest) bool { return r.Name == name })
}

// errUnlisted means that a trash has more than its StorageNode lists, and may have the volume.
var errUnlisted = errors.New("is listed by no trash")

// whereTrashed returns the node that has a volume in its trash or has a request to restore it; nil if there is none.
func (a *Admin) whereTrashed(ctx context.Context, name, node string) (*v1beta1.StorageNode, error) {
	nodes, err := Nodes(ctx, a.Holdfast)
	if err != nil {
		return nil, err
	}
	var found []*v1beta1.StorageNode
	var names, full []string
	for i := range nodes {
		n := &nodes[i]
		switch has := trashed(n, name) != nil || restoring(n, name) != nil; {
		case node == n.Name && !has && len(n.Status.Trash) >= trashShown: // it may have the volume without listing it
			return n, nil
		case len(n.Status.Trash) >= trashShown && !has:
			full = append(full, n.Name)
		case has && (node == "" || node == n.Name):
			found, names = append(found, n), append(names, n.Name)
		}
	}
	known := slices.ContainsFunc(nodes, func(n v1beta1.StorageNode) bool { return n.Name == node })
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return nil, fmt.Errorf("volume %s is in the trash of %d nodes, %s: say which with holdfast volumes restore %s --node NODE",
			name, len(found), strings.Join(names, " and "), name)
	case node != "" && !known:
		return nil, fmt.Errorf("--node %s: there is no such StorageNode; kubectl get storagenodes.holdfast.dev lists them", node)
	case len(full) > 0 && node == "":
		return nil, fmt.Errorf("volume %s %w, but that of %s lists only the last %d deleted: if it was there, holdfast volumes restore %s --node NODE brings it back",
			name, errUnlisted, strings.Join(full, " and "), trashShown, name)
	}
	return nil, nil
}

func (a *Admin) followNode(ctx context.Context, name string, s func(*v1beta1.StorageNode) (bool, string, error)) error {
	return a.follow(ctx, following(a.Holdfast.HoldfastV1beta1().StorageNodes(), name), func(o runtime.Object) (bool, string, error) {
		n, _ := o.(*v1beta1.StorageNode)
		return s(n)
	})
}

// absent returns the error about a Volume that does not exist, which says whether a trash has it.
func (a *Admin) absent(ctx context.Context, name string, err error) error {
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("volume %s could not be read: %w", name, err)
	}
	n, err := a.whereTrashed(ctx, name, "")
	switch {
	case err != nil:
		return fmt.Errorf("there is no volume %s: %w", name, err)
	case n != nil && trashed(n, name) != nil:
		return fmt.Errorf("volume %s is deleted, and in the trash of %s until %s: holdfast volumes restore %s",
			name, n.Name, stamp(trashed(n, name).ExpirationTime.Time), name)
	}
	return fmt.Errorf("there is no volume %s, and no trash has it: list the existing ones with holdfast volumes list and holdfast volumes trash", name)
}
