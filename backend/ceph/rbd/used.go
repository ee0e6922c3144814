//go:build ceph

package rbd

import (
	"math/bits"
	"sync"
	"time"

	"github.com/ceph/go-ceph/rbd"
)

const (
	// usedFor is how long what was measured of an image is shown.
	usedFor = time.Minute
	// measuring bounds how long a listing measures. What it does not come to is measured by the next.
	measuring = 2 * time.Second
)

// usages remembers how much of the pool images take, by their IDs.
type usages struct {
	mu    sync.Mutex
	known map[string]usage
}

type usage struct {
	bytes int64
	at    time.Time
}

func (u *usages) get(image string) usage {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.known[image]
}

func (u *usages) set(image string, bytes int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.known == nil {
		u.known = map[string]usage{}
	}
	u.known[image] = usage{bytes, time.Now()}
}

// keep forgets all images but those.
func (u *usages) keep(images []*record) {
	there := map[string]bool{}
	for _, r := range images {
		there[r.image] = true
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for image := range u.known {
		if !there[image] {
			delete(u.known, image)
		}
	}
}

// measureUsed measures how much of the pool an image takes for itself, in whole objects, if that was not done lately and
// before until. What cannot be measured hides no volume.
func (b *Backend) measureUsed(s *session, r *record, until time.Time) {
	now := time.Now()
	if r.header == nil || now.Sub(b.usages.get(r.image).at) < usedFor || now.After(until) {
		return
	}
	bytes, err := s.measureImage(r)
	if err != nil {
		b.log.Debug("how much an image uses cannot be measured", "image", r.name, "error", err)
		return
	}
	b.usages.set(r.image, bytes)
}

// measureImage reads which objects exist from the image's object map, at the cost of one read. Where that is not valid each
// object of the image would have to be looked for, so that all of it is taken to be used.
func (s *session) measureImage(r *record) (int64, error) {
	if r.header.number("features")&rbd.FeatureFastDiff == 0 || r.header.number("flags") != 0 { // the flags are those of maps that are not valid
		return r.size, nil
	}
	m, err := s.loadMap(r)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, four := range m.states() {
		n += bits.OnesCount8((four | four>>1) & 0b01010101)
	}
	return min(r.size, int64(n)<<r.header.number("order")), nil
}
