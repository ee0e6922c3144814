package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/holdfast-storage/holdfast/nodeops"
)

// boot is what was there when this program first ran since the host was booted. There is no record of earlier moments:
// the kernel keeps no reliable time of a device's appearance, and not every host has udev.
type boot struct {
	ID      string   `json:"boot"`
	Devices []string `json:"devices"` // their appearances
}

// NoteDevices writes down the devices that are there, once for each boot of the host. Call it when the program starts:
// a later device may be a volume of another system, and is used for a pool only if it is named.
func (h *Host) NoteDevices() error {
	_, err := h.booted()
	return err
}

func (h *Host) booted() (*boot, error) {
	id, err := nodeops.BootID()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(h.records(), 0o700); err != nil {
		return nil, err
	}
	file := filepath.Join(h.records(), ".boot.json")
	var b boot
	err = readJSON(file, &b)
	if err == nil && b.ID == id {
		return &b, nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("the disks that were present at boot are not known: %w; name the disk by paths or model, or boot the host and remove the file", err)
	}
	all, err := h.list()
	if err != nil {
		return nil, err
	}
	b = boot{ID: id}
	for _, d := range all {
		if d.Appearance != "" {
			b.Devices = append(b.Devices, d.Appearance)
		}
	}
	return &b, writeJSON(file, b)
}

// had says whether a device was there.
func (b *boot) had(d *nodeops.Device) bool { return slices.Contains(b.Devices, d.Appearance) }

// list is of the devices of the host.
func (h *Host) list() ([]nodeops.Device, error) {
	if h.devices != nil {
		return h.devices()
	}
	return nodeops.Devices()
}
