package inmemory

import (
	"context"
	"slices"
	"sync"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/backendtest"
)

// Host is storage in memory that can be made to refuse.
type Host struct {
	*backendtest.Memory
	mu     sync.Mutex
	refuse map[string]error // by verb
	client string
}

// NewHost is one with so many bytes.
func NewHost(size int64) *Host {
	return &Host{Memory: backendtest.NewMemorySized(size), refuse: map[string]error{}}
}

// Refuses lets a verb fail from now on; of nil it works again.
func (h *Host) Refuses(verb string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refuse[verb] = err
}

// Opens says which client has all volumes open from now on; "" means none.
func (h *Host) Opens(client string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.client = client
}

func (h *Host) refusal(verb string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.refuse[verb]
}

// Create refuses or creates.
func (h *Host) Create(ctx context.Context, spec backend.VolumeSpec) (*backend.Volume, error) {
	if err := h.refusal("create"); err != nil {
		return nil, err
	}
	return h.Memory.Create(ctx, spec)
}

// Delete refuses or deletes.
func (h *Host) Delete(ctx context.Context, id backend.ID) error {
	if err := h.refusal("delete"); err != nil {
		return err
	}
	return h.Memory.Delete(ctx, id)
}

// Snapshot refuses or takes one.
func (h *Host) Snapshot(ctx context.Context, spec backend.SnapshotSpec) (*backend.Snapshot, error) {
	if err := h.refusal("snapshot"); err != nil {
		return nil, err
	}
	return h.Memory.Snapshot(ctx, spec)
}

// Has says whether a volume is on the disk.
func (h *Host) Has(id backend.ID) bool {
	_, err := h.Get(context.Background(), id)
	return err == nil
}

// Volumes lists what is on a host's disk.
func (h *Host) Volumes() []string {
	all, _ := h.List(context.Background())
	var names []string
	for _, v := range all {
		names = append(names, string(v.ID))
	}
	slices.Sort(names)
	return names
}
