//go:build ceph

package rbd

import (
	"encoding/binary"
	"sync"
	"time"

	"github.com/ceph/go-ceph/rados"
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
	if now.Sub(b.usages.get(r.image).at) < usedFor || now.After(until) {
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
func (s *session) measureImage(r *record) (bytes int64, err error) {
	image, err := rbd.OpenImageReadOnly(s.ioctx, r.name, rbd.NoSnapshot)
	if err != nil {
		return 0, err
	}
	defer image.Close()
	has, err := image.GetFeatures()
	if err != nil {
		return 0, err
	}
	flags, err := s.flags(r.image)
	if err != nil {
		return 0, err
	}
	if has&rbd.FeatureFastDiff == 0 || flags != 0 { // the flags are those of maps that are not valid
		return r.size, nil
	}
	err = image.DiffIterate(rbd.DiffIterateConfig{
		Length: uint64(r.size), IncludeParent: rbd.ExcludeParent, WholeObject: rbd.EnableWholeObject,
		Callback: func(_, length uint64, exists int, _ any) int {
			if exists != 0 {
				bytes += int64(length)
			}
			return 0
		},
	})
	return bytes, err
}

// flags are those of an image, which Ceph's library knows and go-ceph does not show.
func (s *session) flags(image string) (uint64, error) {
	const noSnapshot = ^uint64(1)
	op := rados.CreateReadOp()
	defer op.Release()
	read := op.Exec("rbd", "get_flags", binary.LittleEndian.AppendUint64(nil, noSnapshot))
	if err := op.Operate(s.ioctx, headerObject(image), rados.OperationNoFlag); err != nil {
		return 0, err
	}
	is, err := read.Bytes()
	if err != nil || len(is) < 8 {
		return 0, err
	}
	return binary.LittleEndian.Uint64(is), nil
}
