package driver

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// mountState is the visible state of one volume on this host. It distinguishes the volume's mounts from those of everyone
// else, so that no other is ever taken for it or undone in its name.
type mountState struct {
	id      backend.ID
	v       *backend.Volume // nil if the backend does not know the volume or cannot say
	devices uses            // that are attached to its image
	dir     os.FileInfo     // its directory
	gone    bool            // the backend says that there is no such volume
	byName  bool            // what lies where the volume was is its own too, though it may be gone
	shared  bool            // it is on a server, and only the mount table is looked at
}

// look finds what v's own image or directory is attached to.
func look(v *backend.Volume) (*mountState, error) {
	p := &mountState{id: v.ID, v: v}
	var err error
	switch {
	case v.Access.Directory != "":
		p.dir, err = os.Stat(v.Access.Directory)
	case v.Access.CephFS != nil:
		p.shared = true
	case v.Access.RBD != nil:
		p.devices, err = devicesOf(v)
	default:
		p.devices, err = loopsOf(v)
	}
	if err != nil {
		return nil, fmt.Errorf("volume %s: %w", v.ID, err)
	}
	return p, nil
}

// shows says whether m is a mount of the whole volume.
func (p *mountState) shows(m *nodeops.Mount) bool {
	if p.shared {
		return isOfServer(m, p.id)
	}
	return p.is(m) || p.byName && p.was(m)
}

// loopsOf asks the kernel for the devices of a volume's image.
func loopsOf(v *backend.Volume) (uses, error) {
	file, err := nodeops.FileAt(v.Access.Image)
	if err != nil {
		return nil, err
	}
	loops, err := nodeops.LoopsOf(v.Access.Image)
	all := uses{}
	for _, device := range loops {
		all[device] = use{file: file, ends: v.Mode != backend.Block}
	}
	return all, err
}

func (p *mountState) is(m *nodeops.Mount) bool {
	switch {
	case p.v == nil:
		return false
	case p.dir != nil:
		if !p.inEntry(m.Root) {
			return false // and is not touched: a stranger's mount may hang
		}
		info, err := os.Stat(m.Target)
		return err == nil && os.SameFile(info, p.dir)
	case p.v.Mode == backend.Block:
		_, is := p.devices[nodeops.AttachedNode(m)]
		return is
	case m.Root != "/":
		return false
	}
	_, is := p.devices[nodeops.AttachedUnder(m)]
	return is
}

// was goes by the path of what is mounted, which the kernel keeps when the volume is gone.
func (p *mountState) was(m *nodeops.Mount) bool {
	device := nodeops.AttachedNode(m)
	if device == "" && m.Root == "/" {
		device = nodeops.AttachedUnder(m)
	}
	if device == "" {
		return p.inEntry(m.Root)
	}
	if nodeops.IsRBD(device) {
		d, err := nodeops.RBDAt(device)
		return err == nil && d != nil && p.v == nil && d.Image == backend.RBDImage(p.id)
	}
	image, err := nodeops.BackingFile(device)
	return err == nil && p.inEntry(image)
}

// inEntry says whether path is that of a file or directory in the volume's entry of a pool: the entry bears the
// volume's id, and has it between dots in the trash. The kernel marks the path of a directory that was removed.
func (p *mountState) inEntry(path string) bool {
	entry := filepath.Base(filepath.Dir(strings.TrimSuffix(path, "//deleted")))
	return strings.Contains("."+entry+".", "."+string(p.id)+".")
}

// mounts returns the volume's mounts.
func (p *mountState) mounts() ([]nodeops.Mount, error) {
	all, err := nodeops.Mounts()
	return slices.DeleteFunc(all, func(m nodeops.Mount) bool { return !p.shows(&m) }), err
}

// at returns the volume's mount at path, nil if nothing is mounted there, and an error if something else is.
func (p *mountState) at(path string) (*nodeops.Mount, error) {
	m, err := nodeops.MountAt(path)
	if err != nil || m == nil {
		return nil, err
	}
	if !p.shows(m) {
		return nil, fmt.Errorf("%w: %s is a mount of %s (%s) and not of volume %s; it is left alone", backend.ErrPrecondition, path, m.Source, m.FSType, p.id)
	}
	return m, nil
}
