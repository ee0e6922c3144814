package cluster_test

import (
	"slices"
	"testing"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/inmemory"
)

func TestCopy_IsNotCreatedWhereItsClassForbidsIt(t *testing.T) {
	inBubble(t, func(w *world) {
		for _, name := range []string{"a", "b"} {
			w.KubernetesNode(name)
		}
		w.Hosts(map[string]int64{"a": gib, "b": gib})
		check.Got(w.Backend.Create(w.Context(), inmemory.Spec("v", mib, "a")))(w)
		check.Got(w.Backend.Snapshot(w.Context(), backend.SnapshotSpec{Name: "s", Source: "v"}))(w)
		for class, nodes := range map[string][]string{"here": {"a"}, "both": {"a", "b"}, "elsewhere": {"b"}, "anywhere": nil} {
			w.classOn(class, nodes)
			w.claimOf(class)
			s := inmemory.Spec("from-"+class, mib)
			s.Labels = map[string]string{"csi.storage.k8s.io/pvc/name": "claim-of-" + class, "csi.storage.k8s.io/pvc/namespace": "shop"}
			for kind, ask := range map[string]func() (*backend.Volume, error){
				"clone":   func() (*backend.Volume, error) { s.Name = "c-" + class; return w.Backend.Clone(w.Context(), "v", s) },
				"restore": func() (*backend.Volume, error) { s.Name = "r-" + class; return w.Backend.Restore(w.Context(), "s", s) },
			} {
				v, err := ask()
				if nodes == nil || slices.Contains(nodes, "a") {
					if err != nil || v.Node != "a" {
						w.Errorf("%s of class %s: %+v, %v", kind, class, v, err)
					}
					continue
				}
				inmemory.Expect(w, err, backend.ErrExhausted, "must be on node a", "class "+class, "allowedTopologies")
				if w.Volume(s.Name) != nil {
					w.Errorf("%s of class %s left an object", kind, class)
				}
			}
		}
	})
}

// classOn writes a class that allows some nodes, or all where none are given.
func (w *world) classOn(name string, nodes []string) {
	w.Helper()
	c := &storage.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: "csi.holdfast.dev"}
	if nodes != nil {
		c.AllowedTopologies = []core.TopologySelectorTerm{{MatchLabelExpressions: []core.TopologySelectorLabelRequirement{
			{Key: "topology.holdfast.dev/node", Values: nodes},
		}}}
	}
	check.Got(w.Theirs.StorageV1().StorageClasses().Create(w.Context(), c, metav1.CreateOptions{}))(w)
}

// claimOf writes a claim of a class.
func (w *world) claimOf(class string) {
	w.Helper()
	c := &core.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim-of-" + class}, Spec: core.PersistentVolumeClaimSpec{StorageClassName: &class}}
	check.Got(w.Theirs.CoreV1().PersistentVolumeClaims("shop").Create(w.Context(), c, metav1.CreateOptions{}))(w)
}
