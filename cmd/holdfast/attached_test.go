package main

import (
	"slices"
	"testing"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-storage/holdfast/backend/local/disk"
	"github.com/holdfast-storage/holdfast/driver"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func TestAttachedByOthers_IsWhatTheNodeHasOfOtherDrivers(t *testing.T) {
	c := kubernetes.NewForConfigOrDie(newCluster(t).Config())
	ask := attachedByOthers(c, "node-a", driver.DefaultName)
	if got, err := ask(t.Context()); err == nil {
		t.Errorf("without a Node object: %v; want an error, since nothing is known", got)
	}
	for _, name := range []string{"node-b", "node-a"} {
		n := &core.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: core.NodeStatus{
			VolumesAttached: []core.AttachedVolume{{Name: core.UniqueVolumeName("kubernetes.io/csi/ebs^" + name), DevicePath: "/dev/xvdb"}, {Name: "kubernetes.io/csi/csi.holdfast.dev^pvc-1"}},
			VolumesInUse:    []core.UniqueVolumeName{core.UniqueVolumeName("kubernetes.io/csi/ebs^" + name), "kubernetes.io/csi/ebs^soon", "kubernetes.io/csi/csi.holdfast.dev^pvc-1"},
		}}
		wait.Put(t, n, c.CoreV1().Nodes())
	}
	want := []disk.Attached{{Handle: "kubernetes.io/csi/ebs^node-a", Device: "/dev/xvdb"}, {Handle: "kubernetes.io/csi/ebs^soon"}}
	if got, err := ask(t.Context()); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
}
