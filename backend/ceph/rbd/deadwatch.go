//go:build ceph

package rbd

import (
	"fmt"
	"slices"
	"time"

	"github.com/ceph/go-ceph/rados"
	"github.com/ceph/go-ceph/rbd"
	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend/ceph"
)

// lockAttribute has the exclusive lock of an image, at its header.
const lockAttribute = "lock.rbd_lock"

// despiteTheDead tries again what an image refused because it is watched, when all clients that watch it are shut out of the
// cluster: one that was killed while it began to watch can stay in the object for ever, since the OSD keeps the time only of
// those whose connection it has seen.
func (s *session) despiteTheDead(image string, try func() error) error {
	err := try()
	if !isErrno(err, unix.EBUSY) || image == "" {
		return err
	}
	forgotten, failed := s.forgetDead(image)
	if failed != nil {
		return fmt.Errorf("%w; and who watches it cannot be forgotten: %v", err, failed)
	}
	if !forgotten {
		return err
	}
	return try()
}

// forgetDead forgets who watches an image, if all of them are shut out of the cluster.
func (s *session) forgetDead(image string) (forgotten bool, err error) {
	dead, err := s.isWatchedByTheDeadAlone(image)
	if err != nil || !dead {
		return false, err
	}
	if err := s.renewHeader(headerObject(image)); err != nil {
		return false, err
	}
	s.log.Info("an image was watched by clients that are shut out of the cluster alone, which are forgotten", "id", image)
	return true, nil
}

// renewHeader removes the header of an image and makes it again as it was, at once, since only the end of an object forgets
// who watches it. Its lock goes, too.
func (s *session) renewHeader(header string) error {
	const page = 10_000
	values, err := s.ioctx.GetAllOmapValues(header, "", "", page)
	if err != nil {
		return err
	}
	at, err := s.ioctx.GetLastVersion()
	if err != nil {
		return err
	}
	attributes, err := s.ioctx.ListXattrs(header)
	if err != nil {
		return err
	}
	if len(values) == 0 {
		return fmt.Errorf("object %s has nothing", header)
	}
	op := rados.CreateWriteOp()
	defer op.Release()
	op.AssertVersion(at)
	op.Remove()
	op.Create(rados.CreateIdempotent)
	op.SetOmap(values)
	for name, value := range attributes {
		if name != lockAttribute {
			op.SetXattr(name, value)
		}
	}
	return op.Operate(s.ioctx, header, rados.OperationNoFlag)
}

// isWatchedByTheDeadAlone says whether an image is watched, and by no client that is not shut out.
func (s *session) isWatchedByTheDeadAlone(image string) (bool, error) {
	open, err := rbd.OpenImageByIdReadOnly(s.ioctx, image, rbd.NoSnapshot)
	if absent(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	watchers, err := open.ListWatchers()
	open.Close()
	if err != nil || len(watchers) == 0 {
		return false, err
	}
	living, err := s.living(watchers)
	return len(living) == 0, err
}

// living are those who watch an image and are not shut out of the cluster.
func (s *session) living(watchers []rbd.ImageWatcher) ([]rbd.ImageWatcher, error) {
	out, err := ceph.ShutOut(s.conn, time.Now())
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(watchers), func(w rbd.ImageWatcher) bool { return slices.Contains(out, w.Addr) }), nil
}
