package disk

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfast-storage/holdfast/nodeops"
)

// State is what a pool of devices would do with a disk.
type State string

// The states.
const (
	OfPool    State = "Pool"    // it is that of a pool
	WouldTake State = "Take"    // it would be formatted for a pool with the selector
	Free      State = "Free"    // it is empty, and the selector takes others first
	Refused   State = "Refused" // it is not certainly free
	Unmatched State = "Unmatched"
)

// Sight is a disk of the host as a pool of devices sees it.
type Sight struct {
	Path       string `json:"path"`
	Size       int64  `json:"size"`
	Model      string `json:"model,omitempty"`
	ID         string `json:"id,omitempty"`
	Rotational bool   `json:"rotational"`
	State      State  `json:"state"`
	Why        string `json:"why,omitempty"` // the pool's name, or why it is not taken
}

// Look says of each disk whether a new pool with a selector and so many devices would take it. It changes nothing.
func (h *Host) Look(ctx context.Context, which nodeops.DeviceSelector, count int) ([]Sight, error) {
	all, err := h.list()
	if err != nil {
		return nil, err
	}
	meant, err := which.Select(all)
	if err != nil {
		return nil, err
	}
	b, err := h.noted()
	if err != nil {
		return nil, err
	}
	if b == nil { // the agent has noted none yet: it will, when it starts
		b = bootWith(all)
	}
	j, err := h.judge(ctx, which, all, b)
	if err != nil {
		return nil, err
	}
	pools, err := h.byUUID()
	if err != nil {
		return nil, err
	}
	var sights []Sight
	see := func(d nodeops.Device, state State, why string) {
		sights = append(sights, Sight{d.Path, d.Size, d.Model, d.ID, d.Rotational, state, why})
	}
	for _, d := range meant { // in the order in which they are tried
		if pool := pools.of(&d); pool != "" {
			see(d, OfPool, pool)
		} else if why := j.whyUnfit(ctx, d); why != nil {
			see(d, Refused, why.Error())
		} else if count > 0 {
			count--
			see(d, WouldTake, "")
		} else {
			see(d, Free, "")
		}
	}
	for _, d := range all {
		isMeant := slices.ContainsFunc(meant, func(m nodeops.Device) bool { return m.Number == d.Number })
		switch pool := pools.of(&d); {
		case isMeant, pool == "" && neverADisk(d.Name):
		case pool != "":
			see(d, OfPool, pool)
		case !d.Local && len(which.Paths) == 0:
			see(d, Unmatched, "it is removable, on a network or virtual: only paths can name it")
		default:
			see(d, Unmatched, "the selector does not match it")
		}
	}
	return sights, nil
}

// neverADisk leaves out what a kernel has by the hundred.
func neverADisk(name string) bool {
	return slices.ContainsFunc([]string{"loop", "ram", "zram", "nbd"}, func(kind string) bool { return strings.HasPrefix(name, kind) })
}

// poolsByUUID are those that have a disk on record.
type poolsByUUID map[string]string

func (h *Host) byUUID() (poolsByUUID, error) {
	files, err := filepath.Glob(filepath.Join(h.records(), "[a-z0-9]*.json"))
	if err != nil {
		return nil, err
	}
	pools := poolsByUUID{}
	for _, file := range files {
		r, err := h.recorded(strings.TrimSuffix(filepath.Base(file), ".json"))
		if err != nil {
			return nil, fmt.Errorf("which disks are those of pools is not known: %w", err)
		}
		if r != nil {
			pools[r.UUID] = r.Pool
		}
	}
	return pools, nil
}

func (p poolsByUUID) of(d *nodeops.Device) string {
	head, err := nodeops.ReadXFSHead(d.Path)
	if err != nil || head == nil {
		return ""
	}
	return p[head.UUID]
}
