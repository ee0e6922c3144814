//go:build ceph

package cephsite

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/ceph/go-ceph/cephfs"
	"github.com/ceph/go-ceph/rbd"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// blockSize is how much of a volume a test writes and reads.
const blockSize = 4096

// withTrash keeps what is deleted.
func withTrash(p *v1beta1.PoolSpec) { p.TrashRetention = new(v1beta1.Duration("1h")) }

// file is what a test writes into: an image, or a file.
type file interface {
	WriteAt(data []byte, at int64) (int, error)
	ReadAt(data []byte, at int64) (int, error)
}

// onNode runs f with the volume as a node has it, with the node's user.
func (s *site) onNode(v *v1beta1.Volume, f func(file) error) {
	s.Helper()
	use := s.useImage
	if s.pool.Engine == v1beta1.EngineCephFS {
		use = s.useFile
	}
	if err := use(v, f); err != nil {
		s.Fatalf("volume %s: %v", v.Name, err)
	}
}

func (s *site) useImage(v *v1beta1.Volume, f func(file) error) error {
	s.Helper()
	at := v.Status.Access.RBD
	ioctx, err := s.asNode(at.Cluster).OpenIOContext(at.Pool)
	if err != nil {
		return err
	}
	defer ioctx.Destroy()
	ioctx.SetNamespace(at.Namespace)
	image, err := rbd.OpenImage(ioctx, at.Image, rbd.NoSnapshot)
	if err != nil {
		return err
	}
	defer image.Close()
	return f(image)
}

func (s *site) useFile(v *v1beta1.Volume, f func(file) error) error {
	s.Helper()
	at := v.Status.Access.CephFS
	m, err := cephfs.CreateFromRados(s.asNode(at.Cluster))
	if err != nil {
		return err
	}
	defer func() {
		check.Report(s, m.Release())
	}()
	if err := m.SelectFilesystem(at.FileSystem); err != nil {
		return err
	}
	if err := m.MountWithRoot(at.Path); err != nil {
		return err
	}
	defer func() {
		check.Report(s, m.Unmount())
	}()
	opened, err := m.Open("/file", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer opened.Close()
	if err := f(opened); err != nil {
		return err
	}
	return opened.Fsync(cephfs.SyncAll)
}

// block is the content that a test writes.
func block(text string) []byte { return bytes.Repeat([]byte(text), blockSize/len(text)+1)[:blockSize] }

func (s *site) write(v *v1beta1.Volume, text string) {
	s.Helper()
	s.onNode(v, func(f file) error {
		_, err := f.WriteAt(block(text), 0)
		return err
	})
}

func (s *site) expectContent(v *v1beta1.Volume, text string) {
	s.Helper()
	s.onNode(v, func(f file) error {
		is := make([]byte, blockSize)
		if _, err := f.ReadAt(is, 0); err != nil {
			return err
		}
		if !bytes.Equal(is, block(text)) {
			s.Errorf("volume %s begins with %q, and should with %q", v.Name, is[:min(len(is), 32)], text)
		}
		return nil
	})
}

// requestSnapshot writes the object of a snapshot, as the controller does.
func (s *site) requestSnapshot(source *v1beta1.Volume, name string) *v1beta1.Snapshot {
	s.Helper()
	made := check.Got(s.holdfast.HoldfastV1beta1().Snapshots().Create(s.Context(), &v1beta1.Snapshot{
		ObjectMeta: metav1.ObjectMeta{Name: s.pool.Name + "-" + name, Finalizers: []string{v1beta1.AgentFinalizer}},
		Spec:       v1beta1.SnapshotSpec{Name: s.pool.Name + "-" + name, Node: s.node, SourceRef: v1beta1.FromVolume(source.Name)},
	}, metav1.CreateOptions{}))(s)
	return made
}

func (s *site) awaitSnapshot(name string) (found *v1beta1.Snapshot) {
	s.Helper()
	s.until(name+" is ready", func() (bool, string) {
		var err error
		if found, err = s.holdfast.HoldfastV1beta1().Snapshots().Get(s.Context(), name, metav1.GetOptions{}); err != nil {
			return false, err.Error()
		}
		return found.Status.Phase == v1beta1.PhaseReady, fmt.Sprintf("%+v", found.Status)
	})
	return found
}

// isAdopted says whether the agent has written the object for what it found.
func isAdopted(o metav1.Object) bool { return o.GetLabels()[v1beta1.AdoptedLabel] == "true" }

// trashInCeph lists what Ceph has in its own trash. Deleted subvolumes are among those of inCeph.
func (s *site) trashInCeph() string {
	s.Helper()
	if s.pool.Engine != v1beta1.EngineRBD {
		return ""
	}
	return check.Got(small.Command(s.Context(), "rbd", "trash", "ls", "--all", s.place()))(s)
}

func TestObjects_ThatAreLostAreWrittenAgainAndNoDataIsDeleted(t *testing.T) {
	onBoth(t, func(t *testing.T, engine v1beta1.Engine) {
		s := newSite(t, engine)
		s.start()
		s.awaitReady()
		claim := &v1beta1.NamespacedReference{Namespace: "shop", Name: "orders"}
		a := s.awaitVolume(s.request("a", func(v *v1beta1.Volume) {
			v.Spec.ClaimRef, v.Spec.Labels = claim, map[string]string{v1beta1.ClaimNamespaceLabel: claim.Namespace, v1beta1.ClaimNameLabel: claim.Name}
		}).Name, v1beta1.PhaseReady)
		b := s.awaitVolume(s.request("b").Name, v1beta1.PhaseReady)
		s.write(a, "before")
		s.write(b, "of b")
		snapshot := s.awaitSnapshot(s.requestSnapshot(a, "s").Name)
		s.write(a, "after")
		before := s.inCeph()

		s.kill()
		s.forget()
		s.start()

		a2, b2 := s.awaitVolume(a.Name, v1beta1.PhaseReady), s.awaitVolume(b.Name, v1beta1.PhaseReady)
		snapshot2 := s.awaitSnapshot(snapshot.Name)
		for was, o := range map[metav1.Object]metav1.Object{a: a2, b: b2, snapshot: snapshot2} {
			if o.GetUID() == was.GetUID() || !isAdopted(o) || o.GetDeletionTimestamp() != nil {
				t.Errorf("%s was not written again: %+v", o.GetName(), o)
			}
		}
		if ref := a2.Spec.ClaimRef; ref == nil || *ref != *claim || a2.Status.Size.Cmp(*a.Status.Size) != 0 || a2.Status.Pool != s.pool.Name {
			t.Errorf("the volume was %+v and is %+v", a, a2)
		}
		if snapshot2.Spec.SourceRef != snapshot.Spec.SourceRef || !snapshot2.Status.CreationTime.Equal(snapshot.Status.CreationTime) {
			t.Errorf("the snapshot was %+v and is %+v", snapshot, snapshot2)
		}
		s.expectContent(a2, "after")
		s.expectContent(b2, "of b")
		restored := s.request("restored", func(v *v1beta1.Volume) {
			v.Spec.SourceRef = &v1beta1.SourceReference{Kind: v1beta1.SourceSnapshot, Name: snapshot.Name}
		})
		s.expectContent(s.awaitVolume(restored.Name, v1beta1.PhaseReady), "before")
		s.until("all of it counts", func() (bool, string) {
			p := s.storageNode().Status.Pools
			return len(p) == 1 && p[0].Volumes == 3 && p[0].Snapshots == 1, fmt.Sprintf("%+v", p)
		})
		now := s.inCeph()
		for _, name := range before {
			if !slices.Contains(now, name) {
				t.Errorf("%s is gone from Ceph, in which there is %q", name, now)
			}
		}
		if trash := s.trashInCeph(); trash != "" {
			t.Errorf("in the trash there is %q", trash)
		}
	})
}

// requestRestore writes a request to restore a volume, as the controller does.
func (s *site) requestRestore(name string) {
	s.Helper()
	patch := check.Got(json.Marshal(map[string]any{"spec": v1beta1.StorageNodeSpec{Restore: []v1beta1.RestoreRequest{{Name: name, RequestedBy: "a test"}}}}))(s)
	check.Got(s.holdfast.HoldfastV1beta1().StorageNodes().Patch(s.Context(), s.node, types.MergePatchType, patch, metav1.PatchOptions{}))(s)
}

// awaitTrash waits until the StorageNode lists these in the trash, and no others.
func (s *site) awaitTrash(names ...string) []v1beta1.TrashedVolume {
	s.Helper()
	var trash []v1beta1.TrashedVolume
	s.until(fmt.Sprintf("the trash has %q", names), func() (bool, string) {
		trash = s.storageNode().Status.Trash
		var is []string
		for _, one := range trash {
			is = append(is, one.Name)
		}
		slices.Sort(is)
		return slices.Equal(is, names), fmt.Sprintf("%+v", trash)
	})
	return trash
}

func TestTrash_VolumeIsListedAndRestoredWithItsContent(t *testing.T) {
	onBoth(t, func(t *testing.T, engine v1beta1.Engine) {
		s := newSite(t, engine, withTrash)
		s.start()
		s.awaitReady()
		v, rest := s.awaitVolume(s.request("a").Name, v1beta1.PhaseReady), s.awaitVolume(s.request("b").Name, v1beta1.PhaseReady)
		s.write(v, "kept")
		for _, one := range []*v1beta1.Volume{v, rest} {
			s.requestRemoval(one)
			s.awaitGone(one)
		}
		trash := s.awaitTrash(v.Name, rest.Name)
		for _, one := range trash {
			if one.Pool != s.pool.Name || one.Size.Cmp(*v.Status.Size) != 0 || one.ExpirationTime.Sub(one.DeletionTime.Time).Hours() != 1 {
				t.Errorf("in the trash there is %+v", one)
			}
		}
		s.kill() // the trash is in Ceph, and is not of this process
		s.start()
		s.awaitReady()
		s.requestRestore(v.Name)
		back := s.awaitVolume(v.Name, v1beta1.PhaseReady)
		s.expectContent(back, "kept")
		s.awaitTrash(rest.Name)
		s.until("the request is carried out", func() (bool, string) {
			left := s.storageNode().Spec.Restore
			return len(left) == 0, fmt.Sprintf("%+v", left)
		})
		s.until("the promise is that of both", func() (bool, string) {
			p := s.storageNode().Status.Pools[0]
			return p.Volumes == 1 && p.Promised.Value() == v.Status.Size.Value()+rest.Status.Size.Value(), fmt.Sprintf("%+v", p)
		})
	})
}
