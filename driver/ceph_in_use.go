package driver

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// isCephPath says whether a directory of a CephFS is that of a volume, or lies in it.
func isCephPath(path string, id backend.ID) bool {
	return slices.ContainsFunc(strings.Split(path, "/"), func(name string) bool { return isCephName(name, id) })
}

// isCephName: Ceph makes volumes as /volumes/GROUP/ID/UUID, or ID.NUMBER where ID is taken, as by a volume in the trash. IDs
// have no point.
func isCephName(name string, id backend.ID) bool {
	name, number, numbered := strings.Cut(name, ".")
	_, err := strconv.ParseUint(number, 10, 32)
	return name == string(id) && (!numbered || err == nil)
}

// idInCephPath returns the ID of the volume whose directory a path is, "" if it cannot be that of any.
func idInCephPath(path string) backend.ID {
	const volumes, id = 1, 3
	names := strings.Split(path, "/")
	if len(names) <= id || names[volumes] != "volumes" {
		return ""
	}
	name, _, _ := strings.Cut(names[id], ".")
	if found, err := backend.ParseID(name); err == nil && isCephName(names[id], found) {
		return found
	}
	return ""
}

// CephVolumesInUse returns which volumes in Ceph clusters the kernel of this host has a device or a mount of, as a driver of a
// name staged them, and the clients that it uses. A client of CephFS is returned only with volumes that are not recorded: their
// mounts say which it is, and their cluster may be dead. It fails if one of these does not answer before ctx ends.
func CephVolumesInUse(ctx context.Context, driver string, recorded []string) (has []string, clients []nodeops.CephClient, err error) {
	devices, err := nodeops.RBDDevices()
	if err != nil {
		return nil, nil, err
	}
	for i := range devices {
		d := &devices[i]
		id, err := backend.ParseID(strings.TrimPrefix(d.Image, backend.RBDImage("")))
		if err == nil && d.Image == backend.RBDImage(id) && d.Snapshot == "" {
			has, clients = append(has, string(id)), append(clients, d.Client)
		}
	}
	mounts, err := nodeops.Mounts()
	if err != nil {
		return nil, nil, err
	}
	mounted, unknown := cephFSInUse(mounts, driver, recorded)
	found, err := cephFSClients(ctx, unknown)
	return append(has, mounted...), append(clients, found...), err
}

// cephFSInUse returns the volumes of CephFS that are mounted, and a mount of each that is not recorded.
func cephFSInUse(mounts []nodeops.Mount, driver string, recorded []string) (has []string, unknown []nodeops.Mount) {
	for i := range mounts {
		m := &mounts[i]
		path := nodeops.CephFSPath(m)
		if path == "" {
			continue
		}
		n := slices.IndexFunc(recorded, func(v string) bool { return isCephPath(path, backend.ID(v)) })
		if n >= 0 {
			has = append(has, recorded[n])
			continue
		}
		if id := idInCephPath(path); id != "" && isStagedBy(mounts, m.Device, driver) {
			has = append(has, string(id))
			if !slices.ContainsFunc(unknown, func(other nodeops.Mount) bool { return other.Device == m.Device }) {
				unknown = append(unknown, *m)
			}
		}
	}
	slices.Sort(has)
	return slices.Compact(has), unknown
}

// isStagedBy says whether a file system is that of a driver: the kubelet has each driver stage its volumes in a directory with
// its name. One that only pods have is taken for one of this driver, since their directories do not say whose they are.
func isStagedBy(mounts []nodeops.Mount, device, driver string) bool {
	const staged, published = "/plugins/kubernetes.io/csi/", "/volumes/kubernetes.io~csi/"
	inPod := false
	for i := range mounts {
		m := &mounts[i]
		if m.Device != device {
			continue
		}
		if _, by, found := strings.Cut(m.Target, staged); found {
			return strings.HasPrefix(by, driver+"/")
		}
		inPod = inPod || strings.Contains(m.Target, published)
	}
	return inPod
}

// cephFSClients asks all mounts at once: each may hang.
func cephFSClients(ctx context.Context, mounts []nodeops.Mount) ([]nodeops.CephClient, error) {
	clients, errs := make([]nodeops.CephClient, len(mounts)), make([]error, len(mounts))
	var asked sync.WaitGroup
	for i := range mounts {
		asked.Go(func() { clients[i], errs[i] = nodeops.CephFSClient(ctx, &mounts[i]) })
	}
	asked.Wait()
	return clients, errors.Join(errs...)
}
