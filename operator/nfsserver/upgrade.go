package nfsserver

import (
	"context"
	"fmt"
	"strings"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/operator/render"
)

// Upgrade brings all servers to what belongs to an image of Holdfast, while the cluster is paused for it, and says how
// far that is. With an image of its own in the StorageCluster a server has nothing to be brought to. Servers that did
// not serve before are not waited for.
func (r *Controller) Upgrade(ctx context.Context, image v1.Image) (done bool, waiting string, err error) {
	cluster, err := r.cluster()
	if err != nil {
		return false, "", err
	}
	if cluster.Spec.Images.NFS != "" {
		return true, "", nil
	}
	to := render.NFSImage(image)
	var left []string
	for _, cached := range inOrder(r.all()) {
		s := r.written.Newest(cached)
		if s.DeletionTimestamp != nil {
			continue
		}
		o, _, err := r.maintain(ctx, s, cluster, to)
		if err != nil {
			return false, "", err
		}
		if reason, why := o.fault(); reason != "" {
			left = append(left, fmt.Sprintf("NFSServer %s: %s", keyOf(s), why))
			continue
		}
		if !hasServed(&s.Status) || o.current() && o.serves() && imageOf(o) == string(to) {
			continue
		}
		_, why := o.trouble()
		left = append(left, fmt.Sprintf("NFSServer %s: %s", keyOf(s), why))
	}
	return len(left) == 0, strings.Join(left, "; "), nil
}

// imageOf is what the pod is asked to run.
func imageOf(o *situation) string {
	if o.set == nil || len(o.set.Spec.Template.Spec.Containers) == 0 {
		return ""
	}
	return o.set.Spec.Template.Spec.Containers[0].Image
}
