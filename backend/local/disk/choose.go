package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/crashpoint"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// choose selects the disk of a pool that has no record: the disk with the mark of the pool, or, for a new pool, the
// first empty one.
func (h *Host) choose(ctx context.Context, pool string, which nodeops.DeviceSelector, e backend.PoolExpectation) error {
	if err := h.checkPlaceEmpty(pool); err != nil {
		return err
	}
	cluster, err := h.Cluster(ctx)
	if err != nil {
		return fmt.Errorf("%w: a disk is chosen for a cluster, and the identity of this one is not known: %w", backend.ErrUnavailable, err)
	}
	all, err := h.list()
	if err != nil {
		return err
	}
	meant, err := which.Select(all)
	if err != nil {
		return fmt.Errorf("%w: %w", backend.ErrInvalid, err)
	}
	if len(meant) == 0 {
		return noDisk(e, "no disk of node %s matches %s; a disk that is removable, on a network or virtual must be named by a path", h.Node, which)
	}
	b, err := h.booted()
	if err != nil && !which.Names() {
		return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	j, err := h.judge(ctx, which, all, b)
	if err != nil {
		return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	why := map[string]error{} // by path: why a device is not used
	r, device, err := j.known(ctx, pool, cluster, meant, why)
	switch {
	case err != nil:
		return err
	case r != nil:
		if err := h.save(r); err != nil {
			return err
		}
		h.Log.Info("found a disk that says it is the pool's", "pool", pool, "device", device.Path, "uuid", r.UUID)
		return h.attach(ctx, r, device)
	case !e.MayBegin():
		return h.missing(&record{mark: mark{Pool: pool}}, e, "no disk of node %s is recorded as the pool's, and the pool is not a new one: put its disk back", h.Node)
	}
	for _, d := range meant {
		if why[d.Path] != nil {
			continue
		}
		if why[d.Path] = j.whyUnfit(ctx, d); why[d.Path] == nil {
			return h.formatEmpty(ctx, mark{Pool: pool, Cluster: cluster, UUID: newUUID(cluster, pool), Node: h.Node}, &d)
		}
	}
	return noDisk(e, "no disk of node %s that matches %s is free: %s", h.Node, which, reasons(meant, why))
}

// noDisk says of a new pool that it has nothing. One that is not new may have its volumes on a disk that is missing.
func noDisk(e backend.PoolExpectation, format string, args ...any) error {
	err := fmt.Errorf("%w: "+format, append([]any{backend.ErrUnavailable}, args...)...)
	if !e.MayBegin() {
		return err
	}
	return backend.BecauseOf(backend.NoDisk, err)
}

// checkPlaceEmpty fails if something is mounted or stored at the mount point.
func (h *Host) checkPlaceEmpty(pool string) error {
	place := h.Place(pool)
	m, err := nodeops.MountAt(place)
	switch {
	case err != nil:
		return err
	case m != nil:
		return fmt.Errorf("%w: %s is mounted at %s, where a disk would be mounted; unmount it, or give that path instead of devices", backend.ErrUnavailable, m.Source, place)
	}
	if err := checkEmpty(place); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("a disk mounted there would hide existing files, perhaps a pool in a directory: %w", err)
	}
	return nil
}

// label is the file system label, by which people recognize the disk. XFS allows twelve characters.
func label(pool string) string { return "hf-" + pool[:min(len(pool), 9)] }

// known searches for the disk of a pool whose record is lost. It adds to why the devices that have the label of the
// pool and are not its disk. Anyone can write a label, so it is not enough for mounting a device: its UUID must be one
// that this cluster generated, or the selector must name the device.
func (j *judge) known(ctx context.Context, pool, cluster string, meant []nodeops.Device, why map[string]error) (r *record, device *nodeops.Device, err error) {
	taken, err := j.byUUID()
	if err != nil {
		return nil, nil, err
	}
	for _, d := range meant {
		head, err := nodeops.ReadXFSHead(d.Path)
		if err != nil || head == nil || head.Label != label(pool) || head.Unfinished || len(d.Holders) > 0 {
			continue // whether it is empty is checked later
		}
		if of := taken[head.UUID]; of != "" { // labels are cut to the same
			why[d.Path] = fmt.Errorf("it is the disk of pool %s", of)
			continue
		}
		m, err := j.checkedMark(ctx, &d, head, pool, cluster)
		switch {
		case err != nil:
			why[d.Path] = err
		case m.Pool != pool || m.UUID != head.UUID:
			why[d.Path] = fmt.Errorf("its mark says that it is the disk of %s", m)
		case m.Cluster != cluster:
			why[d.Path] = fmt.Errorf("it holds pool %s of another cluster, %s; to take it over with all volumes, mount it and write %s as cluster into its %s; to use it for a new pool, run wipefs --all on it", pool, m.Cluster, cluster, markFile)
		case r != nil:
			return nil, nil, fmt.Errorf("%w: %s and %s both say they are its disk; remove one", backend.ErrUnavailable, device.Path, d.Path)
		default:
			r, device = newRecord(m, &d), &d
			r.Ready = true
		}
		if why[d.Path] != nil {
			j.Log.Warn("a disk has the label of a pool and is not used", "pool", pool, "device", d.Path, "reason", why[d.Path])
		}
	}
	return r, device, nil
}

// checkedMark reads the mark of a disk, if the disk may be mounted.
func (j *judge) checkedMark(ctx context.Context, d *nodeops.Device, head *nodeops.XFSHead, pool, cluster string) (m mark, err error) {
	if !j.named && !madeFor(head.UUID, cluster, pool) {
		return m, fmt.Errorf("it has the label %s, and its UUID %s was not generated by this cluster for the pool: it was formatted by another cluster, or by a release that used random ones; if it is the pool's, name it by paths or model", head.Label, head.UUID)
	}
	if err := j.whyForeign(ctx, d); err != nil {
		return m, err
	}
	return j.readMarkOf(ctx, d.Path)
}

// readMarkOf reads the mark of a disk without writing to the disk.
func (h *Host) readMarkOf(ctx context.Context, device string) (m mark, err error) {
	hole := filepath.Join(h.records(), ".peek")
	if err := os.MkdirAll(hole, 0o700); err != nil {
		return m, err
	}
	if err := nodeops.Unmount(ctx, hole); err != nil { // left by a killed process
		return m, err
	}
	if err := nodeops.MountDiskReadOnly(ctx, device, hole); err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, nodeops.Unmount(context.WithoutCancel(ctx), hole)) }()
	return readMark(hole)
}

// whyUnfit returns why a device must not be formatted.
func (j *judge) whyUnfit(ctx context.Context, d nodeops.Device) error {
	smallest, err := nodeops.SmallestFS("xfs")
	switch {
	case err != nil:
		return err
	case d.ReadOnly:
		return errors.New("it is read-only")
	case len(d.Partitions) > 0:
		return fmt.Errorf("it has partitions: %s", strings.Join(d.Partitions, ", "))
	case len(d.Holders) > 0:
		return fmt.Errorf("it is part of %s", strings.Join(d.Holders, ", "))
	case d.Size < smallest:
		return fmt.Errorf("it has %s, and a file system needs %s", backend.Readable(d.Size), backend.Readable(smallest))
	}
	if err := j.others(&d); err != nil {
		return err
	}
	if err := nodeops.ProvenEmpty(ctx, d.Path); err != nil {
		return err
	}
	return j.whyForeign(ctx, &d)
}

func newRecord(m mark, d *nodeops.Device) *record {
	return &record{mark: m, Device: d.Path, Model: d.Model, ID: d.ID, Size: d.Size}
}

// formatEmpty selects an empty disk: it records and formats it.
func (h *Host) formatEmpty(ctx context.Context, m mark, d *nodeops.Device) error {
	r := newRecord(m, d)
	if err := h.save(r); err != nil {
		return err
	}
	crashpoint.Here(crashpoint.DiskChosen)
	h.Log.Info("formatting an empty disk", "pool", r.Pool, "device", d.Path, "uuid", r.UUID)
	return h.format(ctx, r, d)
}

func (h *Host) format(ctx context.Context, r *record, d *nodeops.Device) error {
	spec := nodeops.MkfsSpec{FSType: "xfs", Options: []string{"-L", label(r.Pool), "-m", "crc=1,reflink=1"}, UUID: r.UUID}
	if err := nodeops.MakeFS(ctx, d.Path, spec); err != nil {
		return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	crashpoint.Here(crashpoint.DiskFormatted)
	return h.attach(ctx, r, d)
}

// reasons lists why the first devices were not used.
func reasons(meant []nodeops.Device, why map[string]error) string {
	const most = 8
	var all []string
	for _, d := range meant[:min(len(meant), most)] {
		all = append(all, fmt.Sprintf("%s: %v", d.Path, why[d.Path]))
	}
	if more := len(meant) - most; more > 0 {
		all = append(all, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(all, "; ")
}
