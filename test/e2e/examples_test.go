package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-storage/holdfast/test/e2e/kube"
)

const examples = "../../deploy/examples"

func TestTheExamplesRunAsTheyAre(t *testing.T) {
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
	files, err := filepath.Glob(filepath.Join(examples, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !done[file] {
			apply(file)
		}
	}
	if line := s.FirstLines("reader", 1); !strings.Contains(line[0], "UTC") {
		t.Errorf("the volume from the snapshot begins with %q, which is no time", line)
	}
}

// awaitExample waits until an object of an example does what it is an example of.
func awaitExample(s *kube.Space, object *unstructured.Unstructured) {
	switch object.GetKind() {
	case "Pod":
		s.Ready(object.GetName())
	case "VolumeSnapshot":
		s.AwaitApplied(object, "to be usable", func(o *unstructured.Unstructured) (bool, error) {
			ready, _, err := unstructured.NestedBool(o.Object, "status", "readyToUse")
			return ready, err
		})
	}
}
