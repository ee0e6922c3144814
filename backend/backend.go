// Package backend defines volumes, the operations of a storage backend, and their errors.
//
// The CSI driver, the external provisioner and the agent are thin adapters over these interfaces. The package imports
// only the standard library.
package backend

import "context"

// Backend is what every storage backend implements. It must be safe for concurrent use.
//
// Every method is idempotent: Create returns a volume that exists with the same spec, Delete of a deleted volume
// succeeds. An operation continues when the context of its caller ends; a repeated call joins it, or gets ErrBusy.
type Backend interface {
	// Create creates an empty volume. It fails with ErrExists if spec.Name belongs to a volume with another spec, with
	// ErrExhausted if the volume does not fit, and with ErrInvalid or ErrOutOfRange if the spec can never be met.
	Create(ctx context.Context, spec VolumeSpec) (*Volume, error)
	// Delete removes a volume. It fails with ErrInUse while the volume is in use on this host.
	Delete(ctx context.Context, id ID) error
	// Get returns a volume, or ErrNotFound. A damaged volume is returned with its Condition set.
	Get(ctx context.Context, id ID) (*Volume, error)
	// List returns all volumes, sorted by ID, including damaged ones.
	List(ctx context.Context) ([]*Volume, error)
	// Capacity returns what a pool can still promise. The empty name selects the default pool.
	Capacity(ctx context.Context, pool string) (Capacity, error)
}

// HealthObserver is implemented by backends that accept reports of faults from users of a volume. A reported fault is
// the volume's Condition until the volume is observed in use and healthy.
type HealthObserver interface {
	ObserveHealth(id ID, c Condition)
}

// Expander is implemented by backends whose volumes can grow. A size that is not above the current one changes nothing.
type Expander interface {
	Expand(ctx context.Context, id ID, size Size) (*Volume, error)
}

// Completer is implemented by backends that record which volumes another has yet to bring the content of.
type Completer interface {
	// Complete records that a volume that was made with spec.Incomplete has its content. For another it does nothing.
	Complete(ctx context.Context, id ID) error
}

// Snapshotter is implemented by backends that have snapshots.
type Snapshotter interface {
	// Snapshot takes a snapshot of spec.Source, which is ready to use when the call returns.
	Snapshot(ctx context.Context, spec SnapshotSpec) (*Snapshot, error)
	// DeleteSnapshot removes a snapshot. It fails with ErrPrecondition for a member of a group.
	DeleteSnapshot(ctx context.Context, id ID) error
	GetSnapshot(ctx context.Context, id ID) (*Snapshot, error)
	ListSnapshots(ctx context.Context) ([]*Snapshot, error)
	// Restore creates a volume with the content of a snapshot. It fails as Create does.
	Restore(ctx context.Context, snapshot ID, spec VolumeSpec) (*Volume, error)
}

// GroupSnapshotter is implemented by backends that can take consistent snapshots of several volumes.
type GroupSnapshotter interface {
	// SnapshotGroup freezes all sources, copies them and thaws them. The group is created completely or not at all.
	SnapshotGroup(ctx context.Context, spec GroupSpec) (*Group, error)
	// DeleteGroup removes a group and its snapshots.
	DeleteGroup(ctx context.Context, id ID) error
	GetGroup(ctx context.Context, id ID) (*Group, error)
}

// Cloner is implemented by backends that can copy one volume to another.
type Cloner interface {
	Clone(ctx context.Context, source ID, spec VolumeSpec) (*Volume, error)
}

// Storage is what all backends that keep volumes can do.
type Storage interface {
	Backend
	Expander
	Snapshotter
	Cloner
}

// Recaller is implemented by backends that look up some volumes elsewhere and cache the answer while the volumes are in use.
type Recaller interface {
	// Recall is Get for frequent callers, who can use an answer from a cache.
	Recall(ctx context.Context, id ID) (*Volume, error)
}

// Warner is implemented by backends that may be usable only for now.
type Warner interface {
	// Warning says what will make the pool unusable; nil if nothing will. What it returns last was announced by
	// NotifyPools.
	Warning() error
	// NodeWarning says why nodes cannot use the volumes of the pool, which may be usable otherwise; nil if nothing is known.
	// What it returns last was announced by NotifyPools.
	NodeWarning() error
}

// Topology is implemented by backends of several hosts. Capacity is then the sum of all hosts whose pool can be used.
type Topology interface {
	// FindHost fails with ErrNotFound if there is no such host.
	FindHost(node string) error
	// Reach says which hosts can use the volumes of a pool; ItsHost for an unknown pool.
	Reach(pool string) Reach
	// CanUse fails with ErrPrecondition if a host is known to lack what volumes need whose topology requires key.
	CanUse(node, key string) error
	// CapacityAt returns what a pool of one host can still promise. It fails with ErrNotFound if there is no such host or
	// pool, and with ErrUnavailable if no volume can be created there now.
	CapacityAt(ctx context.Context, node, pool string) (Capacity, error)
}

// Attacher is implemented by backends with volumes of which the reach is OneHost.
type Attacher interface {
	// Attach gives a volume to a host. It fails with ErrPrecondition while another host has it.
	Attach(ctx context.Context, id ID, node string) error
	// Detach takes the volume from the host, or from any host if node is empty. It succeeds if there is no such volume, or
	// another host has it.
	Detach(ctx context.Context, id ID, node string) error
}

// Watched is implemented by backends that see which clients have a volume open.
type Watched interface {
	// ClientOf returns the address of a client that has a volume open and is not this process, not shut out of its cluster and not
	// among those that are known; "" if there is none.
	ClientOf(ctx context.Context, id ID, known []string) (address string, err error)
}

// Sharer is implemented by backends that also have shared volumes, on NFS servers. Capacity and CapacityAt do not
// include NFS servers.
type Sharer interface {
	// SharedCapacity returns what the NFS server NAMESPACE/NAME can still promise, or the sum of all NFS servers if server
	// is empty. It fails with ErrNotFound if there is no such server or pool, and with ErrUnavailable if no volume can be
	// created there now.
	SharedCapacity(ctx context.Context, server, pool string) (Capacity, error)
}

// Detacher is implemented by backends with volumes that a host may still write to when nothing is heard of it.
type Detacher interface {
	// CheckDetached fails with ErrUnavailable as long as a node may still write to a volume.
	CheckDetached(ctx context.Context, id ID, node string) error
}

// Fencer is implemented by backends in a cluster that can shut out its clients, each by its address. What is shut out stays
// so until Unfence, also across restarts of all that is here.
type Fencer interface {
	// Fence shuts clients out, and returns when nothing can be written through any of them any more.
	Fence(ctx context.Context, addresses []string) error
	// Unfence lets clients in again. One that is not shut out is fine.
	Unfence(ctx context.Context, addresses []string) error
	// Fenced returns the clients that the cluster is to keep out, whether or not all of it knows yet, and for long enough.
	Fenced(ctx context.Context) ([]string, error)
}

// NodeUsers is implemented by backends in a cluster that can know each host as a user of its own.
type NodeUsers interface {
	// NodeUser makes the user of a host, or finds it, and returns its key, encrypted to the public key of the host. It is the
	// same as before while both keys are.
	//
	// Where users are Confined, it is given the volumes that are attached to the host, and keeps of what it had those that the
	// host has in use. Without any there is no user, and the key is "".
	NodeUser(ctx context.Context, node, publicKey string, attached, inUse []ID) (key string, err error)
	// Confined says whether a user reaches no other volumes of the pool.
	Confined() bool
	// RemoveNodeUser removes it: it connects no more. One that is not there is fine.
	RemoveNodeUser(ctx context.Context, node string) error
}
