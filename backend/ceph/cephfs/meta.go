//go:build ceph

package cephfs

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-storage/holdfast/backend"
)

// version is that of the layout and the metadata that this code writes. It reads no newer one.
const version = 1

// MetadataVersion is the version of metadata that this program writes, and the newest that it reads.
const MetadataVersion = version

// What is remembered lies in extended attributes of the group and of its subvolumes: each is replaced at once, goes where
// its directory goes, and is out of reach of a client that mounts a volume, which lies one directory below.
const (
	poolAttr      = "user.holdfast.pool"      // of the group: its identity
	ownerAttr     = "user.holdfast.owner"     // of the group: the process that serves it
	buildingAttr  = "user.holdfast.building." // of the group, for each subvolume that is being made
	volumeAttr    = "user.holdfast.volume"    // of a subvolume
	snapshotsAttr = "user.holdfast.snapshot." // of a subvolume, for each of its snapshots
)

// state is what an entry is on its way to. A killed process leaves it, and the next one knows how to go on.
type state string

const (
	ready    state = ""
	copying  state = "copying"  // a volume: the manager copies its content
	building state = "building" // a snapshot
	removing state = "removing" // cannot be restored any more
)

// meta is what a volume is.
type meta struct {
	Version    int                `json:"version"`
	ID         backend.ID         `json:"id"`
	Name       string             `json:"name"`
	Created    time.Time          `json:"created"`
	State      state              `json:"state,omitempty"`
	Size       int64              `json:"size"`
	Charge     int64              `json:"charge"` // bytes promised: above Size while it grows
	Inodes     uint64             `json:"inodes,omitempty"`
	Path       string             `json:"path,omitempty"` // of its files
	Labels     map[string]string  `json:"labels,omitempty"`
	Source     *backend.Source    `json:"source,omitempty"`
	OnNodeLoss backend.OnNodeLoss `json:"onNodeLoss,omitempty"`
	Ephemeral  bool               `json:"ephemeral,omitempty"`  // not kept in the trash
	Incomplete bool               `json:"incomplete,omitempty"` // another has not brought all of its content
	Deleted    *time.Time         `json:"deleted,omitempty"`    // since then it is in the trash
	Changed    *time.Time         `json:"changed,omitempty"`    // when it was deleted its files had been changed last then, by clocks of clients
	Copy       *origin            `json:"copy,omitempty"`       // while it is copied
}

// origin is what a volume is copied from.
type origin struct {
	Subvolume string `json:"subvolume"`
	Snapshot  string `json:"snapshot"`
	Temporary bool   `json:"temporary,omitempty"` // the snapshot was taken for this copy
	Bytes     int64  `json:"bytes"`               // to be copied, about
}

// live says that users see the volume.
func (m *meta) live() bool { return m != nil && m.State == ready && m.Deleted == nil }

// trashed says that the volume can be restored.
func (m *meta) trashed() bool { return m != nil && m.State == ready && m.Deleted != nil }

// snapshotMeta is what a snapshot is.
type snapshotMeta struct {
	Version int        `json:"version"`
	ID      backend.ID `json:"id"`
	Name    string     `json:"name"`
	Source  backend.ID `json:"source"`
	Created time.Time  `json:"created"`
	State   state      `json:"state,omitempty"`
	Size    int64      `json:"size"`
	Charge  int64      `json:"charge"`
}

// poolMeta is what a group is.
type poolMeta struct {
	Version int    `json:"version"`
	ID      string `json:"id"`
}

// ownerMeta is the process that serves a group.
type ownerMeta struct {
	Token string    `json:"token"` // of the process
	Host  string    `json:"host"`
	Seen  time.Time `json:"seen"`
}

var errNewer = errors.New("written by a newer version")

// parse reads metadata that must belong to id.
func parse[T any](data []byte, what string, id backend.ID, of func(*T) (backend.ID, int64)) (*T, error) {
	var m T
	if err := readVersioned(data, what, &m); err != nil {
		return nil, err
	}
	switch is, charge := of(&m); {
	case is != id:
		return nil, fmt.Errorf("%s belongs to %s, not to %s", what, backend.Quote(string(is)), id)
	case charge < 0:
		return nil, fmt.Errorf("%s is damaged: charge %d", what, charge)
	}
	return &m, nil
}

func readVersioned(data []byte, what string, v any) error {
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return fmt.Errorf("%s is damaged (%d bytes): %w", what, len(data), err)
	}
	switch {
	case head.Version > version:
		return fmt.Errorf("%s has version %d, this program knows %d: %w", what, head.Version, version, errNewer)
	case head.Version < 1:
		return fmt.Errorf("%s is damaged: version %d", what, head.Version)
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%s is damaged (%d bytes): %w", what, len(data), err)
	}
	return nil
}

func parseVolume(data []byte, id backend.ID) (*meta, error) {
	m, err := parse(data, volumeAttr, id, func(m *meta) (backend.ID, int64) { return m.ID, min(m.Charge, m.Size) })
	if err == nil && m.State != ready && m.State != copying && m.State != removing {
		return nil, fmt.Errorf("%s is damaged: state %s", volumeAttr, backend.Quote(string(m.State)))
	}
	return m, err
}

func parseSnapshot(data []byte, id backend.ID) (*snapshotMeta, error) {
	return parse(data, snapshotsAttr+string(id), id, func(m *snapshotMeta) (backend.ID, int64) { return m.ID, min(m.Charge, m.Size) })
}

// unmarshal reads what has no version.
func unmarshal(data []byte, what string, v any) error {
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%s is damaged (%d bytes): %w", what, len(data), err)
	}
	return nil
}
