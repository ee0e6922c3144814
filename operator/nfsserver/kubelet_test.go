package nfsserver

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// cluster makes servers run an image.
func (r *rig) cluster(image v1beta1.Image) {
	r.Helper()
	r.changeCluster(func(s *v1beta1.StorageClusterSpec) { s.Images.NFS = image })
	wait.Until(r, "the controller knowing of the image", func() bool {
		c, err := r.controller.clusters.Get(clusterName)
		return err == nil && c.Spec.Images.NFS == image
	})
}

// onTheFirstNode has a directory of this machine, which is the first node of a test cluster.
func (r *rig) onTheFirstNode(s *v1beta1.NFSServerSpec) {
	dir := filepath.Join("/var/lib", r.namespace)
	r.Cleanup(func() { _ = os.RemoveAll(dir) })
	s.Storage = &v1beta1.NFSStorage{HostPath: dir}
	s.NodeSelectorTerms = []core.NodeSelectorTerm{{MatchExpressions: []core.NodeSelectorRequirement{
		{Key: core.LabelHostname, Operator: core.NodeSelectorOpIn, Values: []string{"node1"}},
	}}}
}

func TestKubelet_RunsThePodAsSpecified(t *testing.T) {
	r := newRig(t)
	r.cluster("holdfast.test/pause:1") // it runs, and answers no probe
	r.create("data", r.onTheFirstNode)
	wait.Until(r, "the container running", func() bool {
		p := r.pod("data")
		return p != nil && len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].State.Running != nil
	})
	wait.Until(r, "the node in the status", func() bool { return r.server("data").Status.Node == "node1" })
	if phase := r.server("data").Status.Phase; phase != v1beta1.NFSPending {
		t.Errorf("a server that does not answer is %s", phase)
	}
	set := r.statefulSet("data")
	if set.Generation != 1 || len(set.Spec.Template.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields) != 1 {
		t.Errorf("its pod was made %d times, to be at %v", set.Generation, set.Spec.Template.Spec.Affinity)
	}
	r.delete("data")
	r.gone("data")
}

func TestKubelet_WithoutLoopDevicesTheServerReportsWhatIsMissing(t *testing.T) {
	r := newRig(t)
	r.create("data", func(s *v1beta1.NFSServerSpec) {
		r.onTheFirstNode(s)
		s.Engine = v1beta1.EngineImage
	})
	wait.Until(r, "the reason", func() bool {
		message := r.condition("data", v1beta1.AvailableCondition, reasonPod)
		return strings.Contains(message, "Insufficient holdfast.dev/loop-set") && strings.Contains(message, "engine directory")
	})
}
