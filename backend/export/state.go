package export

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-storage/holdfast/backend"
)

// exportState is the state of a volume's export. It is replaced, never modified.
type exportState struct {
	size       int64        // of its file system, as last observed
	nfs        *backend.NFS // nil if not exported
	fault      error        // why it is not exported, or what is wrong with the export
	leaving    bool         // its deletion has started
	revived    bool         // restored from the trash: its root directory keeps owner and mode
	handedOver bool         // the exporter may have it open, from the current mount or a lost one
	tries      int          // consecutive failures
	after      time.Time    // time of the next retry
}

// maxBackoffFactor is the maximum factor by which the retry interval grows.
const maxBackoffFactor = 1 << 5

func (b *Backend) state(id backend.ID) exportState {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.states[id]; s != nil {
		return *s
	}
	return exportState{fault: fmt.Errorf("%w: it appeared on the disk a moment ago and is not exported yet; it will be within %s", backend.ErrUnavailable, b.RetryEvery)}
}

func (b *Backend) setState(id backend.ID, s *exportState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s == nil {
		delete(b.states, id)
	} else {
		b.states[id] = s
	}
}

// known returns the volumes that were served or tried.
func (b *Backend) known() []backend.ID {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(maps.Keys(b.states))
}
