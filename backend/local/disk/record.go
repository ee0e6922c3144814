package disk

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// markFile is a file at the root of a disk. Package local has the same name for it.
const markFile = "disk.json"

// mark identifies the pool of a disk. It is stored on the disk.
type mark struct {
	Pool    string `json:"pool"`
	Cluster string `json:"cluster"`
	UUID    string `json:"uuid"`
	Node    string `json:"node"` // that formatted it; disks may be moved
}

func (m mark) String() string {
	b, _ := json.Marshal(m) // four strings
	return string(b)
}

// identity returns the part of the mark that identifies the disk.
func (m mark) identity() mark {
	m.Node = ""
	return m
}

// record is what a host stores about a disk.
type record struct {
	mark
	// Ready is set when the mark is on the disk. Before that, the disk has no data.
	Ready bool `json:"ready"`

	// Device and the fields below describe the disk to people; device names change.
	Device string `json:"device"`
	Model  string `json:"model,omitempty"`
	ID     string `json:"id,omitempty"`
	Size   int64  `json:"size"`
}

func (r *record) String() string {
	s := fmt.Sprintf("UUID %s, %d bytes, was %s", r.UUID, r.Size, r.Device)
	if r.Model != "" {
		s += ", model " + r.Model
	}
	if r.ID != "" {
		s += ", id " + r.ID
	}
	return s
}

func (h *Host) records() string { return filepath.Join(h.Dir, "disks") }

func (h *Host) file(pool string) string { return filepath.Join(h.records(), pool+".json") }

// recorded returns the record of a pool's disk; nil if no disk was selected.
func (h *Host) recorded(pool string) (*record, error) {
	var r record
	err := readJSON(h.file(pool), &r)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err == nil && (r.Pool != pool || r.UUID == "" || r.Cluster == "") {
		err = fmt.Errorf("it is that of pool %s, UUID %s, cluster %s", backend.Quote(r.Pool), backend.Quote(r.UUID), backend.Quote(r.Cluster))
	}
	if err != nil {
		return nil, fmt.Errorf("%w: the record of its disk, %s, is damaged (%w); remove the file, and the disk is found by what is written on it", backend.ErrUnavailable, h.file(pool), err)
	}
	return &r, nil
}

// HasDisk says whether a disk was chosen for a pool.
func (h *Host) HasDisk(pool string) bool {
	r, err := h.recorded(pool)
	return r != nil || err != nil
}

func (h *Host) save(r *record) error {
	return writeJSON(h.file(r.Pool), r)
}

func (h *Host) forget(r *record) error {
	return nodeops.RemoveFile(h.file(r.Pool))
}

func readMark(place string) (m mark, err error) {
	return m, readJSON(filepath.Join(place, markFile), &m)
}

func (m mark) write(place string) error { return writeJSON(filepath.Join(place, markFile), m) }

// checkEmpty fails if a directory is not empty, except for what an interrupted markDisk left.
func checkEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() != markFile+".new" {
			return fmt.Errorf("%w: %s contains %s; move it away", backend.ErrPrecondition, dir, backend.Quote(e.Name()))
		}
	}
	return nil
}

func readJSON(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// writeJSON replaces a file atomically.
func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return nodeops.ReplaceFile(path, append(b, '\n'))
}
