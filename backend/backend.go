// Package backend is the centre of Holdfast: what a volume is, what can be asked of storage, and how it says no.
//
// The CSI driver, the external provisioner and the agent are thin adapters over the interfaces here; engines
// implement them. The package imports the standard library only.
package backend

import "context"

// Backend is what every kind of storage can do. It must be safe for concurrent use.
//
// Every method may be repeated: Create of a volume that exists with the same spec returns it, Delete of one that
// is gone succeeds. An operation that outlives its caller's context goes on; the caller gets ErrBusy, and a repeat
// joins what is running.
type Backend interface {
	// Create makes an empty volume. It fails with ErrExists when spec.Name is taken by a volume of another spec,
	// ErrExhausted when no room is left, ErrInvalid or ErrOutOfRange when the spec can never be met.
	Create(ctx context.Context, spec VolumeSpec) (*Volume, error)
	// Delete removes a volume. It fails with ErrPrecondition while the volume is in use on this host.
	Delete(ctx context.Context, id ID) error
	// Get returns a volume, or ErrNotFound. A damaged volume is returned with its Condition set.
	Get(ctx context.Context, id ID) (*Volume, error)
	// List returns every volume in the order of IDs; a damaged one never hides the others.
	List(ctx context.Context) ([]*Volume, error)
	// Capacity returns what a pool can still promise; the empty name means the default pool.
	Capacity(ctx context.Context, pool string) (Capacity, error)
}

// HealthObserver is implemented by backends to which users of a volume report its faults, beside those that the backend
// finds itself. A fault is the volume's Condition until the volume is found in use and healthy.
type HealthObserver interface {
	ObserveHealth(id ID, c Condition)
}

// Expander is implemented by backends whose volumes can grow. A size at or below the present one changes nothing.
type Expander interface {
	Expand(ctx context.Context, id ID, size Size) (*Volume, error)
}

// Snapshotter is implemented by backends that keep point-in-time copies.
type Snapshotter interface {
	// Snapshot makes a copy of spec.Source that is ready when the call returns.
	Snapshot(ctx context.Context, spec SnapshotSpec) (*Snapshot, error)
	// DeleteSnapshot removes a snapshot. It fails with ErrPrecondition for the member of a group.
	DeleteSnapshot(ctx context.Context, id ID) error
	GetSnapshot(ctx context.Context, id ID) (*Snapshot, error)
	ListSnapshots(ctx context.Context) ([]*Snapshot, error)
	// Restore makes a volume with the content of a snapshot; it is otherwise like Create.
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

// Topology is implemented by backends of several hosts. Capacity sums up what is usable of all of them.
type Topology interface {
	// CapacityAt returns what a pool of one host can still promise. It fails with ErrNotFound where there is no such
	// host or pool, and with ErrUnavailable where nothing can be made now.
	CapacityAt(ctx context.Context, node, pool string) (Capacity, error)
}

// Sharer is implemented by backends that also make shared volumes, which are on servers and not on hosts. Neither
// Capacity nor CapacityAt include those.
type Sharer interface {
	// SharedCapacity sums up what the servers can still promise, or returns that of one that is named NAMESPACE/NAME.
	// It fails with ErrNotFound where there is no such server or pool, and with ErrUnavailable where nothing can be
	// made now.
	SharedCapacity(ctx context.Context, server, pool string) (Capacity, error)
}
