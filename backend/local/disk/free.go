package disk

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/holdfast-storage/holdfast/nodeops"
)

// Attached is a volume of another driver that is attached to this host, or about to be, according to the Node object.
type Attached struct {
	Handle string // volume handle, perhaps with a prefix of the driver's name
	Device string // device path, if known
}

// name returns the handle in a name such as kubernetes.io/csi/DRIVER^HANDLE.
func (a Attached) name() string {
	if _, handle, ok := strings.Cut(a.Handle, "^"); ok {
		return handle
	}
	return a.Handle
}

// isDevice returns whether the volume certainly is that device: it has its path, or the serial number contains the
// volume handle.
func (a Attached) isDevice(d *nodeops.Device) bool {
	if a.Device != "" && nodeops.DeviceNumber(a.Device) == d.Number {
		return true
	}
	const least = 8 // a shorter match could be a coincidence
	id, handle := normalized(d.ID), normalized(path.Base(a.name()))
	return len(id) >= least && strings.HasPrefix(handle, id) || len(handle) >= least && strings.Contains(id, handle)
}

// normalized drops the characters that devices and drivers write differently.
func normalized(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, strings.ToLower(s))
}

// judge decides which devices may belong to another owner.
type judge struct {
	*Host
	named    bool // the selector names devices, by paths or model
	boot     *boot
	attached []Attached
	hidden   []string // attached volumes whose device is unknown
}

func (h *Host) judge(ctx context.Context, which nodeops.DeviceSelector, all []nodeops.Device, b *boot) (j *judge, err error) {
	j = &judge{Host: h, named: which.Names(), boot: b}
	if h.Attached == nil {
		return j, nil
	}
	if j.attached, err = h.Attached(ctx); err != nil {
		return nil, fmt.Errorf("it is not known whether a disk is another driver's volume: %w", err)
	}
	for _, a := range j.attached {
		if !slices.ContainsFunc(all, func(d nodeops.Device) bool { return a.isDevice(&d) }) {
			j.hidden = append(j.hidden, a.Handle)
		}
	}
	return j, nil
}

// whyForeign returns why a device may belong to another owner; nil if it does not.
func (j *judge) whyForeign(ctx context.Context, d *nodeops.Device) error {
	if err := j.others(d); err != nil {
		return err
	}
	user, err := nodeops.Host{Proc: j.Proc}.UserOf(ctx, d)
	if err != nil {
		return fmt.Errorf("it is not known whether it is in use: %w", err)
	}
	if user != "" {
		return fmt.Errorf("it is in use: %s", user)
	}
	return nil
}

func (j *judge) others(d *nodeops.Device) error {
	if i := slices.IndexFunc(j.attached, func(a Attached) bool { return a.isDevice(d) }); i >= 0 {
		return fmt.Errorf("it is volume %s of another driver", j.attached[i].Handle)
	}
	switch {
	case j.named:
		return nil
	case !j.boot.hasDevice(d):
		return errors.New("it appeared after boot, so it may be a volume of another driver; name it by paths or model, or boot the host with it")
	case len(j.hidden) > 0:
		return fmt.Errorf("it may be a volume of another driver that is attached to this node, %s; name the disk by paths or model", strings.Join(j.hidden, ", "))
	}
	return nil
}

// whyUntrusted returns why a device with the right UUID may not be the disk; nil if it is. A user who had the device as
// a raw block volume may have written any content.
func (r *record) whyUntrusted(d *nodeops.Device, named bool, b *boot) error {
	switch {
	case named:
		return nil
	case r.ID != "" && r.ID == d.ID:
		return nil
	case r.ID != "" && d.ID != "":
		return fmt.Errorf("%s has the UUID of the disk and id %s, and id %s is on record; if it is the disk, name it by paths or model", d.Path, d.ID, r.ID)
	case r.Model != d.Model || d.Size < r.Size:
		return fmt.Errorf("%s has the UUID of the disk, and model %q and %d bytes, not model %q and %d bytes; if it is the disk, name it by paths or model", d.Path, d.Model, d.Size, r.Model, r.Size)
	case b == nil || !b.hasDevice(d):
		return fmt.Errorf("%s has the UUID of the disk, has no serial number to recognize it, and appeared after boot; if it is the disk, name it by paths or model, or boot the host with it", d.Path)
	}
	return nil
}

// newUUID generates a UUID for a pool of a cluster: the first half is random, the second a digest of that, the pool and
// the cluster. Without the cluster's ID it cannot be forged.
func newUUID(cluster, pool string) string {
	var b [16]byte
	_, _ = rand.Read(b[:8]) // never fails
	b[6] = b[6]&0x0f | 0x80 // version 8: custom
	seal(&b, cluster, pool)
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func seal(b *[16]byte, cluster, pool string) {
	sum := sha256.Sum256(fmt.Appendf(nil, "holdfast disk %q %q %x", cluster, pool, b[:8]))
	copy(b[8:], sum[:8])
	b[8] = b[8]&0x3f | 0x80
}

// madeFor returns whether newUUID generated a UUID for that pool of that cluster. Earlier releases used random ones.
func madeFor(uuid, cluster, pool string) bool {
	whole, err := hex.DecodeString(strings.ReplaceAll(uuid, "-", ""))
	if err != nil || len(whole) != 16 {
		return false
	}
	var b [16]byte
	copy(b[:8], whole)
	seal(&b, cluster, pool)
	return bytes.Equal(b[:], whole)
}
