package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-storage/holdfast/admin/persistent"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube/podstatus"
	"github.com/holdfast-storage/holdfast/operator/render"
	"github.com/holdfast-storage/holdfast/report/facts"
)

func defaults(f *Facts) (names []string) {
	for _, c := range f.Classes {
		if c.Annotations[render.DefaultClass] == "true" {
			names = append(names, c.Name)
		}
	}
	slices.Sort(names)
	return names
}

func checkDefaultClass(f *Facts) []Finding {
	switch names := defaults(f); len(names) {
	case 1:
		return nil
	case 0:
		return []Finding{warn("", "Set spec.defaultClass: true of the StorageCluster, or default: true of one of its storageClasses, or kubectl annotate storageclass NAME "+render.DefaultClass+"=true.",
			"there is no default class: claims that name none wait for one")}
	default:
		return []Finding{problem("", "Take the mark from all but one: kubectl annotate storageclass NAME "+render.DefaultClass+"-. Of a class of Holdfast, set defaultClass: false in the StorageCluster, or default: false of the class.",
			"there are %d default classes, %s: claims that name none get the newest", len(names), strings.Join(names, ", "))}
	}
}

func checkSnapshots(f *Facts) (found []Finding) {
	if !f.WithCSI() {
		return nil
	}
	var missing []string
	for _, name := range []string{facts.SnapshotDefinition, facts.SnapshotClassDefinition, facts.ContentDefinition} {
		if f.Definitions[name] == nil {
			missing = append(missing, name)
		}
	}
	const install = "The controller brings them where all of them are missing, with the controller that they need; its log says why it does not."
	if len(missing) > 0 {
		return []Finding{warn("", install, "no snapshot can be made: the cluster lacks %s", strings.Join(missing, ", "))}
	}
	if !classOf(f, f.SnapshotClasses) {
		found = append(found, warn("", "The controller makes one; see what the StorageCluster says, or apply deploy/operated/snapshotclass.yaml.", "no VolumeSnapshotClass has the driver %s", f.Driver))
	}
	if f.Definitions[facts.GroupClassDefinition] == nil {
		found = append(found, note("", install, "volumes cannot be copied in groups: the cluster lacks %s", facts.GroupClassDefinition))
	} else if !classOf(f, f.GroupClasses) {
		found = append(found, note("", "The controller makes one; see what the StorageCluster says.", "no VolumeGroupSnapshotClass has the driver %s", f.Driver))
	}
	return found
}

func classOf(f *Facts, all []*unstructured.Unstructured) bool {
	return slices.ContainsFunc(all, func(c *unstructured.Unstructured) bool {
		driver, _, _ := unstructured.NestedString(c.Object, "driver")
		return driver == f.Driver
	})
}

func checkVolumes(f *Facts) (found []Finding) {
	for _, u := range f.Unwell() {
		object := u.Kind + " " + u.Name
		if u.ClaimRef != nil {
			object += " of claim " + u.ClaimRef.String()
		}
		found = append(found, problem(object, mend(u.Conditions), "it is %s on node %s: %s", u.Phase, u.Node, u.Message))
	}
	return found
}

// mend is what to do with a volume that can be used and is not well. Of others their messages say it.
func mend(conditions []metav1.Condition) string {
	c := meta.FindStatusCondition(conditions, v1beta1.HealthyCondition)
	if c == nil || c.Status != metav1.ConditionFalse {
		return ""
	}
	switch c.Reason {
	case v1beta1.ReasonFileSystem:
		return "Save what is in it, then stop the pods of its claim: an ext4 is checked, and the log of an xfs replayed, when it is mounted the next time. See docs/reliability.md."
	case v1beta1.ReasonDevice:
		return "Look for failing disks below the pool, and save what is in it. See docs/reliability.md."
	case v1beta1.ReasonNotGrown:
		return "Stop the pods of its claim, and start them again: it is tried again when the volume is mounted."
	case v1beta1.ReasonPoolErrors:
		return "Mend the file system of the pool; see the StorageNode."
	}
	return ""
}

// provisioners are those whose claims are looked at.
func ours(f *Facts, class *storage.StorageClass) bool {
	return class.Provisioner == f.Driver || class.Provisioner == v1beta1.ProvisionerName
}

func checkClaims(f *Facts) (found []Finding) {
	for _, c := range f.Claims {
		if c.Status.Phase != core.ClaimPending && c.Status.Phase != core.ClaimLost {
			continue
		}
		if finding, known := unbound(f, c); known {
			finding.Object = fmt.Sprintf("claim %s/%s", c.Namespace, c.Name)
			found = append(found, finding)
		}
	}
	return found
}

// unbound says why a claim is not bound. Those of other drivers are not known.
func unbound(f *Facts, c *core.PersistentVolumeClaim) (Finding, bool) {
	if c.Status.Phase == core.ClaimLost {
		return lost(f, c)
	}
	if c.Spec.StorageClassName == nil {
		if len(defaults(f)) == 0 {
			return problem("", "Name a class in it, or make one the default.", "it names no class, and there is no default one"), true
		}
		return Finding{}, false
	}
	name := *c.Spec.StorageClassName
	i := slices.IndexFunc(f.Classes, func(s *storage.StorageClass) bool { return s.Name == name })
	switch {
	case name == "":
		return Finding{}, false // it waits for a volume made by hand
	case i < 0:
		return problem("", "Name another one in a new claim, or add it to spec.storageClasses of the StorageCluster.", "its class %s does not exist", name), true
	case !ours(f, f.Classes[i]):
		return Finding{}, false
	}
	if e := f.LastWarning("PersistentVolumeClaim", c.Namespace, c.Name); e != nil {
		return problem("", "", "%s: %s", e.Reason, e.Message), true
	}
	mode := f.Classes[i].VolumeBindingMode
	if mode == nil || *mode != storage.VolumeBindingWaitForFirstConsumer {
		return problem("", "See the log of csi-provisioner in the controller pods.", "it waits, and no event says why"), true
	}
	users := users(f, c)
	if len(users) == 0 {
		return note("", "Start a pod that uses it.", "it waits for the first pod that uses it, as its class %s says", name), true
	}
	for _, p := range users {
		if why := notReady(f, p); why != "" {
			return problem("", "", "it waits for pod %s: %s", p.Name, why), true
		}
	}
	return Finding{}, false
}

// lost says what to do with a claim that has lost its PersistentVolume. Its Volume, with the data, need not be lost.
func lost(f *Facts, c *core.PersistentVolumeClaim) (Finding, bool) {
	class := ""
	if c.Spec.StorageClassName != nil {
		class = *c.Spec.StorageClassName
	}
	if i := slices.IndexFunc(f.Classes, func(s *storage.StorageClass) bool { return s.Name == class }); i >= 0 && !ours(f, f.Classes[i]) {
		return Finding{}, false
	}
	what := fmt.Sprintf("its PersistentVolume %s is gone, or that of another claim", c.Spec.VolumeName)
	i := slices.IndexFunc(f.Volumes, func(v *v1beta1.Volume) bool {
		return c.Spec.VolumeName != "" && slices.Contains(persistent.NamesFor(v), c.Spec.VolumeName)
	})
	switch {
	case i >= 0:
		v := f.Volumes[i]
		adopt := fmt.Sprintf("holdfast volumes adopt %s --claim %s/%s makes it again, with the data of the volume.", v.Name, c.Namespace, c.Name)
		if v.Status.Phase == v1beta1.PhaseLost || v.Status.Phase == v1beta1.PhaseFailed {
			adopt = "First see what is wrong with the volume. " + adopt
		}
		return problem("", adopt, "%s; its volume %s is %s", what, v.Name, cmp.Or(v.Status.Phase, v1beta1.PhasePending)), true
	case class == "":
		return Finding{}, false // that of a volume made by hand
	}
	return problem("", "Look for its volume before you make another claim, with holdfast volumes list and holdfast volumes trash. See docs/disaster-recovery.md.",
		"%s; no Volume has that name", what), true
}

// users are the pods that name a claim.
func users(f *Facts, c *core.PersistentVolumeClaim) (found []*core.Pod) {
	for _, p := range f.Pods {
		if p.Namespace == c.Namespace && slices.Contains(podstatus.Claims(p), c.Name) {
			found = append(found, p)
		}
	}
	return found
}
