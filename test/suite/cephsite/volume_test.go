//go:build ceph

package cephsite

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	rig "github.com/holdfast-storage/holdfast/test/rig/ceph"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// onBoth runs a test for each engine.
func onBoth(t *testing.T, test func(*testing.T, v1beta1.Engine)) {
	t.Helper()
	for _, engine := range []v1beta1.Engine{v1beta1.EngineRBD, v1beta1.EngineCephFS} {
		t.Run(string(engine), func(t *testing.T) { test(t, engine) })
	}
}

// request writes the object of a volume, as the controller does.
func (s *site) request(name string, change ...func(*v1beta1.Volume)) *v1beta1.Volume {
	s.Helper()
	v := &v1beta1.Volume{
		ObjectMeta: metav1.ObjectMeta{Name: s.pool.Name + "-" + name, Finalizers: []string{v1beta1.AgentFinalizer}},
		Spec:       v1beta1.VolumeSpec{Name: s.pool.Name + "-" + name, Node: s.node, Size: v1beta1.VolumeSize{Required: resource.NewQuantity(16<<20, resource.BinarySI)}},
	}
	for _, c := range change {
		c(v)
	}
	return check.Got(s.holdfast.HoldfastV1beta1().Volumes().Create(s.Context(), v, metav1.CreateOptions{}))(s)
}

// awaitVolume waits until the volume has a phase.
func (s *site) awaitVolume(name string, phase v1beta1.Phase) (v *v1beta1.Volume) {
	s.Helper()
	s.until(name+" is "+string(phase), func() (bool, string) {
		var err error
		if v, err = s.holdfast.HoldfastV1beta1().Volumes().Get(s.Context(), name, metav1.GetOptions{}); err != nil {
			return false, err.Error()
		}
		return v.Status.Phase == phase, fmt.Sprintf("%+v", v.Status)
	})
	return v
}

// requestRemoval requests the deletion of a volume, as the controller does.
func (s *site) requestRemoval(v *v1beta1.Volume) {
	s.Helper()
	volumes := s.holdfast.HoldfastV1beta1().Volumes()
	patch := check.Got(v1beta1.NewDeletionRequest(v.UID, "a test", "").MergePatch())(s)
	check.Got(volumes.Patch(s.Context(), v.Name, types.MergePatchType, patch, metav1.PatchOptions{}))(s)
	check.OK(s, volumes.Delete(s.Context(), v.Name, metav1.DeleteOptions{}))
}

// forget removes all objects of the pool.
func (s *site) forget() {
	s.Helper()
	ctx, kinds := context.Background(), s.holdfast.HoldfastV1beta1()
	all, err := kinds.Volumes().List(ctx, metav1.ListOptions{FieldSelector: "spec.node=" + s.node})
	if err != nil {
		s.Error(err)
		return
	}
	for _, v := range all.Items {
		if _, err := kinds.Volumes().Patch(ctx, v.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
			s.Error(err)
		}
		if err := kinds.Volumes().Delete(ctx, v.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			s.Error(err)
		}
	}
	s.forgetSnapshots(ctx)
	if err := kinds.StorageNodes().Delete(ctx, s.node, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		s.Error(err)
	}
}

func (s *site) forgetSnapshots(ctx context.Context) {
	s.Helper()
	snapshots := s.holdfast.HoldfastV1beta1().Snapshots()
	all, err := snapshots.List(ctx, metav1.ListOptions{FieldSelector: "spec.node=" + s.node})
	if err != nil {
		s.Error(err)
		return
	}
	for _, one := range all.Items {
		if _, err := snapshots.Patch(ctx, one.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
			s.Error(err)
		}
		if err := snapshots.Delete(ctx, one.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			s.Error(err)
		}
	}
}

func (s *site) awaitGone(v *v1beta1.Volume) {
	s.Helper()
	s.until(v.Name+" is gone", func() (bool, string) {
		now, err := s.holdfast.HoldfastV1beta1().Volumes().Get(s.Context(), v.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprintf("%+v, %v", now, err)
	})
}

// inCeph lists what is in the pool, as an administrator sees it.
func (s *site) inCeph() []string {
	s.Helper()
	var text string
	var err error
	if s.pool.Engine == v1beta1.EngineRBD {
		text, err = small.Command(s.Context(), "rbd", "ls", "--format", "json", s.place())
	} else {
		text, err = small.Ceph(s.Context(), "fs", "subvolume", "ls", rig.FileSystem, s.pool.Ceph.Namespace)
	}
	check.OK(s, err)
	var images, names []string
	if json.Unmarshal([]byte(text), &images) == nil {
		return images
	}
	var directories []struct{ Name string }
	if err := json.Unmarshal([]byte(text), &directories); err != nil {
		s.Fatal(text, err)
	}
	for _, d := range directories {
		names = append(names, d.Name)
	}
	return names
}

// place is the pool of images as rbd names it.
func (s *site) place() string {
	return strings.TrimSuffix(s.pool.Ceph.Pool+"/"+s.pool.Ceph.Namespace, "/")
}

// storageNode reads what the process says of itself.
func (s *site) storageNode() *v1beta1.StorageNode {
	s.Helper()
	n, err := s.holdfast.HoldfastV1beta1().StorageNodes().Get(s.Context(), s.node, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		s.Fatal(err)
	}
	return n
}

// awaitPool waits until the pool can be used, or for a message that says all of these.
func (s *site) awaitPool(says ...string) {
	s.Helper()
	s.until(fmt.Sprintf("the pool says %q", says), func() (bool, string) {
		n := s.storageNode()
		if len(n.Status.Pools) != 1 {
			return false, "it is not there"
		}
		message := n.Status.Pools[0].Message
		for _, part := range says {
			if !strings.Contains(message, part) {
				return false, message
			}
		}
		return (message == "") == (len(says) == 0) && meta.IsStatusConditionTrue(n.Status.Conditions, v1beta1.ReadyCondition) == (len(says) == 0), message
	})
}

func TestVolume_IsMadeInCephAndRemoved(t *testing.T) {
	onBoth(t, func(t *testing.T, engine v1beta1.Engine) {
		s := newSite(t, engine)
		s.start()
		s.awaitReady()
		s.awaitPool()
		v := s.awaitVolume(s.request("a").Name, v1beta1.PhaseReady)
		if all := s.inCeph(); len(all) != 1 || !strings.Contains(all[0], v.Name) {
			t.Errorf("in Ceph there is %q", all)
		}
		used := v.Status.Access.RBD
		if engine == v1beta1.EngineRBD && (used == nil || used.Cluster.User != s.pool.Ceph.NodeUser || used.Pool != s.pool.Ceph.Pool) {
			t.Errorf("nodes are to use %+v", used)
		}
		if fs := v.Status.Access.CephFS; engine == v1beta1.EngineCephFS && (fs == nil || fs.Cluster.User != s.pool.Ceph.NodeUser || fs.FileSystem != rig.FileSystem) {
			t.Errorf("nodes are to use %+v", fs)
		}
		s.until("it counts as promised", func() (bool, string) {
			p := s.storageNode().Status.Pools[0]
			return p.Volumes == 1 && p.Promised.Value() >= 16<<20 && p.Capacity.Value() > 1<<30 && p.Engine == engine && strings.HasPrefix(p.Path, "ceph:"+small.FSID), fmt.Sprintf("%+v", p)
		})
		if _, err := s.holdfast.HoldfastV1beta1().Volumes().Get(t.Context(), v.Name, metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
		if status, body := s.probe("/metrics"); status != 200 || !strings.Contains(body, `holdfast_pool_up{pool="`+s.pool.Name+`"} 1`) || !strings.Contains(body, `holdfast_pool_volumes{pool="`+s.pool.Name+`"} 1`) {
			t.Errorf("the metrics are %d %s", status, body)
		}
		s.requestRemoval(v)
		s.awaitGone(v)
		if all := s.inCeph(); len(all) != 0 {
			t.Errorf("in Ceph there is still %q", all)
		}
		if err := s.stop(); err != nil {
			t.Errorf("a stop: %v", err)
		}
	})
}
