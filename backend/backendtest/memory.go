package backendtest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-storage/holdfast/backend"
)

// Memory is a backend in memory, for tests of the code that calls backends. The content of its volumes is what the
// conformance suite writes.
type Memory struct {
	capacity int64
	ops      backend.Operations

	mu        sync.Mutex
	volumes   map[backend.ID]*memoryVolume
	snapshots map[backend.ID]*memorySnapshot
	groups    map[backend.ID]*backend.Group
	trash     []trashedVolume // in order of deletion
}

type memoryVolume struct {
	backend.Volume
	content []byte
}

type memorySnapshot struct {
	backend.Snapshot
	content []byte
}

const (
	memoryPool   = "memory"
	memoryServer = "memory/server"

	// MemoryAddress is the NFS server address of the shared volumes of a Memory. There is no server at it.
	MemoryAddress = "192.0.2.1"
)

var (
	_ backend.Storage          = (*Memory)(nil)
	_ backend.Completer        = (*Memory)(nil)
	_ backend.GroupSnapshotter = (*Memory)(nil)
	_ backend.Sharer           = (*Memory)(nil)
	_ backend.Trasher          = (*Memory)(nil)
)

// NewMemory returns an empty backend of 1 TiB with one pool, named "memory".
func NewMemory() *Memory { return NewMemorySized(1 << 40) }

// NewMemorySized returns an empty backend of the given capacity.
func NewMemorySized(capacity int64) *Memory {
	return &Memory{
		capacity:  capacity,
		volumes:   map[backend.ID]*memoryVolume{},
		snapshots: map[backend.ID]*memorySnapshot{},
		groups:    map[backend.ID]*backend.Group{},
	}
}

func (m *Memory) Create(ctx context.Context, spec backend.VolumeSpec) (*backend.Volume, error) {
	return m.create(ctx, spec, nil)
}

func (m *Memory) Clone(ctx context.Context, source backend.ID, spec backend.VolumeSpec) (*backend.Volume, error) {
	return m.create(ctx, spec, &backend.Source{Kind: backend.SourceVolume, ID: source})
}

func (m *Memory) Restore(ctx context.Context, snapshot backend.ID, spec backend.VolumeSpec) (*backend.Volume, error) {
	return m.create(ctx, spec, &backend.Source{Kind: backend.SourceSnapshot, ID: snapshot})
}

func (m *Memory) create(ctx context.Context, spec backend.VolumeSpec, source *backend.Source) (*backend.Volume, error) {
	id, err := backend.IDFor(spec.Name)
	if err != nil {
		return nil, err
	}
	return locked(ctx, m, id, "create", func() (*backend.Volume, error) {
		if v := m.volumes[id]; v != nil {
			return clone(&v.Volume), v.Satisfies(spec, source)
		}
		if spec.Pool != "" && spec.Pool != memoryPool {
			return nil, fmt.Errorf("%w: pool %s; the pools are: %s", backend.ErrInvalid, backend.Quote(spec.Pool), memoryPool)
		}
		v := &memoryVolume{Volume: backend.Volume{
			ID: id, Name: spec.Name, Pool: memoryPool, Mode: cmp.Or(spec.Mode, backend.Filesystem),
			FSType: spec.FSType, Provisioning: cmp.Or(spec.Provisioning, backend.Thin), MkfsOptions: spec.MkfsOptions,
			Inodes: spec.Inodes, Labels: maps.Clone(spec.Labels), Source: source, Created: time.Now(), Shared: spec.Shared,
			OnNodeLoss: spec.OnNodeLoss, Incomplete: spec.Incomplete,
		}}
		if spec.Shared {
			v.Server, v.Reach = cmp.Or(spec.Server, memoryServer), backend.ManyHosts
			v.Access.NFS = &backend.NFS{Server: MemoryAddress, Path: "/" + string(id)}
		}
		if v.Mode == backend.Filesystem {
			v.FSType = cmp.Or(spec.FSType, "ext4")
		}
		smallest, err := m.fill(v, source)
		if err != nil {
			return nil, err
		}
		if source != nil && spec.Size.Required == 0 {
			spec.Size.Required = smallest
		}
		if v.Size, err = spec.Size.Choose(smallest, unit); err != nil {
			return nil, err
		}
		if err := m.room(v.Size); err != nil {
			return nil, err
		}
		m.volumes[id] = v
		return clone(&v.Volume), nil
	})
}

// locked runs an operation on an ID with m.mu held.
func locked[T any](ctx context.Context, m *Memory, id backend.ID, verb string, f func() (T, error)) (T, error) {
	return backend.Do(ctx, &m.ops, id, verb, func(context.Context) (T, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		return f()
	})
}

// found returns the entry of an ID, or ErrNotFound.
func found[T any](all map[backend.ID]*T, what string, id backend.ID) (*T, error) {
	if all[id] == nil {
		return nil, fmt.Errorf("%w: %s %s", backend.ErrNotFound, what, id)
	}
	return all[id], nil
}

const unit = 1 << 20

// fill copies the source's content to v and returns the minimum size of v.
func (m *Memory) fill(v *memoryVolume, source *backend.Source) (int64, error) {
	if source == nil {
		return unit, nil
	}
	if source.Kind == backend.SourceSnapshot {
		s, err := found(m.snapshots, "snapshot", source.ID)
		if err != nil {
			return 0, err
		}
		v.content = bytes.Clone(s.content)
		return s.Size, nil
	}
	from, err := m.whole(source.ID)
	if err != nil {
		return 0, err
	}
	v.content = bytes.Clone(from.content)
	return from.Size, nil
}

// whole returns a volume of which copies can be made.
func (m *Memory) whole(id backend.ID) (*memoryVolume, error) {
	v, err := found(m.volumes, "volume", id)
	if err == nil && v.Incomplete {
		err = backend.LacksContent(id)
	}
	return v, err
}

func (m *Memory) promised() (sum int64) {
	for _, v := range m.volumes {
		sum += v.Size
	}
	return sum
}

func (m *Memory) room(size int64) error {
	if left := m.capacity - m.promised(); size > left {
		return fmt.Errorf("%w: pool %s: %d bytes requested, %d left", backend.ErrExhausted, memoryPool, size, left)
	}
	return nil
}

func (m *Memory) Delete(ctx context.Context, id backend.ID) error {
	_, err := locked(ctx, m, id, "delete", func() (any, error) {
		m.throwAway(id)
		return nil, nil
	})
	return err
}

func (m *Memory) Get(_ context.Context, id backend.ID) (*backend.Volume, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, err := found(m.volumes, "volume", id)
	if err != nil {
		return nil, err
	}
	return clone(&v.Volume), nil
}

func (m *Memory) List(context.Context) ([]*backend.Volume, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []*backend.Volume
	for _, id := range slices.Sorted(maps.Keys(m.volumes)) {
		all = append(all, clone(&m.volumes[id].Volume))
	}
	return all, nil
}

func (m *Memory) Capacity(_ context.Context, pool string) (backend.Capacity, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if pool != "" && pool != memoryPool {
		return backend.Capacity{}, fmt.Errorf("%w: pool %s; the pools are: %s", backend.ErrNotFound, backend.Quote(pool), memoryPool)
	}
	left := m.capacity - m.promised()
	return backend.Capacity{Total: m.capacity, Promised: m.promised(), Available: left, Smallest: unit, Largest: left}, nil
}

// SharedCapacity reports the whole capacity as that of one NFS server.
func (m *Memory) SharedCapacity(ctx context.Context, server, pool string) (backend.Capacity, error) {
	if server != "" && server != memoryServer {
		return backend.Capacity{}, fmt.Errorf("%w: server %s; the servers are: %s", backend.ErrNotFound, backend.Quote(server), memoryServer)
	}
	return m.Capacity(ctx, pool)
}

func (m *Memory) Expand(ctx context.Context, id backend.ID, size backend.Size) (*backend.Volume, error) {
	return locked(ctx, m, id, "expand", func() (*backend.Volume, error) {
		v, err := found(m.volumes, "volume", id)
		if err != nil {
			return nil, err
		}
		size.Required = cmp.Or(size.Required, v.Size)
		want, err := size.Choose(v.Size, unit)
		if err != nil {
			return nil, err
		}
		if err := m.room(want - v.Size); err != nil {
			return nil, err
		}
		v.Size = want
		return clone(&v.Volume), nil
	})
}

func (m *Memory) Complete(ctx context.Context, id backend.ID) error {
	_, err := locked(ctx, m, id, "complete", func() (any, error) {
		v, err := found(m.volumes, "volume", id)
		if err == nil {
			v.Incomplete = false
		}
		return nil, err
	})
	return err
}

// Write replaces the content of an existing volume.
func (m *Memory) Write(id backend.ID, content []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.volumes[id].content = bytes.Clone(content)
}

// Read returns at most length bytes of an existing volume.
func (m *Memory) Read(id backend.ID, length int) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return bytes.Clone(m.volumes[id].content[:min(length, len(m.volumes[id].content))])
}

func clone[T any](v *T) *T {
	c := *v
	return &c
}
