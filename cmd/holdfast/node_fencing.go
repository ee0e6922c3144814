package main

import (
	"context"

	"github.com/holdfast-storage/holdfast/agent"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// cephHost asks the kernel of this node about its clients of Ceph clusters.
type cephHost struct{ boot string }

func newCephHost() (cephHost, error) {
	boot, err := nodeops.BootID()
	return cephHost{boot}, err
}

// Gone says whether the kernel has a client no more.
func (h cephHost) Gone(_ context.Context, c v1beta1.CephClient) (bool, error) {
	if c.BootID != h.boot {
		return true, nil
	}
	return nodeops.IsCephClientGone(kernelClient(c))
}

// Release removes what is left of a client that was shut out.
func (h cephHost) Release(ctx context.Context, c v1beta1.CephClient) error {
	if c.BootID != h.boot {
		return nil
	}
	return nodeops.ReleaseCephClient(ctx, kernelClient(c))
}

func kernelClient(c v1beta1.CephClient) nodeops.CephClient {
	return nodeops.CephClient{FSID: c.FSID, ID: c.ID, Address: string(c.Address)}
}

// recordedBy records the clients that the driver is about to use.
func (h cephHost) recordedBy(a *agent.Agent) func(context.Context, backend.ID, nodeops.CephClient) error {
	return func(ctx context.Context, _ backend.ID, c nodeops.CephClient) error {
		return a.RecordCephClient(ctx, v1beta1.CephClient{FSID: c.FSID, ID: c.ID, Address: v1beta1.CephAddress(c.Address), BootID: h.boot})
	}
}
