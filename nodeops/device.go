package nodeops

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Device is a whole block device of this host.
type Device struct {
	Name       string // such as sda
	Path       string // /dev/NAME
	Number     string // major:minor
	Size       int64
	Model      string // as the device reports it; many virtual ones have none
	ID         string // world wide name or serial number, if it has one
	Rotational bool
	ReadOnly   bool
	Local      bool     // a disk of this host: neither virtual, nor removable, nor on a network
	Partitions []string // names
	Holders    []string // names of the devices built on it
	Appearance string   // identifies the device until the next boot; empty if unknown
}

// Devices returns the whole block devices with a size, sorted by name.
func Devices() ([]Device, error) { return devicesIn("/sys/block") }

func devicesIn(sysfs string) ([]Device, error) {
	entries, err := os.ReadDir(sysfs)
	if err != nil {
		return nil, fmt.Errorf("listing block devices: %w", err)
	}
	var all []Device
	for _, e := range entries {
		d, err := describeDevice(filepath.Join(sysfs, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was removed concurrently
		}
		if err != nil {
			return nil, fmt.Errorf("block device %s: %w", e.Name(), err)
		}
		if d.Size > 0 {
			all = append(all, d)
		}
	}
	slices.SortFunc(all, func(x, y Device) int { return compareNames(x.Name, y.Name) })
	return all, nil
}

// compareNames sorts sdb before sdaa.
func compareNames(x, y string) int { return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y)) }

func describeDevice(dir string) (Device, error) {
	// In sysfs, "!" replaces a "/" in the name below /dev.
	name := strings.ReplaceAll(filepath.Base(dir), "!", "/")
	d := Device{Name: name, Path: "/dev/" + name}
	if attribute(dir, "size") == "0" {
		return d, nil // such as hundreds of unused loop devices
	}
	place, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return d, err
	}
	number, err := os.ReadFile(filepath.Join(dir, "dev"))
	if err != nil {
		return d, err
	}
	sectors, err := strconv.ParseInt(attribute(dir, "size"), 10, 64)
	if err != nil {
		return d, err
	}
	const sector = 512 // unit of this file, regardless of the device
	d.Number, d.Size = strings.TrimSpace(string(number)), sectors*sector
	d.Appearance = appearance(dir, d.Path, d.Number)
	d.Model = attribute(dir, "device/model")
	d.ID = cmp.Or(attribute(dir, "wwid"), attribute(dir, "device/wwid"), attribute(dir, "device/serial"), attribute(dir, "serial"))
	d.Rotational, d.ReadOnly = attribute(dir, "queue/rotational") == "1", attribute(dir, "ro") == "1"
	d.Local = attribute(dir, "removable") != "1" && !isVirtual(place) && !isRemote(dir, place)
	d.Partitions = partitions(dir)
	holders, err := os.ReadDir(filepath.Join(dir, "holders"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return d, err
	}
	for _, h := range holders {
		d.Holders = append(d.Holders, h.Name())
	}
	return d, nil
}

// attribute returns "" if the device does not have it.
func attribute(dir, name string) string {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	return strings.Join(strings.Fields(string(b)), " ")
}

func partitions(dir string) (names []string) {
	found, _ := filepath.Glob(filepath.Join(dir, "*", "partition")) // the pattern is valid
	for _, f := range found {
		names = append(names, filepath.Base(filepath.Dir(f)))
	}
	return names
}

// isVirtual recognizes devices that the kernel creates from files, memory and other devices. NVMe disks with multipath
// are below the same directory.
func isVirtual(place string) bool {
	return strings.Contains(place, "/devices/virtual/") && !strings.Contains(place, "/nvme-subsystem/") || strings.Contains(place, "/devices/rbd/")
}

// isRemote recognizes iSCSI, Fibre Channel and NVMe over Fabrics.
func isRemote(dir, place string) bool {
	if strings.Contains(place, "/session") || strings.Contains(place, "/rport-") {
		return true
	}
	ways, _ := filepath.Glob(filepath.Join(dir, "device", "nvme*", "transport")) // the pattern is valid
	for _, way := range append(ways, filepath.Join(dir, "device", "transport")) {
		if t := attribute(filepath.Dir(way), "transport"); t != "" && t != "pcie" {
			return true
		}
	}
	return false
}
