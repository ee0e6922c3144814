package driver

import (
	"context"
	"fmt"
	"path"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-storage/holdfast/backend"
)

type identity struct {
	csi.UnimplementedIdentityServer
	*Driver
}

func (i *identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: i.Name, VendorVersion: i.Version}, nil
}

func (i *identity) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	services := []csi.PluginCapability_Service_Type{csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS}
	controls := i.Services != NodeServices
	if controls {
		services = append(services, csi.PluginCapability_Service_CONTROLLER_SERVICE, csi.PluginCapability_Service_SNAPSHOT_ACCESSIBILITY_CONSTRAINTS)
	}
	if _, ok := i.Backend.(backend.GroupSnapshotter); ok && controls {
		services = append(services, csi.PluginCapability_Service_GROUP_CONTROLLER_SERVICE)
	}
	resp := &csi.GetPluginCapabilitiesResponse{}
	for _, s := range services {
		resp.Capabilities = append(resp.Capabilities, &csi.PluginCapability{
			Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: s}},
		})
	}
	resp.Capabilities = append(resp.Capabilities, &csi.PluginCapability{
		Type: &csi.PluginCapability_VolumeExpansion_{VolumeExpansion: &csi.PluginCapability_VolumeExpansion{
			Type: csi.PluginCapability_VolumeExpansion_ONLINE,
		}},
	})
	return resp, nil
}

// Probe answers ready when /readyz passes the check csi, regardless of the pools: livenessprobe restarts this process if
// it is not, and that repairs no pool. In a replica that does not lead it waits, although that one passes /readyz:
// sidecars call it first and retry forever, and so start when their replica leads.
func (i *identity) Probe(ctx context.Context, _ *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	patience := probePatience
	if deadline, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(deadline)*3/4)
	}
	over := time.NewTimer(patience)
	defer over.Stop()
	ready := false
	select {
	case <-i.Leading:
		ready = true
	case <-over.C:
	case <-i.stopping:
	case <-ctx.Done():
	}
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(ready)}, nil
}

const probePatience = 30 * time.Second

// onlyWhileLeading refuses to create or remove anything in a replica that does not lead.
func (d *Driver) onlyWhileLeading(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	select {
	case <-d.Leading:
		return handler(ctx, req)
	default:
	}
	if service := path.Dir(info.FullMethod); service == "/csi.v1.Controller" || service == "/csi.v1.GroupController" {
		return nil, fmt.Errorf("%w: another replica leads; ask there", backend.ErrUnavailable)
	}
	return handler(ctx, req)
}
