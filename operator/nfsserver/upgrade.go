package nfsserver

import (
	"context"
	"fmt"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
)

// Upgrade brings all servers to what belongs to an image of Holdfast, while the cluster is paused for it, and says how
// far that is. With an image of its own in the StorageCluster a server has nothing to be brought to. Servers that did
// not serve before are not waited for.
func (r *Controller) Upgrade(ctx context.Context, image v1.Image) (done bool, waiting string, err error) {
	cluster, to, err := r.target(image)
	if err != nil || to == "" {
		return err == nil, "", err
	}
	var left []string
	for _, cached := range inOrder(r.all()) {
		s := r.written.Newest(cached)
		if s.DeletionTimestamp != nil || s.Unreadable() != nil {
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

// target is what servers run with an image of Holdfast, nothing if the StorageCluster names an image for them.
func (r *Controller) target(image v1.Image) (cluster *v1.StorageCluster, to v1.Image, err error) {
	cluster, err = r.cluster()
	if err != nil || cluster.Spec.Images.NFS != "" {
		return cluster, "", err
	}
	return cluster, r.Release.NFSImage(image), nil
}

// Outdated says what servers run with an image of Holdfast, and the nodes of those that run something else.
func (r *Controller) Outdated(image v1.Image) (to v1.Image, nodes []string, err error) {
	if _, to, err = r.target(image); err != nil {
		return "", nil, err
	}
	for _, s := range r.all() {
		for _, p := range r.podsOf(s) {
			if to != "" && p.Spec.NodeName != "" && imageOfPod(&p.Spec) != string(to) {
				nodes = append(nodes, p.Spec.NodeName)
			}
		}
	}
	if len(nodes) == 0 {
		return "", nil, nil
	}
	slices.Sort(nodes)
	return to, slices.Compact(nodes), nil
}

// imageOf is what the pod is asked to run.
func imageOf(o *situation) string {
	if o.set == nil {
		return ""
	}
	return imageOfPod(&o.set.Spec.Template.Spec)
}

func imageOfPod(pod *core.PodSpec) string {
	if len(pod.Containers) == 0 {
		return ""
	}
	return pod.Containers[0].Image
}
