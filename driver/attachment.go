package driver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// attachment is the way in which a volume is attached to this host: imageAttachment, directoryAttachment and rbdAttachment, whose
// file systems are those of this host, and cephFSAttachment and nfsAttachment, whose file systems are those of a server.
type attachment interface {
	// is reports whether m is a mount of the whole volume.
	is(m *nodeops.Mount) bool
	// verify fails unless m, which is nil if there is none, is how the volume is to be staged in a directory.
	verify(m *nodeops.Mount, staging string) error
	// mount mounts the volume at a directory, or its device at the file deviceFile, completely or not at all.
	mount(ctx context.Context, a access, target string) error
	// complete does what the process that mounted m may not have done before it was killed.
	complete(ctx context.Context, a access, m *nodeops.Mount) error
	// record records the client of a Ceph cluster through which m is used, if there is one.
	record(ctx context.Context, m *nodeops.Mount) error
	// setGroup makes what is mounted writable for a group.
	setGroup(ctx context.Context, m *nodeops.Mount, group int) error
	// bind bind-mounts at target what is staged.
	bind(ctx context.Context, staged *nodeops.Mount, target string, readOnly bool, options []string) error
	// grow makes what is mounted as large as the volume.
	grow(ctx context.Context, m *nodeops.Mount) error
	// stats returns the usage of what is mounted, and its condition.
	stats(ctx context.Context, m *nodeops.Mount) ([]*csi.VolumeUsage, backend.Condition, error)
}

// mountState is the visible state of one volume on this host. It distinguishes the volume's mounts from those of everyone
// else, so that no other is ever taken for it or undone in its name.
type mountState struct {
	attachment // nil if v is
	id         backend.ID
	v          *backend.Volume // nil if the backend does not know the volume or cannot say
	devices    uses            // that are attached to its image
	gone       bool            // the backend says that there is no such volume
	byName     bool            // what lies where the volume was is its own too, though it may be gone
}

// stateOf asks the kernel how a volume is attached.
func (n *node) stateOf(v *backend.Volume) (p *mountState, err error) {
	p = &mountState{id: v.ID, v: v}
	switch a := v.Access; {
	case a.Directory != "":
		var info os.FileInfo
		info, err = os.Stat(a.Directory)
		p.attachment = directoryAttachment{hostFS{n: n, v: v, grown: true}, info}
	case a.NFS != nil:
		p.attachment = newNFSAttachment(n, v)
	case a.CephFS != nil:
		p.attachment = newCephFSAttachment(n, v)
	case a.RBD != nil:
		p.devices, err = devicesOf(v)
		p.attachment = rbdAttachment{hostFS{n: n, v: v, devices: p.devices}}
	default:
		p.devices, err = loopsOf(v)
		p.attachment = imageAttachment{hostFS{n: n, v: v, devices: p.devices, grown: v.FSSize == v.Size}}
	}
	if err != nil {
		return nil, fmt.Errorf("volume %s: %w", v.ID, err)
	}
	return p, nil
}

// place is where a volume is mounted that is staged in a directory.
func (p *mountState) place(staging string) string {
	if p.v.Mode == backend.Block {
		return filepath.Join(staging, deviceFile)
	}
	return staging
}

// shows reports whether m is a mount of the whole volume.
func (p *mountState) shows(m *nodeops.Mount) bool {
	return p.v != nil && p.is(m) || p.byName && p.was(m)
}

// was goes by the path of what is mounted, which the kernel keeps when the volume is gone.
func (p *mountState) was(m *nodeops.Mount) bool {
	device := nodeops.AttachedNode(m)
	if device == "" && m.Root == "/" {
		device = nodeops.AttachedUnder(m)
	}
	if device == "" {
		return inEntry(m.Root, p.id)
	}
	if nodeops.IsRBD(device) {
		d, err := nodeops.RBDAt(device)
		return err == nil && d != nil && p.v == nil && d.Image == backend.RBDImage(p.id)
	}
	image, err := nodeops.BackingFile(device)
	return err == nil && inEntry(image, p.id)
}

// inEntry says whether path is that of a file or directory in the volume's entry of a pool: the entry bears the
// volume's id, and has it between dots in the trash. The kernel marks the path of a directory that was removed.
func inEntry(path string, id backend.ID) bool {
	entry := filepath.Base(filepath.Dir(strings.TrimSuffix(path, "//deleted")))
	return strings.Contains("."+entry+".", "."+string(id)+".")
}

// mounts returns the volume's mounts.
func (p *mountState) mounts() ([]nodeops.Mount, error) {
	all, err := nodeops.Mounts()
	return slices.DeleteFunc(all, func(m nodeops.Mount) bool { return !p.shows(&m) }), err
}

// at returns the volume's mount at path, nil if nothing is mounted there, and an error if something else is.
func (p *mountState) at(path string) (*nodeops.Mount, error) {
	m, err := nodeops.MountAt(path)
	if err != nil {
		return nil, err
	}
	return p.own(m, path)
}

// own is at for what is mounted there.
func (p *mountState) own(m *nodeops.Mount, path string) (*nodeops.Mount, error) {
	if m != nil && !p.shows(m) {
		return nil, fmt.Errorf("%w: %s is a mount of %s (%s) and not of volume %s; it is left alone", backend.ErrPrecondition, path, m.Source, m.FSType, p.id)
	}
	return m, nil
}
