package driver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/parameters"
)

// controller creates and deletes volumes.
type controller struct {
	csi.UnimplementedControllerServer
	*Driver
}

func (c *controller) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	types := []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_LIST_VOLUMES,
		csi.ControllerServiceCapability_RPC_GET_VOLUME,
		csi.ControllerServiceCapability_RPC_GET_CAPACITY,
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
		csi.ControllerServiceCapability_RPC_GET_VOLUME_HEALTH,
		csi.ControllerServiceCapability_RPC_LIST_VOLUME_HEALTH,
		controllerVolumeCondition,
		csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
		csi.ControllerServiceCapability_RPC_CLONE_VOLUME,
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
		csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS,
		csi.ControllerServiceCapability_RPC_GET_SNAPSHOT,
	}
	if c.Attach {
		types = append(types, csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME)
	}
	resp := &csi.ControllerGetCapabilitiesResponse{}
	for _, t := range types {
		resp.Capabilities = append(resp.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: t}},
		})
	}
	return resp, nil
}

func (c *controller) CreateVolume(ctx context.Context, req *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	spec, err := c.volumeSpec(req)
	if err != nil {
		return nil, err
	}
	if spec.Nodes, err = c.nodesFor(spec, req.GetAccessibilityRequirements()); err != nil {
		return nil, err
	}
	// The scheduler does not know where the source is and may choose another node again and again. The volume is created
	// beside its source, and its topology directs the pod there.
	spec.NodesYield = req.GetVolumeContentSource() != nil && c.NodeID == "" && len(spec.Nodes) == 1
	v, err := c.create(ctx, spec, req.GetVolumeContentSource())
	switch {
	case errors.Is(err, backend.ErrNotFound) && c.NodeID != "" && req.GetAccessibilityRequirements() != nil:
		// The scheduler chose this node; NotFound would be final, this lets it choose another.
		return nil, fmt.Errorf("%w on node %s: %v", backend.ErrExhausted, c.NodeID, err)
	case err != nil:
		return nil, err
	case spec.Shared && (v.Access.NFS == nil || v.Access.NFS.Server == ""):
		return nil, fmt.Errorf("%w: volume %s is created, but NFS server %s has not reported its address yet; retry", backend.ErrUnavailable, v.ID, v.Server)
	}
	resp := &csi.CreateVolumeResponse{Volume: c.volume(v)}
	if spec.Shared {
		resp.Volume.AccessibleTopology = sharedTopology(req.GetAccessibilityRequirements())
	}
	return resp, nil
}

// nodesFor returns the nodes that may have a requested volume. One on a site is wherever the caller would have it.
func (c *controller) nodesFor(spec backend.VolumeSpec, wanted *csi.TopologyRequirement) ([]string, error) {
	if c.reach(spec) == backend.ItsHost {
		return c.candidates(wanted)
	}
	if _, ok := c.Backend.(backend.Sharer); spec.Shared && !ok {
		return nil, fmt.Errorf("%w parameter %s=true: there are no NFS servers here; leave it out", backend.ErrInvalid, parameters.Shared)
	}
	return nil, nil
}

// reach says which nodes can use a requested volume.
func (c *controller) reach(spec backend.VolumeSpec) backend.Reach {
	t, ok := c.Backend.(backend.Topology)
	switch {
	case spec.Shared:
		return backend.ManyHosts
	case ok:
		return t.Reach(spec.Pool)
	}
	return backend.ItsHost
}

func (c *controller) volumeSpec(req *csi.CreateVolumeRequest) (backend.VolumeSpec, error) {
	var none backend.VolumeSpec
	if err := checkName("name", req.GetName()); err != nil {
		return none, err
	}
	if ephemeralHandle.MatchString(req.GetName()) {
		return none, fmt.Errorf("%w name %s: csi- and 64 hexadecimal digits are for inline ephemeral volumes", backend.ErrInvalid, backend.Quote(req.GetName()))
	}
	access, err := parseCapabilities(req.GetVolumeCapabilities())
	if err != nil {
		return none, err
	}
	if len(req.GetMutableParameters()) > 0 {
		return none, fmt.Errorf("%w: mutable_parameters: volumes cannot be modified; use parameters", backend.ErrInvalid)
	}
	spec, err := parseParameters(req.GetParameters())
	if err != nil {
		return none, err
	}
	spec.Name = req.GetName()
	if spec.Size, err = parseRange(req.GetCapacityRange()); err != nil {
		return none, err
	}
	if err := nodeops.CheckNFSOptions(access.flags); spec.Shared && err != nil {
		return none, fmt.Errorf("%w volume_capability: %w", backend.ErrInvalid, err)
	}
	if err := access.apply(&spec); err != nil {
		return none, err
	}
	return spec, checkReach(spec, access, c.reach(spec))
}

// checkReach refuses what no volume can have that these hosts use.
func checkReach(spec backend.VolumeSpec, a access, reach backend.Reach) error {
	if reach == backend.ManyHosts && !spec.Shared && (spec.FSType != "" || len(spec.MkfsOptions) > 0) {
		return fmt.Errorf("%w parameters: a volume of a pool with engine CephFS is a directory of its file system, and none is made; leave out %s and %s",
			backend.ErrInvalid, parameters.FSType, parameters.MkfsOptions)
	}
	return a.suits(reach)
}

// checkName refuses characters that CSI forbids in names; the backend checks the rest.
func checkName(field, name string) error {
	if name == "" {
		return fmt.Errorf("%w: %s is missing", backend.ErrInvalid, field)
	}
	banned := func(r rune) bool { return unicode.IsControl(r) && !strings.ContainsRune("\t\n\r", r) }
	if strings.ContainsFunc(name, banned) {
		return fmt.Errorf("%w %s %s: control characters are not allowed", backend.ErrInvalid, field, backend.Quote(name))
	}
	return nil
}

func (c *controller) create(ctx context.Context, spec backend.VolumeSpec, content *csi.VolumeContentSource) (*backend.Volume, error) {
	if content == nil {
		return c.Backend.Create(ctx, spec)
	}
	source, err := parseSource(content)
	if err != nil {
		return nil, err
	}
	if source.Kind == backend.SourceSnapshot {
		return c.storage.Restore(ctx, source.ID, spec)
	}
	return c.storage.Clone(ctx, source.ID, spec)
}

func parseSource(content *csi.VolumeContentSource) (source *backend.Source, err error) {
	source = &backend.Source{}
	switch s := content.GetType().(type) {
	case *csi.VolumeContentSource_Snapshot:
		source.Kind = backend.SourceSnapshot
		source.ID, err = parseID("snapshot_id", s.Snapshot.GetSnapshotId())
	case *csi.VolumeContentSource_Volume:
		source.Kind = backend.SourceVolume
		source.ID, err = parseID("volume_id", s.Volume.GetVolumeId())
	default:
		err = fmt.Errorf("%w: volume_content_source names neither a snapshot nor a volume", backend.ErrInvalid)
	}
	return source, err
}

// parseID accepts an id from outside and names the field it came from.
func parseID(field, s string) (backend.ID, error) {
	if s == "" {
		return "", fmt.Errorf("%w: %s is missing", backend.ErrInvalid, field)
	}
	id, err := backend.ParseID(s)
	if err != nil {
		return "", fmt.Errorf("%s: %w", field, err)
	}
	return id, nil
}

func (c *controller) DeleteVolume(ctx context.Context, req *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	id, err := parseID("volume_id", req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	return &csi.DeleteVolumeResponse{}, c.Delete(ctx, id)
}

func (c *controller) ControllerExpandVolume(ctx context.Context, req *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	id, err := parseID("volume_id", req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	size, err := parseRange(req.GetCapacityRange())
	if err == nil && req.GetCapacityRange() == nil {
		err = fmt.Errorf("%w: capacity_range is missing", backend.ErrInvalid)
	}
	if err != nil {
		return nil, err
	}
	v, err := c.Backend.Get(ctx, id)
	if err == nil {
		err = checkFits(v, req.GetVolumeCapability())
	}
	if err != nil {
		return nil, err
	}
	v, err = c.storage.Expand(ctx, id, size)
	if errors.Is(err, backend.ErrExhausted) {
		// An existing volume cannot move. OutOfRange lets external-resizer accept a smaller size afterwards.
		return nil, fmt.Errorf("%w: %v", backend.ErrOutOfRange, err)
	}
	if err != nil {
		return nil, err
	}
	// The device and file system of an image must grow too; a directory is done, wherever it is.
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: v.Size, NodeExpansionRequired: v.Access.Directory == "" && v.Reach != backend.ManyHosts}, nil
}

func (c *controller) ValidateVolumeCapabilities(ctx context.Context, req *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	id, err := parseID("volume_id", req.GetVolumeId())
	if err == nil && len(req.GetVolumeCapabilities()) == 0 {
		err = fmt.Errorf("%w: volume_capabilities are missing", backend.ErrInvalid)
	}
	if err != nil {
		return nil, err
	}
	v, err := c.Backend.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	resp := &csi.ValidateVolumeCapabilitiesResponse{}
	if err := confirm(v, req); err != nil {
		resp.Message = err.Error()
	} else {
		resp.Confirmed = &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
			VolumeContext:      req.GetVolumeContext(),
			VolumeCapabilities: req.GetVolumeCapabilities(),
			Parameters:         req.GetParameters(),
		}
	}
	return resp, nil
}

// confirm says which part of a request v does not meet.
func confirm(v *backend.Volume, req *csi.ValidateVolumeCapabilitiesRequest) error {
	access, err := parseCapabilities(req.GetVolumeCapabilities())
	if err != nil {
		return err
	}
	if err := access.fits(v); err != nil {
		return err
	}
	if len(req.GetMutableParameters()) > 0 {
		return errors.New("volumes have no mutable parameters")
	}
	if len(req.GetParameters()) == 0 {
		return nil
	}
	spec, err := parseParameters(req.GetParameters())
	if err != nil {
		return err
	}
	spec.Name = v.Name
	return v.Satisfies(spec, v.Source)
}

// volume is the only builder of a Volume response, for new and for existing volumes.
func (c *controller) volume(v *backend.Volume) *csi.Volume {
	resp := &csi.Volume{VolumeId: string(v.ID), CapacityBytes: v.Size, ContentSource: contentSource(v.Source)}
	switch {
	case v.Shared:
		resp.VolumeContext = nfsContext(v)
	case v.Reach == backend.ItsHost:
		resp.AccessibleTopology = []*csi.Topology{c.topology(v.Node)}
	default:
		resp.AccessibleTopology = []*csi.Topology{clientTopology(v.Reach)}
	}
	return resp
}

func contentSource(s *backend.Source) *csi.VolumeContentSource {
	switch {
	case s == nil:
		return nil
	case s.Kind == backend.SourceSnapshot:
		return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
			Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: string(s.ID)},
		}}
	}
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
		Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: string(s.ID)},
	}}
}
