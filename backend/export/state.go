package export

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-storage/holdfast/backend"
)

// standing is how a volume stands with clients. It is replaced, never changed.
type standing struct {
	size       int64        // to which its file system has grown, as far as is known
	nfs        *backend.NFS // nil while it is not exported
	fault      error        // why it is not, or why not as it should be
	leaving    bool         // its deletion has begun
	revived    bool         // it comes from the trash: its top directory is as its users left it
	handedOver bool         // the exporter may have it, of the mount that is there or of one that is gone
	tries      int          // that failed, one after the other
	after      time.Time    // when it is worth another
}

// leastOften is by how much longer the pause becomes before what fails is tried again, at most.
const leastOften = 1 << 5

func (b *Backend) standing(id backend.ID) standing {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.standings[id]; s != nil {
		return *s
	}
	return standing{fault: fmt.Errorf("%w: it appeared on the disk a moment ago and is not exported yet; it will be within %s", backend.ErrUnavailable, b.RetryEvery)}
}

func (b *Backend) stands(id backend.ID, s *standing) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s == nil {
		delete(b.standings, id)
	} else {
		b.standings[id] = s
	}
}

// known lists the volumes that were served or tried.
func (b *Backend) known() []backend.ID {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(maps.Keys(b.standings))
}
