// Package backend defines what a volume is, the operations of storage, and their errors.
//
// The CSI driver, the external provisioner and the agent are thin adapters over the interfaces here; engines
// implement them. The package imports the standard library only.
package backend

import "context"

// Backend is what every kind of storage can do. It must be safe for concurrent use.
//
// Every method is idempotent: Create of a volume that exists with the same spec returns it, Delete of one that is gone
// succeeds. An operation that outlives its caller's context continues; a repeated call gets ErrBusy or joins it.
type Backend interface {
	// Create creates an empty volume. It fails with ErrExists if spec.Name is taken by a volume with another spec,
	// ErrExhausted if it does not fit, ErrInvalid or ErrOutOfRange if the spec can never be met.
	Create(ctx context.Context, spec VolumeSpec) (*Volume, error)
	// Delete removes a volume. It fails with ErrPrecondition while the volume is in use on this host.
	Delete(ctx context.Context, id ID) error
	// Get returns a volume, or ErrNotFound. A damaged volume is returned with its Condition set.
	Get(ctx context.Context, id ID) (*Volume, error)
	// List returns all volumes sorted by ID; a damaged one never hides the others.
	List(ctx context.Context) ([]*Volume, error)
	// Capacity returns what a pool can still promise; the empty name means the default pool.
	Capacity(ctx context.Context, pool string) (Capacity, error)
}

// HealthObserver is implemented by backends to which users of a volume report its faults, beside those that the backend
// finds itself. A fault is the volume's Condition until the volume is found in use and healthy.
type HealthObserver interface {
	ObserveHealth(id ID, c Condition)
}

// Expander is implemented by backends whose volumes can grow. A size at or below the current one changes nothing.
type Expander interface {
	Expand(ctx context.Context, id ID, size Size) (*Volume, error)
}

// Snapshotter is implemented by backends that keep point-in-time copies.
type Snapshotter interface {
	// Snapshot takes a snapshot of spec.Source that is ready when the call returns.
	Snapshot(ctx context.Context, spec SnapshotSpec) (*Snapshot, error)
	// DeleteSnapshot removes a snapshot. It fails with ErrPrecondition for the member of a group.
	DeleteSnapshot(ctx context.Context, id ID) error
	GetSnapshot(ctx context.Context, id ID) (*Snapshot, error)
	ListSnapshots(ctx context.Context) ([]*Snapshot, error)
	// Restore creates a volume with the content of a snapshot; it is otherwise like Create.
	Restore(ctx context.Context, snapshot ID, spec VolumeSpec) (*Volume, error)
}

// GroupSnapshotter is implemented by backends that can copy several volumes at one instant.
type GroupSnapshotter interface {
	// SnapshotGroup freezes all sources together, copies them and thaws them. The group exists completely or not at all.
	SnapshotGroup(ctx context.Context, spec GroupSpec) (*Group, error)
	// DeleteGroup removes a group and its snapshots.
	DeleteGroup(ctx context.Context, id ID) error
	GetGroup(ctx context.Context, id ID) (*Group, error)
}

// Cloner is implemented by backends that can copy a volume into a new one.
type Cloner interface {
	Clone(ctx context.Context, source ID, spec VolumeSpec) (*Volume, error)
}

// Topology is implemented by backends of several hosts. Capacity is the sum of what is usable on all of them.
type Topology interface {
	// CapacityAt returns what a pool of one host can still promise. It fails with ErrNotFound if there is no such host or
	// pool, and with ErrUnavailable if no volume can be created there now.
	CapacityAt(ctx context.Context, node, pool string) (Capacity, error)
}

// Sharer is implemented by backends that also have shared volumes, which are on NFS servers. Neither Capacity nor
// CapacityAt includes servers.
type Sharer interface {
	// SharedCapacity returns the sum of what all servers can still promise, or that of the server NAMESPACE/NAME. It fails
	// with ErrNotFound if there is no such server or pool, and with ErrUnavailable if no volume can be created there now.
	SharedCapacity(ctx context.Context, server, pool string) (Capacity, error)
}
