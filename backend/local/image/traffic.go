package image

import (
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/local/engine"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// Traffic returns the I/O counters of the contents' loop devices.
func (en *Engine) Traffic(contents map[backend.ID]*engine.Content) map[backend.ID]nodeops.Traffic {
	found := map[backend.ID]nodeops.Traffic{}
	for _, device := range nodeops.AttachedLoops() {
		id, content := en.contentOf(device, contents)
		if content == nil {
			continue
		}
		if t, err := nodeops.LoopTraffic(device); err == nil {
			found[id] = t
		}
	}
	return found
}
