package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-storage/holdfast/backend"
)

func (c *controller) ListVolumes(ctx context.Context, req *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	all, err := c.Backend.List(ctx)
	if err != nil {
		return nil, err
	}
	volumes, next, err := page(all, volumeID, req)
	if err != nil {
		return nil, err
	}
	resp := &csi.ListVolumesResponse{NextToken: next}
	for _, v := range volumes {
		entry := &csi.ListVolumesResponse_Entry{Volume: c.volume(v), Status: &csi.ListVolumesResponse_VolumeStatus{}}
		setCondition(entry.Status, v.Condition)
		resp.Entries = append(resp.Entries, entry)
	}
	return resp, nil
}

func (c *controller) ControllerGetVolume(ctx context.Context, req *csi.ControllerGetVolumeRequest) (*csi.ControllerGetVolumeResponse, error) {
	id, err := parseID("volume_id", req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	v, err := c.Backend.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	resp := &csi.ControllerGetVolumeResponse{Volume: c.volume(v), Status: &csi.ControllerGetVolumeResponse_VolumeStatus{}}
	setCondition(resp.Status, v.Condition)
	return resp, nil
}

// GetCapacity answers 0 for another node or impossible modes, and for a node that lacks the pool or is out of reach:
// that is no error, since the caller asks for every node.
func (c *controller) GetCapacity(ctx context.Context, req *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	place := req.GetAccessibleTopology()
	spec, err := parseParameters(req.GetParameters())
	if err != nil {
		return nil, err
	}
	if c.reach(spec) != backend.ItsHost {
		return c.siteCapacity(ctx, spec, nodeOf(place))
	}
	if place != nil && c.NodeID != "" && nodeOf(place) != c.NodeID || slices.ContainsFunc(req.GetVolumeCapabilities(), ofManyNodes) {
		return &csi.GetCapacityResponse{}, nil
	}
	room, err := c.room(ctx, place, spec.Pool)
	switch {
	case (errors.Is(err, backend.ErrNotFound) || errors.Is(err, backend.ErrUnavailable)) && place != nil:
		return &csi.GetCapacityResponse{}, nil
	case errors.Is(err, backend.ErrNotFound):
		return nil, fmt.Errorf("%w parameter pool: %v", backend.ErrInvalid, err)
	case err != nil:
		return nil, err
	}
	return capacityResponse(room), nil
}

// siteCapacity is the same at every node that can use such volumes. That there is no site now is no mistake of the caller.
func (c *controller) siteCapacity(ctx context.Context, spec backend.VolumeSpec, node string) (*csi.GetCapacityResponse, error) {
	var room backend.Capacity
	err := backend.ErrNotFound
	if sharer, ok := c.Backend.(backend.Sharer); ok && spec.Shared {
		room, err = sharer.SharedCapacity(ctx, spec.Server, spec.Pool)
	} else if !spec.Shared {
		room, err = c.Backend.Capacity(ctx, spec.Pool)
	}
	if t, ok := c.Backend.(backend.Topology); ok && !spec.Shared && node != "" && err == nil {
		err = t.CanUse(node, clientKey(c.reach(spec)))
	}
	switch {
	case errors.Is(err, backend.ErrNotFound), errors.Is(err, backend.ErrUnavailable), errors.Is(err, backend.ErrPrecondition):
		return &csi.GetCapacityResponse{}, nil
	case err != nil:
		return nil, err
	}
	return capacityResponse(room), nil
}

func capacityResponse(room backend.Capacity) *csi.GetCapacityResponse {
	return &csi.GetCapacityResponse{
		AvailableCapacity: backend.RoundDown(room.Available),
		MaximumVolumeSize: wrapperspb.Int64(backend.RoundDown(room.Largest)),
		MinimumVolumeSize: wrapperspb.Int64(room.Smallest),
	}
}

// room is that of a pool at one place, or everywhere where none is named.
func (c *controller) room(ctx context.Context, place *csi.Topology, pool string) (backend.Capacity, error) {
	if t, ok := c.Backend.(backend.Topology); ok && place != nil {
		return t.CapacityAt(ctx, nodeOf(place), pool)
	}
	return c.Backend.Capacity(ctx, pool)
}

func ofManyNodes(c *csi.VolumeCapability) bool {
	return slices.Contains(multiNode, c.GetAccessMode().GetMode())
}

// tokenPrefix begins a token; the id of the last entry seen follows, so that entries may come and go between pages.
const tokenPrefix = "after:"

type pageRequest interface {
	GetMaxEntries() int32
	GetStartingToken() string
}

// page returns the entries of one page, in the order of ids.
func page[T any](all []T, id func(T) backend.ID, req pageRequest) (entries []T, next string, err error) {
	if req.GetMaxEntries() < 0 {
		return nil, "", fmt.Errorf("%w max_entries %d: it must not be negative; 0 means all", backend.ErrInvalid, req.GetMaxEntries())
	}
	entries = slices.SortedFunc(slices.Values(all), func(a, b T) int { return strings.Compare(string(id(a)), string(id(b))) })
	if token := req.GetStartingToken(); token != "" {
		value, ok := strings.CutPrefix(token, tokenPrefix)
		last, err := backend.ParseID(value)
		if !ok || err != nil {
			return nil, "", status.Errorf(codes.Aborted, "starting_token %s is unknown; start again without one", backend.Quote(token))
		}
		entries = slices.DeleteFunc(entries, func(e T) bool { return id(e) <= last })
	}
	if most := int(req.GetMaxEntries()); most > 0 && len(entries) > most {
		entries = entries[:most]
		next = tokenPrefix + string(id(entries[most-1]))
	}
	return entries, next, nil
}

func volumeID(v *backend.Volume) backend.ID     { return v.ID }
func snapshotID(s *backend.Snapshot) backend.ID { return s.ID }
