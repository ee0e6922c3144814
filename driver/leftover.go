package driver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-storage/holdfast/backend"
)

// A left-over volume is an inline ephemeral one whose pod is gone while its pool was out of reach: the pod must be able to
// end, or its node could not be drained. The kubelet never speaks of it again.

// collectEvery is how often left-over volumes are looked for.
const collectEvery = time.Minute

const podUIDKey = reserved + "pod.uid"

// removeEphemeral deletes the volume of a pod, now or when its pool can be reached.
func (n *node) removeEphemeral(ctx context.Context, id backend.ID) error {
	err := n.deleteEphemeral(ctx, id)
	if backend.FindCode(err) == backend.CodeBusy || !errors.Is(err, backend.ErrUnavailable) {
		return err
	}
	if _, unknown := n.pods(); unknown != nil {
		return fmt.Errorf("%w; it cannot be left to be deleted later: %v", err, unknown)
	}
	n.Log.Warn("an inline ephemeral volume is used no more; it is deleted once its pool can be reached", "volume", id, "error", err)
	return nil
}

// collectLeftOver runs until ctx ends. The disk of a pool may hang it.
func (n *node) collectLeftOver(ctx context.Context) {
	if n.podsDir() == "" {
		return // and none was left over
	}
	tick := time.NewTicker(collectEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := n.collect(ctx); err != nil {
				n.Log.Warn("inline ephemeral volumes whose pod is gone were not all deleted; that is retried", "error", err)
			}
		}
	}
}

// collect deletes the left-over volumes of the pools that can be reached.
func (n *node) collect(ctx context.Context) error {
	all, err := n.Backend.List(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, v := range all {
		if !Ephemeral(v) || v.Reach != backend.ItsHost {
			continue
		}
		err := n.do(ctx, v.ID, "collect", func(ctx context.Context) error { return n.collectOne(ctx, v.ID) })
		if err != nil {
			errs = append(errs, fmt.Errorf("volume %s: %w", v.ID, err))
		}
	}
	return errors.Join(errs...)
}

// collectOne looks while nothing else is done with the volume. The kubelet makes the directory of a pod before it publishes
// its volumes, and removes it after it has unpublished them.
func (n *node) collectOne(ctx context.Context, id backend.ID) error {
	v, err := n.Backend.Get(ctx, id)
	if err != nil || !Ephemeral(v) {
		return err
	}
	pods, err := n.pods()
	if err != nil {
		return err
	}
	uid := v.Labels[podUIDKey]
	if uid == "" || uid == "." || uid == ".." || filepath.Base(uid) != uid {
		return nil
	}
	if _, err := os.Lstat(filepath.Join(pods, uid)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := n.deleteUnused(ctx, v); err != nil {
		return err
	}
	n.Log.Info("deleted an inline ephemeral volume whose pod is gone", "volume", id, "pod", v.Labels[reserved+"pod.namespace"]+"/"+v.Labels[reserved+"pod.name"])
	return nil
}

// podsDir is the directory of the kubelet with one for each pod, by that of the driver's socket; empty if it is not known.
func (d *Driver) podsDir() string {
	plugins := filepath.Dir(filepath.Dir(d.socket))
	if filepath.Base(plugins) != "plugins" {
		return ""
	}
	return filepath.Join(filepath.Dir(plugins), "pods")
}

// pods is podsDir where it has pods, as it does where this process is in one: from any other directory it would
// follow that all pods are gone.
func (d *Driver) pods() (string, error) {
	dir := d.podsDir()
	if dir == "" {
		return "", fmt.Errorf("the directory of the kubelet is not known, since the endpoint %s is not in its directory plugins", d.socket)
	}
	entries, err := os.ReadDir(dir)
	if err == nil && len(entries) == 0 {
		err = fmt.Errorf("%s is empty; mount the directory of the kubelet there", dir)
	}
	return dir, err
}

// Delete deletes a volume, also one that its staging alone has in use: a kubelet that was restarted between the unpublishing and
// the unstaging of a volume never speaks of it again, and no pod gets a volume that is to be deleted.
func (d *Driver) Delete(ctx context.Context, id backend.ID) error {
	err := d.Backend.Delete(ctx, id)
	if !errors.Is(err, backend.ErrInUse) || d.podsDir() == "" {
		return err
	}
	n := &node{Driver: d}
	unstaged := false
	failed := n.do(ctx, id, "unstage", func(ctx context.Context) (err error) {
		unstaged, err = n.unstageLeftOver(ctx, id)
		return err
	})
	if failed != nil || !unstaged {
		return errors.Join(err, failed)
	}
	return d.Backend.Delete(ctx, id)
}

// unstageLeftOver unstages a volume that is mounted only where the kubelet stages volumes, and reports whether it is mounted nowhere
// any more.
func (n *node) unstageLeftOver(ctx context.Context, id backend.ID) (bool, error) {
	p := n.find(ctx, id, "")
	mounts, err := p.mounts()
	if err != nil || len(mounts) != 1 {
		return len(mounts) == 0, err
	}
	staging := mounts[0].Target
	if filepath.Base(staging) == deviceFile {
		staging = filepath.Dir(staging)
	}
	csi := filepath.Join(filepath.Dir(n.podsDir()), "plugins", "kubernetes.io", "csi") + "/"
	if !strings.HasPrefix(staging, csi+n.Name+"/") && !strings.HasPrefix(staging, csi+"volumeDevices/staging/") {
		return false, nil
	}
	n.Log.Warn("unstaging a volume that is to be deleted, and that the kubelet has left staged", "volume", id, "path", staging)
	return true, n.unstage(ctx, p, staging)
}
