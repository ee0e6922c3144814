package storagecluster

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/deploy"
	"github.com/holdfast-storage/holdfast/operator/owned"
	"github.com/holdfast-storage/holdfast/operator/render"
)

const versionLabel = "app.kubernetes.io/version"

// handingOver is how long the controller of another release has to take over.
const handingOver = 10 * time.Minute

// otherRelease is one that somebody has installed over this one.
type otherRelease struct {
	version string
	seen    time.Time
}

// otherRelease returns the release of which somebody has applied the manifest over this one: to put the controller's
// workload right would take back the new release. Nobody but a manifest changes both the label and the image. What
// does not lead in time is put right all the same.
func (r *Controller) otherRelease(c *v1.StorageCluster) string {
	if c.Spec.Images.Holdfast != "" {
		return ""
	}
	for _, kind := range []string{"Deployment", "StatefulSet"} {
		o := r.Owned.Get(owned.Ref{
			GroupKind:      schema.GroupKind{Group: "apps", Kind: kind},
			NamespacedName: types.NamespacedName{Namespace: r.Namespace, Name: controllerName},
		})
		if o == nil {
			continue
		}
		version := o.GetLabels()[versionLabel]
		if version == "" || version == deploy.Version || image(o) == string(render.Images(c).Holdfast) {
			continue
		}
		if r.other.version != version {
			r.other = otherRelease{version: version, seen: time.Now()}
			r.Log.Info("another release was installed; this one changes nothing any more", "release", version)
		}
		if time.Since(r.other.seen) < handingOver {
			return version
		}
	}
	return ""
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
