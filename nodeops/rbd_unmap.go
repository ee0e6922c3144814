package nodeops

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

var rbdUnmaps, rbdRefreshes offThread[any]

const clusterHangs = "the cluster does not answer, and the kernel still waits for it"

// UnmapRBD takes a device away, if it still shows what it did; one that is gone is fine. It fails with EBUSY while any
// process or file system has it open, and returns when ctx ends. It does not force: what has the device open would lose what
// it has not written, and the kernel waits for what it is writing even so.
func UnmapRBD(ctx context.Context, d *RBDDevice) error {
	_, err := rbdUnmaps.do(ctx, d.id+" "+d.Client.ID, clusterHangs, func() (any, error) { return nil, d.unmap() })
	if err != nil {
		return fmt.Errorf("unmapping %s, which is %s: %w", d.Path, d, err)
	}
	return nil
}

// forceUnmapRBD takes a device away whose cluster has shut its client out, also from what has it open: nothing that it has
// not written can be written any more.
func forceUnmapRBD(ctx context.Context, d *RBDDevice) error {
	_, err := rbdUnmaps.do(ctx, d.id+" "+d.Client.ID+" force", clusterHangs, func() (any, error) {
		now, err := RBDAt(d.Path)
		if err != nil || now == nil || !now.is(d) {
			return nil, err
		}
		return nil, removeRBD(d, " force")
	})
	if err != nil {
		return fmt.Errorf("unmapping %s, which is %s, by force: %w", d.Path, d, err)
	}
	return nil
}

func (d *RBDDevice) unmap() error {
	unlock, err := lockImage(d.FSID + " " + imageSpec(d.Pool, d.Namespace, d.Image, d.Snapshot))
	if gone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	return d.remove()
}

// remove is for who has the lock.
func (d *RBDDevice) remove() error {
	// A prober, such as udev, has a device open for a moment.
	err := awaitDetached(context.Background(), d.Path, func() (bool, error) {
		now, err := RBDAt(d.Path)
		if err != nil || now == nil || !now.is(d) {
			return err == nil, err
		}
		err = removeRBD(now, "")
		if errors.Is(err, unix.EBUSY) {
			return false, nil
		}
		return err == nil, err
	})
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("%w: a process has it open, or the file system on it is still being written", unix.EBUSY)
	}
	return err
}

// is says whether two are the same mapping of the same image.
func (d *RBDDevice) is(other *RBDDevice) bool {
	one, two := *d, *other
	one.Size, one.ReadOnly = two.Size, two.ReadOnly
	return one == two
}

func removeRBD(d *RBDDevice, option string) error {
	f, err := os.OpenFile(filepath.Join(rbdBus, "remove_single_major"), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	err = uninterrupted(func() error { _, err := unix.Write(int(f.Fd()), []byte(d.id+option)); return err })
	if gone(err) {
		return nil
	}
	return err
}

// GrowRBD makes a device as large as its image is by now, of which the cluster may not have notified it yet. It returns when
// ctx ends.
func GrowRBD(ctx context.Context, device string) error {
	d, err := RBDAt(device)
	if err == nil && d == nil {
		err = errors.New("it shows no image")
	}
	if err == nil {
		err = refreshRBD(ctx, d.id+" "+d.Client.ID, filepath.Join(rbdBus, "devices", d.id, "refresh"))
	}
	if err != nil {
		return fmt.Errorf("growing %s to the size of its image: %w", device, err)
	}
	return nil
}

// refreshRBD has the kernel read the header of an image from its cluster, for which it waits as long as that takes.
func refreshRBD(ctx context.Context, key, file string) error {
	_, err := rbdRefreshes.do(ctx, key, clusterHangs, func() (any, error) { return nil, os.WriteFile(file, []byte("1"), 0) })
	return err
}
