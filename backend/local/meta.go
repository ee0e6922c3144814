package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/local/engine"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// version is the version of the layout and metadata that this code writes. It does not read newer ones: it would drop
// fields that it does not know.
const version = 1

const metaFile = "meta.json"

// meta is the content of meta.json, beside each volume, snapshot and group.
type meta struct {
	Version int               `json:"version"`
	ID      backend.ID        `json:"id"`
	Name    string            `json:"name"`
	Created time.Time         `json:"created"`
	Content engine.Content    `json:"content"`
	Charge  int64             `json:"charge"` // bytes promised
	Labels  map[string]string `json:"labels,omitempty"`
	Source  *backend.Source   `json:"source,omitempty"`
	// OnNodeLoss is not used on this host. It is kept for a cluster that adopts the volume.
	OnNodeLoss backend.OnNodeLoss `json:"onNodeLoss,omitempty"`
	Group      *groupRef          `json:"group,omitempty"`
	Members    []member           `json:"members,omitempty"` // of a group

	Ephemeral  bool `json:"ephemeral,omitempty"`  // not kept in the trash
	Incomplete bool `json:"incomplete,omitempty"` // another has not brought all of its content

	copies int64 // number of files at creation
}

// groupRef refers from a snapshot to its group, whose record is in a pool. Another pool may get its name.
type groupRef struct {
	ID     backend.ID `json:"id"`
	Pool   string     `json:"pool"`
	PoolID string     `json:"poolID,omitempty"` // an earlier release did not write it
}

type member struct {
	Pool     string     `json:"pool"`
	Snapshot backend.ID `json:"snapshot"`
	Source   backend.ID `json:"source"`
}

var errNewer = errors.New("written by a newer version")

// parseMeta parses the metadata of the entry named id.
func parseMeta(data []byte, id backend.ID) (*meta, error) {
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, fmt.Errorf("%s is damaged (%d bytes): %w", metaFile, len(data), err)
	}
	if head.Version > version {
		return nil, fmt.Errorf("%s has version %d, this program knows %d: %w", metaFile, head.Version, version, errNewer)
	}
	var m meta
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("%s is damaged (%d bytes): %w", metaFile, len(data), err)
	}
	switch {
	case m.Version < 1:
		return nil, fmt.Errorf("%s is damaged: version %d", metaFile, m.Version)
	case m.ID != id:
		return nil, fmt.Errorf("%s belongs to %s, not to %s", metaFile, backend.Quote(string(m.ID)), id)
	case m.Content.Size < 0 || m.Charge < 0:
		return nil, fmt.Errorf("%s is damaged: size %d, charge %d", metaFile, m.Content.Size, m.Charge)
	}
	return &m, nil
}

// maxMeta limits the size of a file that is read; metadata has a few hundred bytes.
const maxMeta = 1 << 20

func readMeta(dir *os.Root, id backend.ID) (*meta, error) {
	data, err := readFile(dir, metaFile)
	if err != nil {
		return nil, err
	}
	return parseMeta(data, id)
}

func readFile(dir *os.Root, name string) ([]byte, error) {
	f, err := dir.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxMeta))
}

// writeFile replaces a file atomically.
func writeFile(dir *os.Root, name string, v any) error {
	data, err := encode(v)
	if err != nil {
		return err
	}
	return nodeops.Replace(dir, name, data)
}

// encode indents the JSON, since people read it too.
func encode(v any) ([]byte, error) {
	data, err := json.MarshalIndent(v, "", "  ")
	return append(data, '\n'), err
}
