package image

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/local/engine"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// unmount is how a user unmounts the file system of an image.
const unmount = "to unmount it stop the pods that use it on this node, or delete the pod of the NFS server that serves it"

// Examine iterates over the mounts, of which there are fewer than contents.
func (en *Engine) Examine(ctx context.Context, contents map[backend.ID]*engine.Content) map[backend.ID]backend.Condition {
	mounts, err := nodeops.Mounts()
	if err != nil {
		return nil
	}
	found := map[backend.ID]backend.Condition{}
	for i := range mounts {
		id, content := en.shown(&mounts[i], contents)
		if content == nil {
			continue
		}
		if before, seen := found[id]; seen && (before.Reason == backend.FileSystemErrors || !mounts[i].Failed) {
			continue // a read-only mount does not show errors that would have made it read-only
		}
		found[id] = health(ctx, &mounts[i], content)
	}
	for _, device := range nodeops.AttachedLoops() {
		if id, content := en.attachedTo(device, contents, true); content != nil {
			found[id] = deviceHealth(nodeops.IOErrors(device))
		}
	}
	return found
}

// shown returns the content whose file system is mounted at m, or nil.
func (en *Engine) shown(m *nodeops.Mount, contents map[backend.ID]*engine.Content) (backend.ID, *engine.Content) {
	if m.Root != "/" {
		return "", nil
	}
	device := nodeops.LoopUnder(m)
	if device == "" {
		return "", nil
	}
	return en.attachedTo(device, contents, false)
}

// attachedTo returns the content to which a loop device is attached; nil if it is not in this pool, or its mode does
// not match raw.
func (en *Engine) attachedTo(device string, contents map[backend.ID]*engine.Content, raw bool) (backend.ID, *engine.Content) {
	id, content := en.contentOf(device, contents)
	if content == nil || (content.Mode == backend.Block) != raw {
		return "", nil
	}
	return id, content
}

// contentOf returns the content to which a loop device is attached, or nil. It opens only a device whose backing file
// is an image of this pool.
func (en *Engine) contentOf(device string, contents map[backend.ID]*engine.Content) (backend.ID, *engine.Content) {
	image, err := nodeops.BackingFile(device)
	if err != nil || !strings.HasPrefix(image, en.path+"/") || filepath.Base(image) != file {
		return "", nil
	}
	id := backend.ID(filepath.Base(filepath.Dir(image)))
	content := contents[id]
	if content == nil || !nodeops.IsAttached(device, image) {
		return "", nil
	}
	return id, content
}

func health(ctx context.Context, m *nodeops.Mount, content *engine.Content) backend.Condition {
	is := nodeops.FSHealth(ctx, m)
	switch {
	case is.Errors != "":
		return backend.Condition{Abnormal: true, Reason: backend.FileSystemErrors, Message: is.Errors + "; " + unmount}
	case is.Device != "":
		return deviceHealth(is.Device)
	case is.Small != "" && content.FSSize != content.Size:
		return backend.Condition{Abnormal: true, Reason: backend.NotGrown, Message: is.Small + "; it grows when it is mounted the next time; " + unmount}
	}
	return backend.Condition{}
}

// deviceHealth returns the health that follows from the I/O errors of a device.
func deviceHealth(errors string) backend.Condition {
	if errors == "" {
		return backend.Condition{}
	}
	return backend.Condition{Abnormal: true, Reason: backend.DeviceErrors, Message: errors + "; a disk of the pool returned errors: save the content of the volume, and replace the disk; the report ends once all pods of the volume were stopped"}
}
