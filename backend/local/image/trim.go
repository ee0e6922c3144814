package image

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/local/engine"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// leastTrimmed leaves small holes filled: each is an extent more of the image.
const leastTrimmed = 1 << 20

// Trim punches holes into the image of the next of the mounted thin contents after one, by ID, where its file system has
// free space. It returns which, and how many of these there are. A thick image keeps what it has reserved.
func (en *Engine) Trim(ctx context.Context, contents map[backend.ID]*engine.Content, after backend.ID) (next backend.ID, of int, err error) {
	mounts, err := nodeops.Mounts()
	if err != nil {
		return after, 0, err
	}
	mounted := map[backend.ID]*nodeops.Mount{}
	for i := range mounts {
		if id, content := en.shown(&mounts[i], contents); content != nil && content.Provisioning == backend.Thin && !mounts[i].ReadOnly {
			mounted[id] = &mounts[i]
		}
	}
	next = after
	if ids := slices.Sorted(maps.Keys(mounted)); len(ids) > 0 {
		next = ids[max(0, slices.IndexFunc(ids, func(id backend.ID) bool { return id > after }))]
	}
	if m := mounted[next]; m != nil {
		if err = nodeops.Trim(ctx, m, contents[next].Size, leastTrimmed); err != nil {
			err = fmt.Errorf("volume %s: %w", next, err)
		}
	}
	return next, len(mounted), err
}
