//go:build ceph

package rbd

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ceph/go-ceph/rados"
	"github.com/ceph/go-ceph/rbd"

	"github.com/holdfast-storage/holdfast/nodeops"
)

// objectMap is what Ceph knows of the objects of an image: two bits for each, the first in the highest of a byte, behind a header.
type objectMap []byte

const (
	mapObject = "rbd_object_map."
	mapHeader = 4 + 6 + 8 // its length, its version, and the number of objects
)

func (m objectMap) objects() uint64 { return binary.LittleEndian.Uint64(m[mapHeader-8:]) }
func (m objectMap) states() []byte  { return m[mapHeader : mapHeader+(m.objects()+3)/4] }

func (s *session) loadMap(r *record) (objectMap, error) {
	op := rados.CreateReadOp()
	defer op.Release()
	read := op.Exec("rbd", "object_map_load", nil)
	if err := op.Operate(s.ioctx, mapObject+r.image, rados.OperationNoFlag); err != nil {
		return nil, err
	}
	text, err := read.Bytes()
	if err != nil {
		return nil, err
	}
	order, m := r.header.number("order"), objectMap(text)
	want := (uint64(r.size) + 1<<order - 1) >> order
	if uint64(len(m)) < mapHeader+(want+3)/4 || m.objects() != want {
		return nil, fmt.Errorf("the object map of image %s is not one of %d objects", r.name, want)
	}
	return m, nil
}

// unit is the size of the pieces that are left out if they are zero.
const unit = 64 << 10

// offsets are those of the units that are not zero.
type offsets []int64

func (o *offsets) WriteAt(part []byte, at int64) (int, error) {
	*o = append(*o, at)
	return len(part), nil
}

// writeContent writes what a new image consists of. librbd would take twenty requests and the lock to open the image, and two
// for each unit: this writes each object at once, after the object map, by which objects are removed.
func (s *session) writeContent(ctx context.Context, r *record, content *nodeops.FSContent) error {
	h := r.header
	if h.number("features")&^rbd.FeatureDataPool != features || 1<<h.number("order") < unit || len(h["object_prefix"]) <= 4 {
		return s.with(r.name, func(image *rbd.Image) error { // Ceph's configuration has it laid out in another way
			return errors.Join(content.CopyTo(ctx, image, unit), image.Flush())
		})
	}
	var units offsets
	if err := content.CopyTo(ctx, &units, unit); err != nil {
		return err
	}
	if err := s.markObjects(r, units); err != nil {
		return err
	}
	pool, err := s.dataPool(h)
	if err != nil {
		return err
	}
	defer pool.Destroy()
	for len(units) > 0 && err == nil {
		if err = ctx.Err(); err == nil {
			units, err = writeObject(pool, r, content, units)
		}
	}
	return err
}

// dataPool opens the pool that has the content of an image.
func (s *session) dataPool(h header) (*rados.IOContext, error) {
	if h["data_pool_id"] == nil {
		return s.open(s.config.Pool)
	}
	name, err := s.conn.GetPoolByID(int64(h.number("data_pool_id")))
	if err != nil {
		return nil, err
	}
	return s.open(name)
}

// markObjects says in the object map of an image which objects there will be.
func (s *session) markObjects(r *record, units offsets) error {
	m, err := s.loadMap(r)
	if err != nil {
		return err
	}
	for _, at := range units {
		object := at >> r.header.number("order")
		m.states()[object/4] |= 1 << (6 - 2*(object%4))
	}
	op := rados.CreateWriteOp()
	defer op.Release()
	op.Exec("rbd", "object_map_save", m)
	return op.Operate(s.ioctx, mapObject+r.image, rados.OperationNoFlag)
}

// writeObject writes the units of the first object, and returns the others.
func writeObject(pool *rados.IOContext, r *record, content *nodeops.FSContent, units offsets) (offsets, error) {
	op := rados.CreateWriteOp()
	defer op.Release()
	order := r.header.number("order")
	object := units[0] >> order
	for ; len(units) > 0 && units[0]>>order == object; units = units[1:] {
		part := make([]byte, min(unit, r.size-units[0]))
		if _, err := content.ReadAt(part, units[0]); err != nil {
			return nil, err
		}
		op.Write(part, uint64(units[0]-object<<order))
	}
	name := fmt.Sprintf("%s.%016x", r.header["object_prefix"][4:], object)
	return units, op.Operate(pool, name, rados.OperationNoFlag)
}
