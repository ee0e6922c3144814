//go:build linux && !client

package main

import (
	"context"

	"github.com/holdfast-storage/holdfast/agent"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/driver"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// cephHost asks the kernel of this node about its clients of Ceph clusters.
type cephHost struct{ boot, driver string }

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

// InUse asks for the volumes that the kernel has.
func (h cephHost) InUse(ctx context.Context, recorded []string) (has []string, clients []v1beta1.CephClient, err error) {
	ids, found, err := driver.CephVolumesInUse(ctx, h.driver, recorded)
	for _, c := range found {
		clients = append(clients, h.recordOf(c))
	}
	return ids, clients, err
}

func (h cephHost) recordOf(c nodeops.CephClient) v1beta1.CephClient {
	return v1beta1.CephClient{FSID: c.FSID, ID: c.ID, Address: v1beta1.CephAddress(c.Address), BootID: h.boot}
}

func kernelClient(c v1beta1.CephClient) nodeops.CephClient {
	return nodeops.CephClient{FSID: c.FSID, ID: c.ID, Address: string(c.Address)}
}

func (h cephHost) recordedBy(a *agent.Agent) func(context.Context, backend.ID, nodeops.CephClient) error {
	return func(ctx context.Context, id backend.ID, c nodeops.CephClient) error {
		return a.RecordCephClient(ctx, id, h.recordOf(c))
	}
}
