package cluster_test

import (
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/cluster"
)

const protection = "kubernetes.io/pvc-protection"

// boundClaim writes the claim of a volume, as it is when it is bound.
func (w *world) boundClaim(volume string, change func(*core.PersistentVolumeClaim)) *core.PersistentVolumeClaim {
	w.Helper()
	claim := &core.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: "claim-of-" + volume, Namespace: "shop", Labels: map[string]string{"app": "till"},
			Annotations: map[string]string{
				"note": "of the user", "pv.kubernetes.io/bind-completed": "yes", "volume.kubernetes.io/selected-node": "a",
			},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "till", UID: "1", Controller: new(true)}},
		},
		Spec: core.PersistentVolumeClaimSpec{
			VolumeName: "pv-of-" + volume, StorageClassName: new("holdfast"), AccessModes: []core.PersistentVolumeAccessMode{core.ReadWriteOnce},
			Resources:  core.VolumeResourceRequirements{Requests: core.ResourceList{core.ResourceStorage: resource.MustParse("1Mi")}},
			DataSource: &core.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "template"},
		},
	}
	if change != nil {
		change(claim)
	}
	made, err := w.theirs.CoreV1().PersistentVolumeClaims("shop").Create(w.Context(), claim, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return made
}

func (w *world) claimOf(volume string) *core.PersistentVolumeClaim {
	claim, err := w.theirs.CoreV1().PersistentVolumeClaims("shop").Get(w.Context(), "claim-of-"+volume, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return claim
}

// letGoOfClaim takes the finalizer off, as happens when the last pod is gone.
func (w *world) letGoOfClaim(volume string) {
	w.Helper()
	w.until("the end of the old claim", func() bool {
		claim := w.claimOf(volume)
		if claim == nil || claim.DeletionTimestamp == nil {
			return false
		}
		claim.Finalizers = nil
		_, err := w.theirs.CoreV1().PersistentVolumeClaims("shop").Update(w.Context(), claim, metav1.UpdateOptions{})
		return err == nil
	})
}

// renewing is a cluster whose leader watches claims, with a volume that shall not outlive its node.
func renewing(t *testing.T) (*world, map[string]*host) {
	w := newWorld(t)
	w.lease = shortLease
	w.change = func(c *cluster.Config) { c.Driver = "csi.holdfast.dev" }
	for _, name := range []string{"a", "b"} {
		w.kubernetesNode(name)
	}
	hosts := w.hosts(map[string]int64{"a": gib, "b": gib})
	w.leads()
	w.made("v", "a", backend.DeleteOnNodeLoss)
	return w, hosts
}

func TestTheClaimOfAVolumeThatIsGivenUpIsMadeAgain(t *testing.T) {
	w, _ := renewing(t)
	old := w.boundClaim("v", nil)
	w.down("a")
	w.deleteNode("a")
	w.expectEvent("VolumeGivenUp")
	w.expectEvent("VolumeReplaced")
	w.gone("v")
	claim := w.claimOf("v")
	if claim == nil || claim.UID == old.UID || claim.DeletionTimestamp != nil {
		t.Fatalf("the claim is %+v", claim)
	}
	if claim.Spec.VolumeName != "" || claim.Spec.DataSource != nil || claim.Spec.Resources.Requests.Storage().String() != "1Mi" || *claim.Spec.StorageClassName != "holdfast" {
		t.Errorf("it asks for %+v", claim.Spec)
	}
	if len(claim.Annotations) != 1 || claim.Annotations["note"] != "of the user" || claim.Labels["app"] != "till" || len(claim.OwnerReferences) != 1 {
		t.Errorf("it is %+v", claim.ObjectMeta)
	}
}

func TestAClaimIsMadeAgainWhenItsLastPodHasLetGoOfIt(t *testing.T) {
	for name, meanwhile := range map[string]func(*world, map[string]*host){
		"and nothing else":       func(*world, map[string]*host) {},
		"and the node is back":   func(w *world, hosts map[string]*host) { w.kubernetesNode("a"); w.agent("a", hosts["a"]); w.ready("a") },
		"and another leads":      func(w *world, _ map[string]*host) { w.stop(); w.controller().leads() },
		"and its volume is told": func(w *world, _ map[string]*host) { go func() { _ = w.backend.Delete(w.Context(), "v") }() },
	} {
		t.Run(name, func(t *testing.T) {
			w, hosts := renewing(t)
			old := w.boundClaim("v", func(c *core.PersistentVolumeClaim) { c.Finalizers = []string{protection} })
			w.down("a")
			w.deleteNode("a")
			w.until("the end of the claim being asked for", func() bool { return w.claimOf("v").DeletionTimestamp != nil })
			if v := w.volume("v"); v == nil {
				t.Error("what the new claim needs is gone")
			}
			w.T = t
			meanwhile(w, hosts)
			w.letGoOfClaim("v")
			w.until("the new claim", func() bool { c := w.claimOf("v"); return c != nil && c.UID != old.UID })
			w.gone("v")
		})
	}
}

func TestAClaimThatAnotherHasMadeAgainIsLeftAsItIs(t *testing.T) {
	w, _ := renewing(t)
	w.boundClaim("v", func(c *core.PersistentVolumeClaim) { c.Finalizers = []string{protection} })
	w.down("a")
	w.deleteNode("a")
	w.until("the end of the claim being asked for", func() bool { return w.claimOf("v").DeletionTimestamp != nil })
	w.stop() // so that this test is first
	w.letGoOfClaim("v")
	mine := w.boundClaim("v", func(c *core.PersistentVolumeClaim) { c.Spec.VolumeName = "" })
	w.controller().leads()
	w.gone("v")
	if claim := w.claimOf("v"); claim == nil || claim.UID != mine.UID {
		t.Errorf("the claim is %+v", claim)
	}
}

func TestAClaimThatIsNotTheVolumesAnyMoreIsLeftAlone(t *testing.T) {
	for name, change := range map[string]func(*core.PersistentVolumeClaim){
		"of another volume": func(c *core.PersistentVolumeClaim) { c.Spec.VolumeName = "other" },
		"of a pod": func(c *core.PersistentVolumeClaim) {
			c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "1", Controller: new(true)}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := renewing(t)
			old := w.boundClaim("v", change)
			w.down("a")
			w.deleteNode("a")
			w.gone("v")
			if claim := w.claimOf("v"); claim == nil || claim.UID != old.UID || claim.DeletionTimestamp != nil {
				t.Errorf("the claim is %+v", claim)
			}
		})
	}
}

func TestAVolumeOfWhichNobodyHasAClaimIsGivenUpAlone(t *testing.T) {
	w, _ := renewing(t)
	w.down("a")
	w.deleteNode("a")
	w.gone("v")
	if claim := w.claimOf("v"); claim != nil {
		t.Errorf("there is a claim: %+v", claim)
	}
}

func TestWhatIsGivenUpIsToldOnce(t *testing.T) {
	w, _ := renewing(t)
	w.boundClaim("v", nil)
	w.down("a")
	w.deleteNode("a")
	w.gone("v")
	w.until("the record of the node being forgotten, which is last", func() bool {
		n, err := w.nodes().Get(t.Context(), "a", metav1.GetOptions{})
		return apierrors.IsNotFound(err) || err == nil && len(n.Spec.Discard) > 0
	})
	told := 0
	for len(w.events.Events) > 0 {
		if strings.Contains(<-w.events.Events, "VolumeGivenUp") {
			told++
		}
	}
	if told != 2 { // on the volume, and on its claim
		t.Errorf("it was told %d times", told)
	}
}

func TestACopyIsNotMadeWhereItsClassForbidsIt(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"a", "b"} {
		w.kubernetesNode(name)
	}
	w.hosts(map[string]int64{"a": gib, "b": gib})
	w.made("v", "a", "")
	if _, err := w.backend.Snapshot(t.Context(), backend.SnapshotSpec{Name: "s", Source: "v"}); err != nil {
		t.Fatal(err)
	}
	for class, nodes := range map[string][]string{"here": {"a"}, "both": {"a", "b"}, "elsewhere": {"b"}, "anywhere": nil} {
		w.classOn(class, nodes)
		w.boundClaim(class, func(c *core.PersistentVolumeClaim) { c.Spec.StorageClassName = &class })
		s := spec("from-"+class, mib)
		s.Labels = map[string]string{"csi.storage.k8s.io/pvc/name": "claim-of-" + class, "csi.storage.k8s.io/pvc/namespace": "shop"}
		for kind, ask := range map[string]func() (*backend.Volume, error){
			"clone":   func() (*backend.Volume, error) { s.Name = "c-" + class; return w.backend.Clone(t.Context(), "v", s) },
			"restore": func() (*backend.Volume, error) { s.Name = "r-" + class; return w.backend.Restore(t.Context(), "s", s) },
		} {
			v, err := ask()
			if nodes == nil || slices.Contains(nodes, "a") {
				if err != nil || v.Node != "a" {
					t.Errorf("%s of class %s: %+v, %v", kind, class, v, err)
				}
				continue
			}
			expect(t, err, backend.ErrExhausted, "must be on node a", "class "+class, "allowedTopologies")
			if w.volume(s.Name) != nil {
				t.Errorf("%s of class %s left an object", kind, class)
			}
		}
	}
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
	if _, err := w.theirs.StorageV1().StorageClasses().Create(w.Context(), c, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}
