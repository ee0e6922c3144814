package cluster

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/deploy"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
)

const versionLabel = "app.kubernetes.io/version"

// handingOver is how long the controller of another release has to take over.
const handingOver = 10 * time.Minute

// otherRelease is a release that was installed over this one.
type otherRelease struct {
	version string
	seen    time.Time
}

// controllerRefs are the workloads of which one is the controller's.
func controllerRefs(namespace string) (refs []apply.Ref) {
	for _, kind := range []string{"Deployment", "StatefulSet"} {
		refs = append(refs, apply.Ref{
			GroupKind:      schema.GroupKind{Group: "apps", Kind: kind},
			NamespacedName: types.NamespacedName{Namespace: namespace, Name: controllerName},
		})
	}
	return refs
}

// installedOver returns the release whose manifest was just applied over this one; "" if there is none.
func (r *Controller) installedOver(c *v1beta1.StorageCluster) string {
	for _, ref := range controllerRefs(r.Namespace) {
		if o := r.Owned.Get(ref); o != nil {
			if version := r.manifestOf(c, o); version != "" {
				return version
			}
		}
	}
	return ""
}

// manifestOf returns the other release whose manifest made the controller's workload what it is. Only a manifest
// changes both the label and the image.
func (r *Controller) manifestOf(c *v1beta1.StorageCluster, workload *unstructured.Unstructured) string {
	version := workload.GetLabels()[versionLabel]
	if version == deploy.Version || image(workload) == string(r.Release.Images(c).Holdfast) {
		return ""
	}
	return version
}

// spares says whether the controller's workload is left as it is, since it is that of another release which is to take
// over. It may have come since see looked. What is overwritten is noted until the status says so.
func (r *Controller) spares(c *v1beta1.StorageCluster, workload *unstructured.Unstructured) bool {
	version := r.manifestOf(c, workload)
	if r.otherRelease(c, version) != "" {
		return true
	}
	if version != "" {
		r.overwritten = version
	}
	return false
}

// otherRelease returns the release that was installed over this one if it is to take over: to put the controller's
// workload right would take it back. What does not lead in time is put right all the same, and so is what the spec does
// not ask for.
func (r *Controller) otherRelease(c *v1beta1.StorageCluster, version string) string {
	if version == "" || c.Spec.Images.Holdfast != "" {
		return ""
	}
	if r.other.version != version {
		r.other = otherRelease{version: version, seen: time.Now()}
		r.Log.Info("another release was installed; this one makes no more changes", "release", version)
	}
	if time.Since(r.other.seen) < handingOver {
		return version
	}
	return ""
}

// pinned is what the condition says of the image, by which it is known when that is another.
func pinned(image v1beta1.Image) string { return fmt.Sprintf("spec.images.holdfast names %s", image) }

// setReleaseIgnored says that a release was installed which the spec keeps from running, until the spec asks for another image.
func (s *situation) setReleaseIgnored(next *v1beta1.StorageClusterStatus) {
	image := s.cluster.Spec.Images.Holdfast
	if s.ignored != "" {
		c := kube.NewCondition(v1beta1.ReleaseIgnoredCondition, true, reasonImagePinned, fmt.Sprintf("the manifest of %s was applied, but %s, which keeps running: "+
			"create a StorageUpgrade to %s, or remove spec.images.holdfast and apply the manifest again", s.ignored, pinned(image), s.ignored))
		c.ObservedGeneration = s.cluster.Generation
		meta.SetStatusCondition(&next.Conditions, c)
		return
	}
	if c := meta.FindStatusCondition(next.Conditions, v1beta1.ReleaseIgnoredCondition); c != nil && (image == "" || !strings.Contains(c.Message, pinned(image)+",")) {
		meta.RemoveStatusCondition(&next.Conditions, v1beta1.ReleaseIgnoredCondition)
	}
}

// image of the container of Holdfast in a workload.
func image(workload *unstructured.Unstructured) string {
	containers, _, _ := unstructured.NestedSlice(workload.Object, "spec", "template", "spec", "containers")
	for _, c := range containers {
		if m, _ := c.(map[string]any); m["name"] == "holdfast" {
			image, _ := m["image"].(string)
			return image
		}
	}
	return ""
}
