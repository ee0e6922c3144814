//go:build linux && !client

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-storage/holdfast/backend/local/disk"
)

// attachedByOthers lists the volumes of other drivers that are attached to a node or about to be. The Node object has them
// from the VolumeAttachments and from the kubelet, so no right to read those of all nodes is needed.
func attachedByOthers(c kubernetes.Interface, node, driver string) func(context.Context) ([]disk.Attached, error) {
	return func(ctx context.Context) ([]disk.Attached, error) {
		selector := fields.OneTermEqualSelector(metav1.ObjectNameField, node).String()
		nodes, err := c.CoreV1().Nodes().List(ctx, metav1.ListOptions{FieldSelector: selector})
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(nodes.Items, func(n core.Node) bool { return n.Name == node })
		if i < 0 {
			return nil, fmt.Errorf("there is no Node object %s, which lists the volumes attached to this node", node)
		}
		return attachedTo(&nodes.Items[i], driver), nil
	}
}

func attachedTo(n *core.Node, driver string) (all []disk.Attached) {
	ours := "kubernetes.io/csi/" + driver + "^"
	add := func(name core.UniqueVolumeName, device string) {
		known := slices.ContainsFunc(all, func(a disk.Attached) bool { return a.Handle == string(name) })
		if !known && !strings.HasPrefix(string(name), ours) {
			all = append(all, disk.Attached{Handle: string(name), Device: device})
		}
	}
	for _, v := range n.Status.VolumesAttached {
		add(v.Name, v.DevicePath)
	}
	for _, name := range n.Status.VolumesInUse {
		add(name, "")
	}
	return all
}
