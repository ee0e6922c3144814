package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/crashpoint"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// rbdAttachment is of an image in a Ceph cluster, which has a device of RBD.
type rbdAttachment struct{ hostFS }

func (r rbdAttachment) mount(ctx context.Context, a access, target string) error {
	if r.v.Mode == backend.Block {
		return r.mountNode(ctx, a, target, r.attach)
	}
	d, err := r.n.mapImage(ctx, r.v, a.readOnly())
	if err != nil {
		return err
	}
	if err := r.mountDevice(ctx, a, d.Path, target); err != nil {
		return errors.Join(err, r.n.unmapImage(context.WithoutCancel(ctx), d))
	}
	return nil
}

// complete records the client again, as the record may have been lost since.
func (r rbdAttachment) complete(ctx context.Context, a access, m *nodeops.Mount) error {
	if err := r.record(ctx, m); err != nil {
		return err
	}
	return r.hostFS.complete(ctx, a, m)
}

func (r rbdAttachment) record(ctx context.Context, _ *nodeops.Mount) error {
	for _, is := range r.devices {
		if err := r.n.recordCephClient(ctx, r.v.ID, is.rbd.Client); err != nil {
			return err
		}
	}
	return nil
}

func (r rbdAttachment) attach(ctx context.Context, readOnly bool) (device string, err error) {
	d, err := r.n.mapImage(ctx, r.v, readOnly)
	if err != nil {
		return "", err
	}
	return d.Path, nil
}

func rbdOf(v *backend.Volume, at nodeops.Ceph) nodeops.RBD {
	r := v.Access.RBD
	return nodeops.RBD{Cluster: at, Pool: r.Pool, Namespace: r.Namespace, Image: r.Image, ImageID: r.ImageID}
}

// devicesOf asks the kernel for the devices of a volume's image.
func devicesOf(v *backend.Volume) (uses, error) {
	if v.Access.RBD.Image != backend.RBDImage(v.ID) { // by it alone its devices are known when the backend does not answer
		return nil, fmt.Errorf("%w: the image of volume %s is called %s; it must bear the id of the volume: %s", backend.ErrPrecondition, v.ID, backend.Quote(v.Access.RBD.Image), backend.RBDImage(v.ID))
	}
	r := rbdOf(v, cluster(v.Access.RBD.Cluster))
	devices, err := r.Devices()
	if err != nil {
		return nil, fmt.Errorf("%w: volume %s: %w", backend.ErrPrecondition, v.ID, err)
	}
	all := uses{}
	for i := range devices {
		all[devices[i].Path] = use{rbd: &devices[i]}
	}
	return all, nil
}

// mapImage makes a device of a volume's image, or finds the one that there is.
func (n *node) mapImage(ctx context.Context, v *backend.Volume, readOnly bool) (*nodeops.RBDDevice, error) {
	ctx, cancel := context.WithTimeout(ctx, n.Patience)
	defer cancel()
	at, err := n.ceph(ctx, v.ID, v.Access.RBD.Cluster)
	if err != nil {
		return nil, err
	}
	r := rbdOf(v, at)
	r.ReadOnly = readOnly
	d, err := nodeops.MapRBD(ctx, r)
	if err != nil {
		return nil, n.cephError(v.ID, err)
	}
	crashpoint.Here(crashpoint.ImageMapped)
	err = n.recordCephClient(ctx, v.ID, d.Client)
	if err == nil && !readOnly && d.Size < v.Size { // it was mapped before it was grown
		err = nodeops.GrowRBD(ctx, d.Path)
	}
	if err != nil {
		return nil, errors.Join(err, n.unmapImage(context.WithoutCancel(ctx), d))
	}
	return d, nil
}

// unmapImage leaves alone what is in use.
func (n *node) unmapImage(ctx context.Context, d *nodeops.RBDDevice) error {
	ctx, cancel := context.WithTimeout(ctx, n.Patience)
	defer cancel()
	err := nodeops.UnmapRBD(ctx, d)
	if errors.Is(err, unix.EBUSY) {
		return nil
	}
	return err
}

// images are the devices in Ceph clusters that are used where a volume is staged that cannot be looked up: another one that bears
// its id may be a stranger's, and is only taken for one once the volume is known to be gone.
func (p *mountState) images(staged ...string) (uses, error) {
	all, err := nodeops.RBDDevices()
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(d nodeops.RBDDevice) bool { return d.Image != backend.RBDImage(p.id) || d.Snapshot != "" })
	if len(all) == 0 {
		return uses{}, nil
	}
	mounts, err := mountsAt(staged...)
	if err != nil {
		return nil, err
	}
	own := uses{}
	for i, d := range all {
		if slices.ContainsFunc(mounts, func(m nodeops.Mount) bool {
			return nodeops.AttachedNode(&m) == d.Path || m.Root == "/" && nodeops.AttachedUnder(&m) == d.Path
		}) {
			own[d.Path] = use{rbd: &all[i]}
		}
	}
	if len(own) == 0 && !p.gone {
		return nil, fmt.Errorf("%w: %s (%s) is not unmapped: it may be the device of volume %s, whose Volume cannot be read now; the kubelet tries again", backend.ErrUnavailable, all[0].Path, &all[0], p.id)
	}
	return own, nil
}

// mountsAt are the mounts at those of the paths that have one. Nothing of ours is mounted below a file system that has failed.
func mountsAt(paths ...string) (all []nodeops.Mount, err error) {
	for _, path := range paths {
		m, err := nodeops.MountAt(path)
		switch {
		case errors.Is(err, unix.EIO):
		case err != nil:
			return nil, err
		case m != nil:
			all = append(all, *m)
		}
	}
	return all, nil
}
