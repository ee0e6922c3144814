//go:build ceph

package rbd

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ceph/go-ceph/rados"
	"github.com/ceph/go-ceph/rbd"
	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
)

// features are what the kernel's driver knows, too.
const features = rbd.FeatureLayering | rbd.FeatureExclusiveLock | rbd.FeatureObjectMap | rbd.FeatureFastDiff | rbd.FeatureDeepFlatten

// record is an image that was read.
type record struct {
	name   string // of the image, which it has or, in the trash, had
	image  string // its ID
	kind   kind
	id     backend.ID
	size   int64
	header header
	meta   *meta
	damage error // why there is no meta
}

// header is what Ceph keeps of an image.
type header map[string][]byte

// number decodes a number of any length; 0: there is none.
func (h header) number(key string) uint64 {
	var whole [8]byte
	copy(whole[:], h[key])
	return binary.LittleEndian.Uint64(whole[:])
}

// headerObject is that of an image, which has all that Ceph knows of it.
func headerObject(image string) string { return "rbd_header." + image }

func absent(err error) bool { return errors.Is(err, rbd.ErrNotExist) || isErrno(err, unix.ENOENT) }

// look reads an image by its name; nil: there is none.
func (s *session) look(k kind, id backend.ID) (*record, error) {
	name := imageName(k, id)
	image, err := s.idOf(name)
	if absent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return s.readImage(image, name)
}

// current reads an image by its name; entries are those of the ledger, nil: they are read. There is none where Ceph has taken back
// the object of the name, which leads to an image that was deleted.
func (s *session) current(k kind, id backend.ID, entries map[string]promise) (*record, error) {
	r, err := s.look(k, id)
	if err != nil || r == nil {
		return nil, err
	}
	deleted, err := s.wasDeleted(r.image, entries)
	if err != nil || deleted {
		return nil, err
	}
	return r, nil
}

// wasDeleted reports whether an image is in the trash, by the ledger and by Ceph's list: one that is being moved there or restored is
// not, nor is one that either has from before it was restored.
func (s *session) wasDeleted(image string, entries map[string]promise) (bool, error) {
	key := trashKey(image)
	if _, is := entries[key]; entries != nil && !is {
		return false, nil
	}
	state, err := s.trashState(image)
	if err != nil || state != trashNormal && state != trashRemoving {
		return false, err
	}
	if entries == nil {
		entries, err = s.ledger.get(key)
	}
	_, is := entries[key]
	return is, err
}

// unname removes a name that leads to an image that was deleted, by the object of the name or by the list of images: what is
// removed or made by the name would be that. It returns the image that has the name otherwise; nil: none has.
func (s *session) unname(name string) (*record, error) {
	k, id, _ := parseName(name)
	r, err := s.look(k, id)
	if err != nil {
		return nil, err
	}
	if r != nil {
		deleted, err := s.wasDeleted(r.image, nil)
		if err != nil || !deleted {
			return r, err
		}
		if err := s.ioctx.Delete(idObject + name); err != nil {
			return nil, err
		}
	}
	image, err := s.listedAs(name)
	if err != nil || image == "" {
		return nil, err
	}
	deleted, err := s.wasDeleted(image, nil)
	if err != nil || !deleted {
		return nil, err
	}
	return nil, s.ioctx.RmOmapKeys(directoryObject, []string{"name_" + name, "id_" + image})
}

// lookInTrash reads an image by its ID, if Ceph has that in its list of images or of the trash.
func (s *session) lookInTrash(id, name string) (*record, error) {
	image, err := rbd.OpenImageByIdReadOnly(s.ioctx, id, rbd.NoSnapshot)
	if absent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	image.Close()
	return s.readImage(id, name)
}

// lookUnnamed reads the metadata of an image that Ceph does not open, since it has its ID in no list; nil: there is none.
func (s *session) lookUnnamed(image string) (*record, error) {
	h, err := s.readHeader(image)
	if err != nil {
		return nil, err
	}
	var m meta
	if json.Unmarshal(h[omapKey], &m) != nil {
		return nil, nil
	}
	r := h.record(image, m.imageName())
	if r.damage != nil {
		return nil, nil
	}
	return r, nil
}

// readImage reads an image by its ID and the name that it has or had; nil: there is none.
func (s *session) readImage(image, name string) (*record, error) {
	h, err := s.readHeader(image)
	if err != nil || h["size"] == nil {
		return nil, err
	}
	return h.record(image, name), nil
}

// readHeader reads what is used here of the header of an image. librbd reads ten times to open one.
func (s *session) readHeader(image string) (header, error) {
	op := rados.CreateReadOp()
	defer op.Release()
	step := op.GetOmapValuesByKeys([]string{"size", "order", "features", "flags", "object_prefix", "data_pool_id", omapKey})
	err := op.Operate(s.ioctx, headerObject(image), rados.OperationNoFlag)
	if absent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return valuesOf(step)
}

func (h header) record(image, name string) *record {
	r := &record{name: name, image: image, size: int64(h.number("size")), header: h}
	r.kind, r.id, _ = parseName(name)
	r.meta, r.damage = parseMeta(string(h[omapKey]), name, image)
	return r
}

// writeMeta makes an image what it is. It writes what librbd would, without opening the image: that takes twenty requests and the lock.
func (s *session) writeMeta(m *meta) (err error) {
	if m.Image, err = s.idOf(m.imageName()); err != nil {
		return err
	}
	op := rados.CreateWriteOp()
	defer op.Release()
	op.AssertExists()
	op.SetOmap(map[string][]byte{omapKey: encode(m)})
	return op.Operate(s.ioctx, headerObject(m.Image), rados.OperationNoFlag)
}

// idOf returns the ID that a name leads to.
func (s *session) idOf(name string) (string, error) {
	content := make([]byte, mostSum)
	n, err := s.ioctx.Read(idObject+name, content, 0)
	if err == nil && n <= 4 { // its length, and the ID
		err = fmt.Errorf("object %s%s of the image's ID is damaged (%d bytes)", idObject, name, n)
	}
	if err != nil {
		return "", err
	}
	return string(content[4:n]), nil
}

// options are those of a new image; the caller destroys them.
func (s *session) imageOptions() (*rbd.ImageOptions, error) {
	const secondFormat = 2
	o := rbd.NewRbdImageOptions()
	err := errors.Join(o.SetUint64(rbd.ImageOptionFormat, secondFormat), o.SetUint64(rbd.ImageOptionFeatures, features))
	if s.config.DataPool != "" {
		err = errors.Join(err, o.SetString(rbd.ImageOptionDataPool, s.config.DataPool))
	}
	return o, err
}

func (s *session) createImage(name string, size int64) error {
	o, err := s.imageOptions()
	defer o.Destroy()
	if err != nil {
		return err
	}
	return rbd.CreateImage(s.ioctx, name, uint64(size), o)
}

// cloneImage makes an image that shares the content of a snapshot, which may then be deleted.
func (s *session) cloneImage(parent, snapshot, name string) error {
	const secondFormat = 2
	o, err := s.imageOptions()
	defer o.Destroy()
	if err := errors.Join(err, o.SetUint64(rbd.ImageOptionCloneFormat, secondFormat)); err != nil {
		return err
	}
	return rbd.CloneImage(s.ioctx, parent, snapshot, s.ioctx, name, o)
}

// with opens an image to change it.
func (s *session) with(name string, f func(*rbd.Image) error) error {
	image, err := rbd.OpenImage(s.ioctx, name, rbd.NoSnapshot)
	if err != nil {
		return err
	}
	return errors.Join(f(image), image.Close())
}

func (s *session) withID(id string, f func(*rbd.Image) error) error {
	image, err := rbd.OpenImageById(s.ioctx, id, rbd.NoSnapshot)
	if err != nil {
		return err
	}
	return errors.Join(f(image), image.Close())
}

// snap takes a snapshot, unless the image has it.
func snap(image *rbd.Image, name string) error {
	_, err := image.CreateSnapshot(name)
	if isErrno(err, unix.EEXIST) {
		return nil
	}
	return err
}

// unsnap removes a snapshot, if the image has it. Where copies need its content Ceph keeps that.
func unsnap(image *rbd.Image, name string) error {
	err := image.GetSnapshot(name).Remove()
	if absent(err) {
		return nil
	}
	return err
}

// dropTemporary removes the snapshot that a copy was to be made from.
func (s *session) dropTemporary(source, copied string) error {
	err := s.with(source, func(image *rbd.Image) error { return unsnap(image, temporaryPrefix+copied) })
	if absent(err) {
		return nil
	}
	return err
}

// depth is how many images an image needs beside its own, one below the other.
func (s *session) depth(name string) (n int, err error) {
	image, err := rbd.OpenImageReadOnly(s.ioctx, name, rbd.NoSnapshot)
	for ; err == nil; n++ {
		var parent *rbd.ParentInfo
		parent, err = image.GetParent()
		image.Close()
		if absent(err) {
			return n, nil
		}
		if err == nil {
			image, err = rbd.OpenImageByIdReadOnly(s.ioctx, parent.Image.ImageID, rbd.NoSnapshot)
		}
	}
	return n, err
}
