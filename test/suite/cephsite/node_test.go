//go:build ceph

package cephsite

import (
	"bytes"
	"os"
	"testing"

	"github.com/ceph/go-ceph/cephfs"
	"github.com/ceph/go-ceph/rados"
	"github.com/ceph/go-ceph/rbd"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	rig "github.com/holdfast-storage/holdfast/test/rig/ceph"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// asNode connects as the user of nodes, with no more than what nodes are given.
func (s *site) asNode(cluster v1beta1.VolumeCeph) *rados.Conn {
	s.Helper()
	conn := check.Got(rados.NewConnWithUser(cluster.User))(s)
	for option, value := range map[string]string{"mon_host": cluster.Monitors[0], "keyring": "/dev/null", "key": s.key(s.pool.Ceph.NodeUser)} {
		if err := conn.SetConfigOption(option, value); err != nil {
			s.Fatalf("option %s: %v", option, err)
		}
	}
	check.OK(s, conn.Connect())
	s.Cleanup(conn.Shutdown)
	return conn
}

func TestNodeUser_MayUseAnImageOfItsNamespaceAndNoOther(t *testing.T) {
	s := newSite(t, v1beta1.EngineRBD, func(p *v1beta1.PoolSpec) { p.Ceph.Namespace = "team" })
	s.setCaps(s.pool.Ceph.NodeUser, "mon", "profile rbd", "osd", "profile rbd pool="+s.pool.Ceph.Pool+" namespace=team")
	s.start()
	s.awaitReady()
	used := s.awaitVolume(s.request("a").Name, v1beta1.PhaseReady).Status.Access.RBD
	conn := s.asNode(used.Cluster)
	ioctx := check.Got(conn.OpenIOContext(used.Pool))(t)
	defer ioctx.Destroy()
	if _, err := rbd.GetImageNames(ioctx); err == nil {
		t.Error("it lists images outside of the namespace")
	}
	ioctx.SetNamespace(used.Namespace)
	image := check.Got(rbd.OpenImage(ioctx, used.Image, rbd.NoSnapshot))(t)
	defer image.Close()
	content, read := bytes.Repeat([]byte("content "), 512), make([]byte, 4096)
	if err := image.LockAcquire(rbd.LockModeExclusive); err != nil {
		t.Errorf("the exclusive lock: %v", err)
	}
	check.Got(image.WriteAt(content, 0))(t)
	if _, err := image.ReadAt(read, 0); err != nil || !bytes.Equal(read, content) {
		t.Errorf("it does not read what it has written: %v", err)
	}
}

func TestNodeUser_MayUseADirectoryOfItsGroupAndNoOther(t *testing.T) {
	s := newSite(t, v1beta1.EngineCephFS)
	s.start()
	s.awaitReady()
	used := s.awaitVolume(s.request("a").Name, v1beta1.PhaseReady).Status.Access.CephFS
	conn := s.asNode(used.Cluster)
	mount := func(path string) (*cephfs.MountInfo, error) {
		m := check.Got(cephfs.CreateFromRados(conn))(t)
		t.Cleanup(func() { _ = m.Release() })
		if err := m.SelectFilesystem(used.FileSystem); err != nil {
			return nil, err
		}
		if err := m.MountWithRoot(path); err != nil {
			return nil, err
		}
		t.Cleanup(func() { _ = m.Unmount() })
		return m, nil
	}
	m := check.Got(mount(used.Path))(t)
	f := check.Got(m.Open("/file", os.O_CREATE|os.O_RDWR, 0o600))(t)
	content, read := bytes.Repeat([]byte("content "), 512), make([]byte, 4096)
	check.Got(f.WriteAt(content, 0))(t)
	check.Report(t, f.Fsync(cephfs.SyncAll))
	if _, err := f.ReadAt(read, 0); err != nil || !bytes.Equal(read, content) {
		t.Errorf("it does not read what it has written: %v", err)
	}
	check.Report(t, f.Close())
	if err := m.SetXattr("/", "ceph.quota.max_bytes", []byte("0"), cephfs.XattrDefault); err == nil {
		t.Error("it takes the limit of its volume away")
	}
	check.Got(small.Ceph(t.Context(), "fs", "subvolumegroup", "create", rig.FileSystem, "others"))(t)
	for _, other := range []string{"/", "/volumes/others"} {
		if _, err := mount(other); err == nil {
			t.Errorf("it mounts %s", other)
		}
	}
}
