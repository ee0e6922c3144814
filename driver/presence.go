package driver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// presence is what of one volume is on this host, as far as it can be seen. It tells the volume's mounts from those
// of everyone else, so that no other is ever taken for it or undone in its name.
type presence struct {
	id    backend.ID
	v     *backend.Volume // nil if the backend does not know the volume or cannot say
	loops []string        // devices attached to its image
	dir   os.FileInfo     // its directory
}

// look finds what v's own image or directory is attached to.
func look(v *backend.Volume) (*presence, error) {
	p := &presence{id: v.ID, v: v}
	var err error
	if v.Access.Directory != "" {
		p.dir, err = os.Stat(v.Access.Directory)
	} else {
		p.loops, err = nodeops.LoopsOf(v.Access.Image)
	}
	if err != nil {
		return nil, fmt.Errorf("volume %s: %w", v.ID, err)
	}
	return p, nil
}

// find is look for taking a volume off this host, which must be possible whatever became of the volume.
func (n *node) find(ctx context.Context, id backend.ID) *presence {
	v, err := n.Backend.Get(ctx, id)
	if err == nil {
		var p *presence
		if p, err = look(v); err == nil {
			return p
		}
	}
	n.Log.Warn("taking down a volume that cannot be looked up", "volume", id, "error", err)
	return &presence{id: id}
}

// shows says whether m is a mount of the whole volume.
func (p *presence) shows(m *nodeops.Mount) bool {
	switch {
	case p.v == nil:
		return p.couldShow(m)
	case p.dir != nil:
		if !p.couldBeDirectory(m) {
			return false
		}
		info, err := os.Stat(m.Target)
		return err == nil && os.SameFile(info, p.dir)
	case p.v.Mode == backend.Block:
		return slices.Contains(p.loops, loopNode(m))
	}
	return m.Root == "/" && slices.Contains(p.loops, m.Source)
}

// couldShow is what can be said when the volume is gone: its id is in the path of what is mounted, or was.
func (p *presence) couldShow(m *nodeops.Mount) bool {
	device := loopNode(m)
	if m.Root == "/" && strings.HasPrefix(m.Source, "/dev/loop") {
		device = m.Source
	}
	if device == "" {
		return p.couldBeDirectory(m)
	}
	image, err := nodeops.BackingFile(device)
	return err == nil && strings.Contains(image, "/"+string(p.id))
}

// couldBeDirectory says whether the volume's id is where it is in the path of a volume's directory. The kernel marks
// the path of a directory that was removed.
func (p *presence) couldBeDirectory(m *nodeops.Mount) bool {
	return filepath.Base(filepath.Dir(strings.TrimSuffix(m.Root, "//deleted"))) == string(p.id)
}

// loopMajor is the device number of all loop devices.
const loopMajor = 7

// loopNode returns the loop device whose node m shows, or "".
func loopNode(m *nodeops.Mount) string {
	name := filepath.Base(m.Root)
	if !strings.HasPrefix(name, "loop") {
		return ""
	}
	info, err := os.Stat(m.Target)
	if err != nil || info.Mode()&(os.ModeDevice|os.ModeCharDevice) != os.ModeDevice {
		return ""
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || stat.Rdev>>8&0xfff != loopMajor {
		return ""
	}
	return "/dev/" + name
}

// mounts returns the volume's mounts.
func (p *presence) mounts() ([]nodeops.Mount, error) {
	all, err := nodeops.Mounts()
	return slices.DeleteFunc(all, func(m nodeops.Mount) bool { return !p.shows(&m) }), err
}

// at returns the volume's mount at path, nil if nothing is mounted there, and an error if something else is.
func (p *presence) at(path string) (*nodeops.Mount, error) {
	m, err := nodeops.MountAt(path)
	if err != nil || m == nil {
		return nil, err
	}
	if !p.shows(m) {
		return nil, fmt.Errorf("%w: %s is a mount of %s (%s) and not of volume %s; it is left alone", backend.ErrPrecondition, path, m.Source, m.FSType, p.id)
	}
	return m, nil
}

// release detaches those of devices whose node is not bound anywhere any more: the binds count the uses.
func release(ctx context.Context, devices []string) error {
	all, err := nodeops.Mounts()
	if err != nil {
		return err
	}
	for _, device := range devices {
		used := slices.ContainsFunc(all, func(m nodeops.Mount) bool { return m.Source == device || loopNode(&m) == device })
		if used {
			continue
		}
		if err := nodeops.DetachLoop(ctx, device); err != nil {
			return err
		}
	}
	return nil
}
