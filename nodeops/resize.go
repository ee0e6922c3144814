package nodeops

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/mount-utils"
)

// growing are the devices whose file systems are being grown; a file system smaller than its device is no fault then.
var growing sync.Map

// GrowMounted grows an attached device to the size of its image, and the file system mounted from it to the size of the
// device. limit is that of GrowAttached.
func GrowMounted(ctx context.Context, device, mountpoint string, limit time.Duration) error {
	growing.Store(device, nil)
	defer growing.Delete(device)
	if err := GrowAttached(ctx, device, limit); err != nil {
		return err
	}
	return GrowFS(ctx, device, mountpoint)
}

// GrowFS grows a mounted file system to the size of its device. It is idempotent, and does nothing for a read-only
// mount.
func GrowFS(ctx context.Context, device, mountpoint string) error {
	if err := growFS(ctx, device, mountpoint); err != nil {
		return fmt.Errorf("growing the file system at %s to the size of %s: %w", mountpoint, device, err)
	}
	return nil
}

func growFS(ctx context.Context, device, mountpoint string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m, err := MountAt(mountpoint)
	switch {
	case err != nil:
		return err
	case m == nil:
		return errors.New("nothing is mounted there")
	case m.ReadOnly:
		return nil
	}
	resizer := mount.NewResizeFs(newCommands(ctx))
	need, err := resizer.NeedResize(device, mountpoint)
	if err != nil || !need {
		return err
	}
	if _, err := resizer.Resize(device, mountpoint); err != nil {
		if strings.Contains(err.Error(), "Permission denied") {
			return fmt.Errorf("%w: the kernel lets only CAP_SYS_RESOURCE grow a mounted %s; give it to this process: %w", unix.EPERM, m.FSType, oneLine(err))
		}
		return oneLine(err)
	}
	return nil
}
