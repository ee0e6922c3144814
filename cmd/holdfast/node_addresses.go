//go:build linux && !client

package main

import "github.com/holdfast-storage/holdfast/nodeops"

// addresses are those by which NFS servers may see this node.
func (n *node) addresses() ([]string, error) {
	all, err := nodeops.HostAddresses(n.driver.Namespaces)
	texts := make([]string, 0, len(all))
	for _, a := range all {
		texts = append(texts, a.String())
	}
	return texts, err
}
