package e2e

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

const examples = "../../../deploy/examples"

// sharedExample has a test of its own: not every node of this cluster has a kernel that mounts NFS.
var sharedExample = filepath.Join(examples, "shared.yaml")

// cephExamples need a Ceph cluster, and one changes the StorageCluster: operator/render tests what is made of it, and
// test/suite/e2e/ceph moves volumes.
var cephExamples = []string{filepath.Join(examples, "ceph.yaml"), filepath.Join(examples, "move-to-ceph.yaml")}

func TestExamples_RunUnchanged(t *testing.T) {
	t.Parallel()
	s := begin(t)
	allNodes(t) // the examples' pods may be on any of them
	done := map[string]bool{}
	apply := func(file string) {
		for _, object := range s.Apply(file) {
			awaitExample(s, object)
		}
		done[file] = true
	}
	// The snapshot is of the claim, and holds what had been written by then.
	apply(filepath.Join(examples, "claim.yaml"))
	s.Exec("writer", "sh", "-c", "until test -s /data/log; do sleep 0.1; done")
	files := check.Got(filepath.Glob(filepath.Join(examples, "*.yaml")))(t)
	for _, file := range files {
		if !done[file] && file != sharedExample && !slices.Contains(cephExamples, file) {
			apply(file)
		}
	}
	if line := s.FirstLines("reader", 1); !strings.Contains(line[0], "UTC") {
		t.Errorf("the volume from the snapshot begins with %q, which is no time", line)
	}
}

func TestExamples_SharedVolumeRunsOnNodesWhoseKernelMountsIt(t *testing.T) {
	hostfs.Long(t)
	t.Parallel()
	s := begin(t)
	nodes := nodesWithClients(t)
	s.AllowServers()
	next := 0
	for _, object := range s.Apply(sharedExample, func(o *unstructured.Unstructured) {
		if o.GetKind() == "Pod" {
			check.OK(t, unstructured.SetNestedField(o.Object, nodes[next%len(nodes)], "spec", "nodeName"))
			next++
		}
	}) {
		awaitExample(s, object)
	}
	wrote := s.Exec("shared-one", "sh", "-c", "until test $(wc -l </data/log) = 2; do sleep 0.5; cat /data/log >/dev/null; done; sort /data/log")
	if wrote != "shared-one\nshared-two\n" {
		t.Errorf("both pods must have written their name: %q", wrote)
	}
}

// awaitExample waits until an object of an example does what it is an example of.
func awaitExample(s *kube.Space, object *unstructured.Unstructured) {
	switch object.GetKind() {
	case "Pod":
		s.Ready(object.GetName())
	case "NFSServer":
		s.AwaitApplied(object, "to serve", kube.Serves)
	case "VolumeSnapshot":
		s.AwaitApplied(object, "to be usable", func(o *unstructured.Unstructured) (bool, error) {
			ready, _, err := unstructured.NestedBool(o.Object, "status", "readyToUse")
			return ready, err
		})
	}
}
