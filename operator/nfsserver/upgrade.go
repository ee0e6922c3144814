package nfsserver

import (
	"context"
	"fmt"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// Upgrade updates all servers to the release of an image of Holdfast, while the cluster is paused for it, and reports
// the progress. If the StorageCluster names an image for servers, there is nothing to update. It does not wait for
// servers that did not serve before.
func (c *Controller) Upgrade(ctx context.Context, image v1beta1.Image) (done bool, waiting string, err error) {
	cluster, to, err := c.target(image)
	if err != nil || to == "" {
		return err == nil, "", err
	}
	if err := cluster.Unreadable(); err != nil {
		return false, "", fmt.Errorf("%s cannot be read: %w", cluster.Name, err)
	}
	var left []string
	for _, cached := range inOrder(c.all()) {
		s := c.written.Newest(cached)
		if s.DeletionTimestamp != nil || s.Unreadable() != nil {
			continue
		}
		r, err := c.run(ctx, c.desiredOf(s, cluster, to))
		if err != nil {
			return false, "", err
		}
		if why := r.outdated(); why != "" {
			left = append(left, fmt.Sprintf("NFSServer %s: %s", keyOf(s), why))
		}
	}
	return len(left) == 0, strings.Join(left, "; "), nil
}

// outdated says why a server does not run the image of an upgrade yet; "" if it does or need not.
func (r *round) outdated() string {
	if reason, why := r.fault(); reason != "" {
		return why
	}
	if !hasServed(&r.server.Status) || r.isCurrent() && r.serves() && imageOf(&r.set.Spec.Template.Spec) == string(r.image) {
		return ""
	}
	_, why := r.trouble()
	return why
}

// target returns the servers' image for an image of Holdfast; "" if the StorageCluster names an image for them.
func (c *Controller) target(image v1beta1.Image) (cluster *v1beta1.StorageCluster, to v1beta1.Image, err error) {
	cluster, err = c.cluster()
	if err != nil || cluster.Spec.Images.NFS != "" {
		return cluster, "", err
	}
	return cluster, c.Release.NFSImage(image), nil
}

// Outdated returns the servers' image for an image of Holdfast, and the nodes of servers with another one.
func (c *Controller) Outdated(image v1beta1.Image) (to v1beta1.Image, nodes []string, err error) {
	if _, to, err = c.target(image); err != nil {
		return "", nil, err
	}
	for _, s := range c.all() {
		for _, p := range c.podsOf(s) {
			if to != "" && p.Spec.NodeName != "" && imageOf(&p.Spec) != string(to) {
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

func imageOf(pod *core.PodSpec) string {
	if len(pod.Containers) == 0 {
		return ""
	}
	return pod.Containers[0].Image
}
