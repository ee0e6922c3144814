package render

import (
	"slices"
	"testing"

	apps "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

func TestSnapshotController_RunsWhereItsKindsExist(t *testing.T) {
	look := func(in Input) *apps.Deployment {
		t.Helper()
		return look[apps.Deployment](t, in, "Deployment", "holdfast-snapshot-controller")
	}
	in := ask(func(s *v1beta1.StorageClusterSpec) { s.Images.SnapshotController = "r/s:1" })
	d := look(in)
	if d == nil {
		t.Fatal("there is none")
	}
	c := container(&d.Spec.Template.Spec, "snapshot-controller")
	if c == nil || c.Image != "r/s:1" || !slices.Contains(c.Args, "--leader-election") || !slices.Contains(c.Args, "--resync-period=2m") || *d.Spec.Replicas != 2 {
		t.Errorf("it is %+v", d.Spec)
	}
	in.Cluster.Spec.Controller.Replicas = new(int32(3))
	if *look(in).Spec.Replicas != 3 {
		t.Error("it has not the replicas of the spec")
	}
	in.Has = func(kind schema.GroupKind) bool { return kind != groupSnapshotClassKind }
	if look(in) != nil {
		t.Error("it would end at once, for want of its kinds")
	}
	in = ask(nil)
	if look(in) != nil {
		t.Error("it runs unasked, and there may be another")
	}
	in.Snapshots = true
	if look(in) == nil {
		t.Error("it does not run, and the kinds were brought")
	}
	in.Cluster.Spec.CSI.Enabled = new(false)
	if look(in) != nil {
		t.Error("it runs without CSI")
	}
}

// Or all pods of the controller would be replaced when the kinds of snapshots come, which they do after its first start.
func TestSnapshotController_KindsDoNotChangeTheController(t *testing.T) {
	for name, change := range map[string]func(*Input){
		"the kinds were brought":  func(in *Input) { in.Snapshots = true },
		"there are no such kinds": func(in *Input) { in.Has = nil },
		"an image is given":       func(in *Input) { in.Cluster.Spec.Images.SnapshotController = "r/s:1" },
	} {
		in := ask(nil)
		want := controllerOf(t, in).Spec
		change(&in)
		t.Run(name, func(t *testing.T) { same(t, want, controllerOf(t, in).Spec) })
	}
}
