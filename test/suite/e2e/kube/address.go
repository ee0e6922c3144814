package kube

import (
	"context"
	"fmt"
	"net"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// HostAddress is the address of this machine in the network of the cluster's nodes, where they and their pods reach what a
// test runs beside the cluster.
func (c *Cluster) HostAddress(ctx context.Context) (string, error) {
	nodes, err := c.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return "", err
	}
	for _, n := range nodes.Items {
		for _, node := range n.Status.Addresses {
			if node.Type != corev1.NodeInternalIP {
				continue
			}
			for _, a := range addresses {
				if of, is := a.(*net.IPNet); is && of.Contains(net.ParseIP(node.Address)) {
					return of.IP.String(), nil
				}
			}
		}
	}
	return "", fmt.Errorf("none of the addresses %v of this machine is in a network of a node of cluster %s", addresses, c.Name)
}
