package operator

import (
	"slices"
	"testing"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

const noImage = "holdfast.test/there-is-none:1"

// use makes a claim and a pod that has written to it and still uses it.
func use(s *kube.Space, name string, options ...kube.PodOption) {
	s.Claim(name, "16Mi")
	s.Pod(name, append(options, kube.Mount(name, "/data"), kube.Script("touch /data/file; sleep infinity"))...)
	s.Ready(name)
}

func TestImage_MissingAffectsOneNodeNamedInTheCondition(t *testing.T) {
	hostfs.Long(t)
	a := administer(t)
	twoNodes(t)
	before := identities(a.pods("node"))
	a.ask(func(spec *v1beta1.StorageClusterSpec) { spec.Images.CSINodeDriverRegistrar = noImage })
	c := a.await("to name the node whose pod does not start", func(c *v1beta1.StorageCluster) bool {
		return says(c, v1beta1.DegradedCondition, "RolloutStuck", noImage) && c.Status.Phase == v1beta1.ClusterDegraded
	})
	now := a.pods("node")
	affected := ""
	for name, pod := range now {
		if _, old := before[name]; !old {
			affected += pod.Spec.NodeName
		}
	}
	if len(now) != len(before) || !says(c, v1beta1.DegradedCondition, "RolloutStuck", "node "+affected+" ") || affected == "" {
		t.Errorf("the pods of %q were replaced, and the condition says %s", affected, inWords(c.Status.Conditions))
	}
	var ready, unready []string
	for _, n := range c.Status.Nodes {
		if n.Ready {
			ready = append(ready, n.Name)
		} else {
			unready = append(unready, n.Name)
		}
	}
	if !slices.Equal(unready, []string{affected}) {
		t.Errorf("not ready is %v", unready)
	}
	s := begin(t)
	for _, node := range ready {
		s.Claim(node, "16Mi")
		s.Run(node, kube.Mount(node, "/data"), kube.OnNode(node), kube.Script("touch /data/file"))
	}
	a.change(func(spec *v1beta1.StorageClusterSpec) { spec.Images.CSINodeDriverRegistrar = "" })
	s.Claim(affected, "16Mi")
	s.Run(affected, kube.Mount(affected, "/data"), kube.OnNode(affected), kube.Script("touch /data/file"))
}
