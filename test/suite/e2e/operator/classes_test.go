package operator

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

const isDefault = "storageclass.kubernetes.io/is-default-class"

// classes are those of Holdfast, by name.
func (a *admin) classes() map[string]storagev1.StorageClass {
	a.t.Helper()
	list, err := a.Client.StorageV1().StorageClasses().List(a.t.Context(), metav1.ListOptions{LabelSelector: managed})
	if err != nil {
		a.t.Fatal(err)
	}
	all := map[string]storagev1.StorageClass{}
	for _, c := range list.Items {
		all[c.Name] = c
	}
	return all
}

func TestClass_IsAddedRenamedChangedAndMadeTheDefault(t *testing.T) {
	a := administer(t)
	nodes := identities(a.pods("node"))
	first := v1beta1.StorageClassSpec{Name: "holdfast", Default: true}
	second := v1beta1.StorageClassSpec{
		Name: "e2e-second", Pool: "default", ReclaimPolicy: corev1.PersistentVolumeReclaimRetain, VolumeBindingMode: "Immediate", FSType: v1beta1.XFS,
		MountOptions: []string{"noatime"}, OnNodeLoss: v1beta1.DeleteOnNodeLoss,
	}
	ask := func(classes ...v1beta1.StorageClassSpec) map[string]storagev1.StorageClass {
		a.change(func(spec *v1beta1.StorageClusterSpec) { spec.StorageClasses = classes })
		return a.classes()
	}

	has := ask(first, second)
	made := has["e2e-second"]
	if len(has) != 2 || has["holdfast"].Annotations[isDefault] != "true" || made.Annotations[isDefault] == "true" {
		t.Errorf("added: %+v", has)
	}
	if made.Parameters["pool"] != "default" || made.Parameters["onNodeLoss"] != "delete" || made.Parameters["csi.storage.k8s.io/fstype"] != "xfs" ||
		*made.ReclaimPolicy != corev1.PersistentVolumeReclaimRetain || *made.VolumeBindingMode != storagev1.VolumeBindingImmediate || len(made.MountOptions) != 1 {
		t.Errorf("the class differs from the spec: %+v", made)
	}

	renamed := second
	renamed.Name, renamed.Default, renamed.ReclaimPolicy, renamed.FSType = "e2e-renamed", true, "", v1beta1.Ext4
	first.Default = false
	has = ask(first, renamed)
	made = has["e2e-renamed"]
	if _, stays := has["e2e-second"]; stays || len(has) != 2 || has["holdfast"].Annotations[isDefault] == "true" || made.Annotations[isDefault] != "true" {
		t.Errorf("renamed and made the default: %+v", has)
	}
	s := begin(t)
	s.Claim("data", "64Mi") // of the default class, which binds at once
	if class := s.Volume("data").Spec.StorageClassName; class != "e2e-renamed" {
		t.Errorf("a claim that names no class got %q", class)
	}

	renamed.VolumeBindingMode = "" // which Kubernetes does not let change
	if made := ask(first, renamed)["e2e-renamed"]; *made.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer {
		t.Errorf("changed: %+v", made)
	}
	s.Claim("waits", "64Mi")
	s.Run("user", kube.Mount("data", "/data"), kube.Mount("waits", "/waits"), kube.Script("touch /data/file /waits/file"))
	a.untouched(nodes, "node")
}

func TestClass_ForeignIsLeftAloneAndNamed(t *testing.T) {
	hostfs.Long(t)
	a := administer(t)
	classes := a.Client.StorageV1().StorageClasses()
	foreign, err := classes.Create(t.Context(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "e2e-foreign"}, Provisioner: "stranger.example",
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	removed := false
	remove := func() {
		if err := classes.Delete(t.Context(), foreign.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		removed = true
	}
	defer func() {
		if !removed {
			remove()
		}
	}()
	a.ask(func(spec *v1beta1.StorageClusterSpec) {
		spec.StorageClasses = []v1beta1.StorageClassSpec{{Name: "holdfast", Default: true}, {Name: "e2e-foreign"}, {Name: "e2e-own"}}
	})
	a.await("to name the foreign class", func(c *v1beta1.StorageCluster) bool {
		return says(c, v1beta1.DegradedCondition, "NameTaken", "StorageClass e2e-foreign")
	})
	now, err := classes.Get(t.Context(), foreign.Name, metav1.GetOptions{})
	if err != nil || now.ResourceVersion != foreign.ResourceVersion {
		t.Errorf("it was changed: %+v, %v", now, err)
	}
	// The one of before too: a class goes when all that may take its place are there.
	if has := slices.Sorted(maps.Keys(a.classes())); !slices.Equal(has, []string{"e2e-own", "holdfast", "holdfast-shared"}) {
		t.Errorf("the others are not there: %v", has)
	}
	remove()
	a.awaitReconciled()
	if has := a.classes(); len(has) != 3 {
		t.Errorf("it was not made when the name was free: %+v", has)
	}
}
