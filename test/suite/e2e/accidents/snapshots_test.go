package accidents

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

func TestSnapshotObjects_DeletedByHandAreWrittenAgainAndCanBeRestored(t *testing.T) {
	p := keep(t, begin(t))
	p.killing(func(p *precious, kill func()) {
		all, err := objects.Snapshots().List(p.t.Context(), metav1.ListOptions{})
		if err != nil || len(all.Items) == 0 {
			p.t.Fatalf("%d snapshots, %v", len(all.Items), err)
		}
		cluster.MustKubectl(p.t, "delete", "--wait=false", "--all", "snapshots.holdfast.dev")
		kill()
		for _, s := range all.Items {
			kube.AwaitOne(p.Space, p.Holdfast("snapshots"), s.Name, "to be written again", func(o *unstructured.Unstructured) (bool, error) {
				phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
				return o.GetUID() != s.UID && phase == string(v1beta1.PhaseReady), nil
			})
		}
	})
}

// content is the VolumeSnapshotContent of the snapshot, and its Snapshot.
func (p *precious) content() (content *unstructured.Unstructured, handle string) {
	p.t.Helper()
	taken, err := p.Snapshots().Get(p.t.Context(), snap, metav1.GetOptions{})
	check.OK(p.t, err)
	name, _, _ := unstructured.NestedString(taken.Object, "status", "boundVolumeSnapshotContentName")
	if content, err = p.SnapshotContents().Get(p.t.Context(), name, metav1.GetOptions{}); err != nil {
		p.t.Fatal(err)
	}
	handle, _, _ = unstructured.NestedString(content.Object, "status", "snapshotHandle")
	return content, handle
}

func TestSnapshot_ThatAdministratorsWantGoneIsDeletedWhenItHasNoVolumeSnapshot(t *testing.T) {
	p := keep(t, begin(t))
	content, handle := p.content()
	if out, err := cluster.RunHoldfast(t, "snapshots", "delete", handle, "--yes"); err == nil || !strings.Contains(out, "VolumeSnapshot "+p.Namespace+"/"+snap) {
		t.Errorf("a snapshot of a VolumeSnapshot: %v: %s", err, out)
	}
	p.intact(t.Name())

	cluster.MustKubectl(t, "patch", "volumesnapshotcontent", content.GetName(), "--type=merge", "-p", `{"spec":{"deletionPolicy":"Retain"}}`)
	cluster.MustKubectl(t, "-n", p.Namespace, "delete", "volumesnapshot", snap)
	cluster.MustKubectl(t, "delete", "volumesnapshotcontent", content.GetName())
	if s, err := objects.Snapshots().Get(t.Context(), handle, metav1.GetOptions{}); err != nil || s.DeletionTimestamp != nil || s.Status.Phase != v1beta1.PhaseReady {
		t.Fatalf("it was retained, and is %+v, %v", s.Status, err)
	}
	cluster.MustRunHoldfast(t, "snapshots", "delete", handle, "--yes")
	delete(p.sums, snap)
	kube.AwaitNone(p.Space, p.Holdfast("snapshots"), kube.Named(handle), "snapshot "+handle)
	p.intact(t.Name())
}

func TestVolumeSnapshotContents_DeletedByHandKeepTheirSnapshot(t *testing.T) {
	p := keep(t, begin(t))
	p.killing(func(p *precious, kill func()) {
		content, handle := p.content()
		name := content.GetName()
		cluster.MustKubectl(p.t, "delete", "--wait=false", "volumesnapshotcontent", name)
		kill()
		p.intact(p.t.Name() + ", deleted") // it waits for its VolumeSnapshot

		// And even so it is made to go: it is made again, for the same snapshot.
		cluster.MustKubectl(p.t, "patch", "volumesnapshotcontent", name, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
		kube.AwaitOne(p.Space, p.SnapshotContents(), name, "to be made again", func(o *unstructured.Unstructured) (bool, error) {
			now, _, _ := unstructured.NestedString(o.Object, "status", "snapshotHandle")
			ready, err := kube.IsUsable(o)
			return ready && now == handle && o.GetUID() != content.GetUID(), err
		})
		if s, err := objects.Snapshots().Get(p.t.Context(), handle, metav1.GetOptions{}); err != nil || s.DeletionTimestamp != nil || s.Status.Phase != v1beta1.PhaseReady {
			p.t.Fatalf("the snapshot is %+v, %v", s.Status, err)
		}
	})
}
