package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/holdfast-storage/holdfast/nodeops"
)

// boot lists the devices that were present when this program first ran after the boot of the host. Earlier times are
// not available: the kernel has no reliable time of a device's appearance, and not every host has udev.
type boot struct {
	ID      string   `json:"boot"`
	Devices []string `json:"devices"` // their Appearance
}

// NoteDevices records the devices that are present, once per boot of the host. Call it when the program starts: a
// device that appears later may be a volume of another driver, and is used for a pool only if the selector names it.
func (h *Host) NoteDevices() error {
	_, err := h.booted()
	return err
}

func (h *Host) booted() (*boot, error) {
	b, err := h.noted()
	if b != nil || err != nil {
		return b, err
	}
	if err := os.MkdirAll(h.records(), 0o700); err != nil {
		return nil, err
	}
	all, err := h.list()
	if err != nil {
		return nil, err
	}
	b = bootWith(all)
	if b.ID, err = nodeops.BootID(); err != nil {
		return nil, err
	}
	return b, writeJSON(h.bootFile(), b)
}

func (h *Host) bootFile() string { return filepath.Join(h.records(), ".boot.json") }

// noted returns nil if nothing is recorded since the boot.
func (h *Host) noted() (*boot, error) {
	id, err := nodeops.BootID()
	if err != nil {
		return nil, err
	}
	var b boot
	err = readJSON(h.bootFile(), &b)
	switch {
	case errors.Is(err, os.ErrNotExist), err == nil && b.ID != id:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("the disks that were present at boot are not known: %w; name the disk by paths or model, or boot the host and remove the file", err)
	}
	return &b, nil
}

func bootWith(devices []nodeops.Device) *boot {
	b := &boot{}
	for _, d := range devices {
		if d.Appearance != "" {
			b.Devices = append(b.Devices, d.Appearance)
		}
	}
	return b
}

// hasDevice returns whether a device was present at boot.
func (b *boot) hasDevice(d *nodeops.Device) bool { return slices.Contains(b.Devices, d.Appearance) }

// list lists the devices of the host.
func (h *Host) list() ([]nodeops.Device, error) {
	if h.devices != nil {
		return h.devices()
	}
	return nodeops.Devices()
}
