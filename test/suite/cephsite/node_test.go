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
)

// asNode connects as the user of nodes, with no more than what nodes are given.
func (s *site) asNode(cluster v1beta1.VolumeCeph) *rados.Conn {
	s.Helper()
	conn, err := rados.NewConnWithUser(cluster.User)
	if err != nil {
		s.Fatal(err)
	}
	for option, value := range map[string]string{"mon_host": cluster.Monitors[0], "keyring": "/dev/null", "key": s.key(s.pool.Ceph.NodeUser)} {
		if err := conn.SetConfigOption(option, value); err != nil {
			s.Fatalf("option %s: %v", option, err)
		}
	}
	if err := conn.Connect(); err != nil {
		s.Fatal(err)
	}
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
	ioctx, err := conn.OpenIOContext(used.Pool)
	if err != nil {
		t.Fatal(err)
	}
	defer ioctx.Destroy()
	if _, err := rbd.GetImageNames(ioctx); err == nil {
		t.Error("it lists images outside of the namespace")
	}
	ioctx.SetNamespace(used.Namespace)
	image, err := rbd.OpenImage(ioctx, used.Image, rbd.NoSnapshot)
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	content, read := bytes.Repeat([]byte("content "), 512), make([]byte, 4096)
	if err := image.LockAcquire(rbd.LockModeExclusive); err != nil {
		t.Errorf("the exclusive lock: %v", err)
	}
	if _, err := image.WriteAt(content, 0); err != nil {
		t.Fatal(err)
	}
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
		m, err := cephfs.CreateFromRados(conn)
		if err != nil {
			t.Fatal(err)
		}
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
	m, err := mount(used.Path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := m.Open("/file", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	content, read := bytes.Repeat([]byte("content "), 512), make([]byte, 4096)
	if _, err := f.WriteAt(content, 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Fsync(cephfs.SyncAll); err != nil {
		t.Error(err)
	}
	if _, err := f.ReadAt(read, 0); err != nil || !bytes.Equal(read, content) {
		t.Errorf("it does not read what it has written: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if err := m.SetXattr("/", "ceph.quota.max_bytes", []byte("0"), cephfs.XattrDefault); err == nil {
		t.Error("it takes the limit of its volume away")
	}
	if _, err := small.Ceph(t.Context(), "fs", "subvolumegroup", "create", rig.FileSystem, "others"); err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{"/", "/volumes/others"} {
		if _, err := mount(other); err == nil {
			t.Errorf("it mounts %s", other)
		}
	}
}
