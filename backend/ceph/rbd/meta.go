//go:build ceph

package rbd

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-storage/holdfast/backend"
)

// kind is what an image is.
type kind string

const (
	volumes   kind = "volume" // as backend.RBDImage has it
	snapshots kind = "snapshot"
)

// metaKey is that of an image's metadata. It is one, so that it is written at once.
const metaKey = "holdfast"

// omapKey is where Ceph keeps that in the header of the image.
const omapKey = "metadata_" + metaKey

// contentSnapshot fixes the content of a snapshot's image; copies are made of it.
const contentSnapshot = "content"

// temporaryPrefix begins the snapshots from which a copy is made, before the name of the copy.
const temporaryPrefix = "to."

// version is that of the layout that this code writes. It reads no newer one: it could not keep what it does not know.
const version = 1

// MetadataVersion is the version of metadata that this program writes, and the newest that it reads.
const MetadataVersion = version

// meta is what an image's metadata says. It is written last: an image without it, or with that of the image that it was
// copied from, is not complete.
type meta struct {
	Version      int                  `json:"version"`
	Kind         kind                 `json:"kind"`
	ID           backend.ID           `json:"id"`
	Image        string               `json:"image"` // the ID that Ceph gave the image, which a copy of it does not have
	Name         string               `json:"name"`
	Created      time.Time            `json:"created"`
	Size         int64                `json:"size"`
	Mode         backend.Mode         `json:"mode"`
	FSType       string               `json:"fsType,omitempty"`
	FSSize       int64                `json:"fsSize,omitempty"`
	Provisioning backend.Provisioning `json:"provisioning"`
	MkfsOptions  []string             `json:"mkfsOptions,omitempty"`
	Inodes       uint64               `json:"inodes,omitempty"`
	Labels       map[string]string    `json:"labels,omitempty"`
	OnNodeLoss   backend.OnNodeLoss   `json:"onNodeLoss,omitempty"`
	Source       *backend.Source      `json:"source,omitempty"`
	Ephemeral    bool                 `json:"ephemeral,omitempty"`
	Incomplete   bool                 `json:"incomplete,omitempty"` // another has not brought all of its content
}

// imageName is the name of the image of an ID.
func imageName(k kind, id backend.ID) string { return string(k) + "." + string(id) }

func (m *meta) imageName() string { return imageName(m.Kind, m.ID) }

// parseName says what an image of that name would be, if it is a name of ours.
func parseName(name string) (kind, backend.ID, bool) {
	k, rest, _ := strings.Cut(name, ".")
	id, err := backend.ParseID(rest)
	return kind(k), id, err == nil && (kind(k) == volumes || kind(k) == snapshots)
}

var (
	errIncomplete = errors.New("the image is not complete")
	// errReplaced is what errIncomplete means where the ledger says that the image is complete.
	errReplaced = errors.New("its metadata " + metaKey + " is missing or of another image, as after `rbd migration`, `rbd import` or `rbd image-meta remove`; the data is left as it is. Write it again with `rbd image-meta set IMAGE " + metaKey + " JSON`: the JSON that `rbd image-meta get` shows of another complete volume of its class and mode, with id, name, size, labels and image (`id` in `rbd info`) of this one and without source; or delete the volume")
	// errMissing is that of an image that cannot be found, and which the ledger says is complete.
	errMissing = errors.New("it was complete, and Ceph does not find it any more: a placement group was lost, or it was removed with `rbd rm`; if it comes back, so does the volume with the next start of the pool's process; otherwise delete the volume or snapshot")
	errNewer   = errors.New("written by a newer version")
)

// parseMeta reads the metadata of an image, by the name that it has or had and its ID. Without any, or with that of another
// image, it is errIncomplete.
func parseMeta(text, name, image string) (*meta, error) {
	if text == "" {
		return nil, errIncomplete
	}
	var m meta
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return nil, fmt.Errorf("its metadata %s is damaged (%d bytes): %w", metaKey, len(text), err)
	}
	switch {
	case m.Image != image || m.imageName() != name:
		return nil, errIncomplete
	case m.Version > version:
		return nil, fmt.Errorf("its metadata %s has version %d, this program knows %d: %w", metaKey, m.Version, version, errNewer)
	case m.Version < 1 || m.Size < 0:
		return nil, fmt.Errorf("its metadata %s is damaged: version %d, size %d", metaKey, m.Version, m.Size)
	}
	return &m, nil
}
