package admin

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// ofVolumeSnapshot creates a VolumeSnapshotContent of a driver for VolumeSnapshot nightly of that UID.
func (r *rig) ofVolumeSnapshot(driver string, source, status map[string]any, uid string) {
	r.Helper()
	spec := map[string]any{"driver": driver, "source": source, "volumeSnapshotRef": map[string]any{"namespace": "shop", "name": "nightly", "uid": uid}}
	r.dynamic(contents, "", map[string]any{"kind": "VolumeSnapshotContent", "metadata": map[string]any{"name": "content-" + driver}, "spec": spec, "status": status})
}

// volumeSnapshot creates VolumeSnapshot nightly and returns its UID.
func (r *rig) volumeSnapshot() string {
	r.Helper()
	return r.dynamic(volumeSnapshots, "shop", map[string]any{"kind": "VolumeSnapshot", "metadata": map[string]any{"name": "nightly"}})
}

func (r *rig) dynamic(kind schema.GroupVersionResource, namespace string, object map[string]any) (uid string) {
	r.Helper()
	object["apiVersion"] = "snapshot.storage.k8s.io/v1"
	client := dynamic.NewForConfigOrDie(r.api.Config()).Resource(kind).Namespace(namespace)
	return string(check.Got(client.Create(r.Context(), &unstructured.Unstructured{Object: object}, metav1.CreateOptions{}))(r).GetUID())
}

// ofS is what refers to snapshot s.
var ofS = map[string]any{"snapshotHandle": "s"}

func inGroup(group string) func(*v1beta1.Snapshot) {
	return func(s *v1beta1.Snapshot) {
		s.Spec.Group = &v1beta1.SnapshotGroup{Name: group, Volumes: []string{"v", "w"}}
	}
}

func TestDeleteSnapshot_RemovesOneWithoutAVolumeSnapshot(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agent("")
		r.snapshot("s")
		r.ofVolumeSnapshot("other.example.org", nil, ofS, r.volumeSnapshot())
		r.ofVolumeSnapshot("csi.holdfast.dev", nil, ofS, "of one that is gone")
		r.must(r.DeleteSnapshot(r.Context(), "s", sure))
		r.says("Snapshot s: 1Gi", "of volume v", "there is no trash", "snapshot s is deleted")
		r.wrote("PATCH snapshots/s as system:serviceaccount:storage:holdfast-controller", "DELETE snapshots/s")
	})
}

func TestDeleteSnapshot_InAClusterWithoutVolumeSnapshotsWorks(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agent("")
		for _, kind := range []string{"volumesnapshotcontents", "volumesnapshots"} {
			r.snapshot("s")
			r.door.missing = kind
			r.must(r.DeleteSnapshot(r.Context(), "s", sure))
		}
	})
}

func TestDeleteSnapshot_InUseIsRefused(t *testing.T) {
	of := []string{"VolumeSnapshot shop/nightly", "kubectl delete volumesnapshot -n shop nightly"}
	for name, test := range map[string]struct {
		there func(*rig)
		says  []string
	}{
		"taken":    {func(r *rig) { r.ofVolumeSnapshot("csi.holdfast.dev", nil, ofS, r.volumeSnapshot()) }, of},
		"imported": {func(r *rig) { r.ofVolumeSnapshot("csi.holdfast.dev", ofS, nil, r.volumeSnapshot()) }, of},
		"imported for one that is not there yet": {
			func(r *rig) { r.ofVolumeSnapshot("csi.holdfast.dev", ofS, nil, "") },
			[]string{"snapshot s", "waits for its VolumeSnapshot", "kubectl delete volumesnapshotcontent content-csi.holdfast.dev"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.snapshot("s")
				test.there(r)
				r.refuses(r.DeleteSnapshot(r.Context(), "s", sure), test.says...)
				r.untouched()
			})
		})
	}
}

func TestDeleteSnapshot_OfAVolumeSnapshotThatHasLostItsContentIsRefused(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.snapshot("s1", inGroup("g"), func(s *v1beta1.Snapshot) { s.Spec.Name = "snapshot-" + r.volumeSnapshot() })
		r.snapshot("s2", inGroup("g"))
		for _, name := range []string{"s1", "s2"} { // which is of the same group
			r.refuses(r.DeleteSnapshot(r.Context(), name, sure), "snapshot s1 was taken for VolumeSnapshot shop/nightly", "kubectl delete volumesnapshot -n shop nightly")
		}
		r.door.refused = map[string]string{"GET volumesnapshots": "no"}
		r.refuses(r.DeleteSnapshot(r.Context(), "s1", sure), "VolumeSnapshots could not be listed", "in use")
		r.untouched()
	})
}

func TestDeleteSnapshot_OfAGroupDeletesAllOfIt(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agent("")
		r.snapshot("s1", inGroup("g"))
		r.snapshot("s2", inGroup("g"))
		r.snapshot("other", inGroup("h"))
		r.must(r.DeleteSnapshot(r.Context(), "s2", sure))
		r.says("deleted together: 2 snapshots", "snapshot s1 is deleted", "snapshot s2 is deleted")
		left := check.Got(r.kinds.Snapshots().List(r.Context(), metav1.ListOptions{}))(r)
		if len(left.Items) != 1 || left.Items[0].Name != "other" || left.Items[0].Spec.Deletion != nil {
			r.Errorf("left are %+v", left.Items)
		}
	})
}
