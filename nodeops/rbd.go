package nodeops

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const rbdBus = "/sys/bus/rbd"

// RBD is an image in a pool of a Ceph cluster, or one of its snapshots.
type RBD struct {
	Cluster   Ceph
	Pool      string
	Namespace string // of the pool; empty is the one without a name
	Image     string
	ImageID   string // which a later image of the same name does not have; empty if it is not known
	Snapshot  string // which can only be read; empty is the image
	ReadOnly  bool   // the image is not watched or locked either, so that its device never learns of its growth
}

// RBDDevice is the device of an image as the kernel knows it.
type RBDDevice struct {
	Path      string // /dev/rbdN
	Number    string // major:minor
	FSID      string
	Pool      string
	Namespace string
	Image     string
	ImageID   string
	Snapshot  string
	Client    CephClient
	Size      int64
	ReadOnly  bool

	id string // N
}

// String is how Ceph writes it.
func (r *RBD) String() string { return imageSpec(r.Pool, r.Namespace, r.Image, r.Snapshot) }

func (d *RBDDevice) String() string {
	return imageSpec(d.Pool, d.Namespace, d.Image, d.Snapshot) + " of the Ceph cluster " + d.FSID
}

func imageSpec(pool, namespace, image, snapshot string) string {
	spec := pool + "/"
	if namespace != "" {
		spec += namespace + "/"
	}
	if spec += image; snapshot != "" {
		spec += "@" + snapshot
	}
	return spec
}

func (r *RBD) check() error {
	words := map[string]string{"pool": r.Pool, "image": r.Image}
	if r.Namespace != "" {
		words["namespace"] = r.Namespace
	}
	if r.Snapshot != "" {
		words["snapshot"] = r.Snapshot
	}
	for what, word := range words {
		if err := cephWord(what, word); err != nil {
			return err
		}
	}
	return r.Cluster.check()
}

// names says whether a device bears the names of the image. Whether it is that image is another question.
func (r *RBD) names(d *RBDDevice) bool {
	return d.FSID == r.Cluster.FSID && d.Pool == r.Pool && d.Namespace == r.Namespace && d.Image == r.Image && d.Snapshot == r.Snapshot
}

// shownBy says whether a device shows the image, and fails where it shows another one of its name.
func (r *RBD) shownBy(d *RBDDevice) (bool, error) {
	if !r.names(d) {
		return false, nil
	}
	if r.ImageID != "" && d.ImageID != r.ImageID {
		return false, fmt.Errorf("%s shows another image called %s, with the id %s; that of the volume is %s; find out who has mapped it and unmap it", d.Path, r, d.ImageID, r.ImageID)
	}
	return true, nil
}

// Devices returns the devices of an image on this host.
func (r *RBD) Devices() ([]RBDDevice, error) {
	all, err := RBDDevices()
	if err != nil {
		return nil, err
	}
	var devices []RBDDevice
	for _, d := range all {
		switch is, err := r.shownBy(&d); {
		case err != nil:
			return nil, err
		case is:
			devices = append(devices, d)
		}
	}
	return devices, nil
}

// RBDDevices returns the devices of all images on this host. A kernel without the module has none.
func RBDDevices() ([]RBDDevice, error) {
	dir := filepath.Join(rbdBus, "devices")
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing the devices of RBD: %w", err)
	}
	var devices []RBDDevice
	for _, e := range entries {
		d, err := readRBD(filepath.Join(dir, e.Name()))
		if gone(err) {
			continue // it was unmapped in between
		}
		if err != nil {
			return nil, fmt.Errorf("reading what the kernel says of the device %s of RBD: %w", e.Name(), err)
		}
		devices = append(devices, *d)
	}
	slices.SortFunc(devices, func(x, y RBDDevice) int { return compareNames(x.id, y.id) })
	return devices, nil
}

// RBDAt returns what a device such as /dev/rbd0 shows, nil if it is none of RBD.
func RBDAt(device string) (*RBDDevice, error) {
	name := filepath.Base(device)
	if !rbdName.MatchString(name) {
		return nil, nil //nolint:nilnil // as said
	}
	d, err := readRBD(filepath.Join(rbdBus, "devices", strings.TrimPrefix(name, "rbd")))
	if gone(err) {
		return nil, nil //nolint:nilnil // as said
	}
	return d, err
}

var rbdName = regexp.MustCompile(`^rbd[0-9]+$`)

const noSnapshot = "-" // in the kernel's words

func readRBD(dir string) (*RBDDevice, error) {
	id := filepath.Base(dir)
	d := &RBDDevice{Path: "/dev/rbd" + id, id: id}
	var major, minor, size string
	for name, to := range map[string]*string{
		"cluster_fsid": &d.FSID, "pool": &d.Pool, "pool_ns": &d.Namespace, "name": &d.Image, "image_id": &d.ImageID, "current_snap": &d.Snapshot,
		"client_id": &d.Client.ID, "client_addr": &d.Client.Address, "major": &major, "minor": &minor, "size": &size,
	} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		*to = strings.TrimSuffix(string(b), "\n")
	}
	d.Client.FSID = d.FSID
	if d.Snapshot == noSnapshot {
		d.Snapshot = ""
	}
	if number, found := strings.CutPrefix(d.Client.ID, "client"); found {
		d.Client.ID = "client." + number
	}
	var err error
	if d.Size, err = strconv.ParseInt(size, 10, 64); err != nil {
		return nil, err
	}
	d.Number = major + ":" + minor
	d.ReadOnly = attribute(filepath.Join("/sys/dev/block", d.Number), "ro") == "1"
	return d, nil
}
