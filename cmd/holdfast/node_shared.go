//go:build linux && !client

package main

import (
	"errors"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// sharedVolumes says what keeps shared volumes from being mounted on this node.
func (n *node) sharedVolumes() (reason string, err error) {
	err = nodeops.CheckNFSClient(n.driver.Namespaces)
	if lack, is := errors.AsType[*nodeops.NFSClientError](err); is && lack.NoKernel {
		return v1beta1.ReasonNoNFSClient, err
	}
	return v1beta1.ReasonForbidden, err
}
