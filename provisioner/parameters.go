package provisioner

import (
	"cmp"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/parameters"
)

// OnDelete says what happens to the data when a PersistentVolume with the reclaim policy Delete is released.
type OnDelete string

const (
	// DeleteData closes the export and removes the volume.
	DeleteData OnDelete = "delete"
	// RetainData keeps the volume and its export; only the PersistentVolume is deleted.
	RetainData OnDelete = "retain"
	// ArchiveData takes a snapshot of the volume, and removes the volume and its export.
	ArchiveData OnDelete = "archive"
)

// squashes maps the values of the parameter rootSquash to those of squash.
var squashes = map[string]string{"true": "root_squash", "false": "no_root_squash"}

// choices are the parsed parameters of a StorageClass. Zero values leave the choice to the server.
type choices struct {
	server   string
	gid      string // a number above 0 in decimals
	squash   string
	inodes   uint64
	onDelete OnDelete
}

// parseParameters reads the parameters of a StorageClass. An empty value leaves the choice to the server.
func parseParameters(given map[string]string) (choices, error) {
	read, err := parameters.Plain.Read(given)
	if err != nil {
		return choices{}, fmt.Errorf("%w %w", backend.ErrInvalid, err)
	}
	c := choices{
		server: read[parameters.NFSServer], squash: cmp.Or(read[parameters.Squash], squashes[read[parameters.RootSquash]]),
		onDelete: OnDelete(cmp.Or(read[parameters.OnDelete], string(DeleteData))),
	}
	if inodes := read[parameters.Inodes]; inodes != "" {
		if c.inodes, err = strconv.ParseUint(inodes, 10, 63); err != nil {
			return c, err
		}
	}
	if gid := read[parameters.GID]; gid != "" && gid != "none" {
		c.gid = strings.TrimLeft(gid, "0")
	}
	return c, nil
}

// serverOf reads which server a class names, even if other parameters are invalid. It is empty if none can be read.
func serverOf(given map[string]string) string {
	named := maps.Clone(given)
	maps.DeleteFunc(named, func(key, _ string) bool { return !strings.EqualFold(key, parameters.NFSServer) })
	read, err := parameters.Plain.Read(named)
	if err != nil {
		return ""
	}
	return read[parameters.NFSServer]
}
