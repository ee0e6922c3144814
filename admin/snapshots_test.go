package admin

import (
	"slices"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// ofVolumeSnapshot creates a VolumeSnapshotContent of snapshot s and its VolumeSnapshot.
func (r *rig) ofVolumeSnapshot(driver string, source, status map[string]any, uid string) {
	r.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent", "metadata": map[string]any{"name": "content-" + driver},
		"spec": map[string]any{
			"driver": driver, "source": source, "volumeSnapshotRef": map[string]any{"namespace": "shop", "name": "nightly", "uid": uid},
		},
		"status": status,
	}}
	_, err := dynamic.NewForConfigOrDie(r.api.Config()).Resource(contents).Create(r.Context(), o, metav1.CreateOptions{})
	r.must(err)
}

func (r *rig) volumeSnapshot() string {
	r.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot", "metadata": map[string]any{"name": "nightly"},
	}}
	o, err := dynamic.NewForConfigOrDie(r.api.Config()).Resource(volumeSnapshots).Namespace("shop").Create(r.Context(), o, metav1.CreateOptions{})
	r.must(err)
	return string(o.GetUID())
}

func TestDeleteSnapshot_RemovesOneWithoutAVolumeSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.agent("")
		r.snapshot("s")
		r.ofVolumeSnapshot("other.example.org", nil, map[string]any{"snapshotHandle": "s"}, r.volumeSnapshot())
		r.ofVolumeSnapshot("csi.holdfast.dev", nil, map[string]any{"snapshotHandle": "s"}, "of one that is gone")
		r.must(r.DeleteSnapshot(t.Context(), "s", sure))
		r.says("Snapshot s: 1Gi", "of volume v", "there is no trash", "snapshot s is deleted")
		want := []string{"PATCH snapshots/s as system:serviceaccount:storage:holdfast-controller", "DELETE snapshots/s"}
		if w := r.door.written(); !slices.Equal(w, want) {
			t.Errorf("it wrote %q, want %q", w, want)
		}
	})
}

func TestDeleteSnapshot_InAClusterWithoutVolumeSnapshotsWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.agent("")
		for _, kind := range []string{"volumesnapshotcontents", "volumesnapshots"} {
			r.snapshot("s")
			r.door.missing = kind
			r.must(r.DeleteSnapshot(t.Context(), "s", sure))
		}
	})
}

func TestDeleteSnapshot_ThatAVolumeSnapshotHasIsRefused(t *testing.T) {
	for name, source := range map[string]map[string]any{"taken": nil, "imported": {"snapshotHandle": "s"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.snapshot("s")
				status := map[string]any{"snapshotHandle": "s"}
				if source != nil {
					status = nil
				}
				r.ofVolumeSnapshot("csi.holdfast.dev", source, status, r.volumeSnapshot())
				r.refuses(r.DeleteSnapshot(t.Context(), "s", sure), "VolumeSnapshot shop/nightly", "kubectl delete volumesnapshot -n shop nightly")
				r.untouched()
			})
		})
	}
}

func TestDeleteSnapshot_OfAVolumeSnapshotThatHasLostItsContentIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		uid := r.volumeSnapshot()
		in := func(name string) func(*v1beta1.Snapshot) {
			return func(s *v1beta1.Snapshot) {
				s.Spec.Name, s.Spec.Group = name, &v1beta1.SnapshotGroup{Name: "g", Volumes: []string{"v", "w"}}
			}
		}
		r.snapshot("s1", in("snapshot-"+uid))
		r.snapshot("s2", in("another"))
		for _, name := range []string{"s1", "s2"} { // which is of the same group
			r.refuses(r.DeleteSnapshot(t.Context(), name, sure), "snapshot s1 was taken for VolumeSnapshot shop/nightly", "kubectl delete volumesnapshot -n shop nightly")
		}
		r.door.refused = map[string]string{"GET volumesnapshots": "no"}
		r.refuses(r.DeleteSnapshot(t.Context(), "s1", sure), "VolumeSnapshots could not be listed", "in use")
		r.untouched()
	})
}

func TestDeleteSnapshot_WhoseContentWaitsForItsVolumeSnapshotIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.snapshot("s")
		r.ofVolumeSnapshot("csi.holdfast.dev", map[string]any{"snapshotHandle": "s"}, nil, "")
		r.refuses(r.DeleteSnapshot(t.Context(), "s", sure), "snapshot s", "waits for its VolumeSnapshot", "kubectl delete volumesnapshotcontent content-csi.holdfast.dev")
		r.untouched()
	})
}

func TestDeleteSnapshot_OfAGroupDeletesAllOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.agent("")
		in := func(group string) func(*v1beta1.Snapshot) {
			return func(s *v1beta1.Snapshot) {
				s.Spec.Group = &v1beta1.SnapshotGroup{Name: group, Volumes: []string{"v", "w"}}
			}
		}
		r.snapshot("s1", in("g"))
		r.snapshot("s2", in("g"))
		r.snapshot("other", in("h"))
		r.must(r.DeleteSnapshot(t.Context(), "s2", sure))
		r.says("deleted together: 2 snapshots", "snapshot s1 is deleted", "snapshot s2 is deleted")
		left, err := r.kinds.Snapshots().List(t.Context(), metav1.ListOptions{})
		r.must(err)
		if len(left.Items) != 1 || left.Items[0].Name != "other" || left.Items[0].Spec.Deletion != nil {
			t.Errorf("left are %+v", left.Items)
		}
	})
}
